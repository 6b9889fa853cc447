// The placement made ahead takes hardly more than what lives at once, which is the least that any allocator can; one
// that decides request by request takes more, above all where checkpoints lie between what lives for a moment.
#include "tests/plan/fragmentation.h"

#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::testing {
namespace fragmentation_test {

Fragmentation of(void (*set)(plan::PlanSpec&)) {
  models::Model model = samples::tiny_gpt(24, 1024, 50304);
  model.max_sequence = 1024;
  plan::PlanSpec spec;
  spec.shape.sequence = 1024;
  spec.shape.micro_batch = 2;
  spec.shape.batch = 16;
  spec.numerics.precision = models::DType::bf16;
  set(spec);
  return fragmentation_of(plan::lower(samples::make(spec, model)).classes.front());
}

TEST(CachingAllocator, ServesFromWhatIsFreeAndJoinsNeighbours) {
  CachingAllocator allocator;
  constexpr std::int64_t kMiB = 1 << 20;
  const std::int64_t a = allocator.allocate(4 * kMiB), b = allocator.allocate(4 * kMiB);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB) << "both from one segment";
  allocator.release(a);
  allocator.release(b);
  (void)allocator.allocate(9 * kMiB);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB) << "the neighbours are one block";
  (void)allocator.allocate(64 * kMiB);
  EXPECT_EQ(allocator.reserved(), 84 * kMiB);
  (void)allocator.allocate(100);
  EXPECT_EQ(allocator.reserved(), 86 * kMiB) << "small ones have segments of their own";
}

TEST(CachingAllocator, CannotUseHolesBetweenWhatStays) {
  CachingAllocator allocator;
  constexpr std::int64_t kMiB = 1 << 20;
  std::vector<std::int64_t> shorts;
  for (int i = 0; i < 8; ++i) {
    shorts.push_back(allocator.allocate(2 * kMiB));
    (void)allocator.allocate(2 * kMiB);  // stays
  }
  const std::int64_t before = allocator.reserved();
  for (const std::int64_t one : shorts) allocator.release(one);
  (void)allocator.allocate(16 * kMiB);  // as much is free, but in pieces
  EXPECT_GT(allocator.reserved(), before);
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};
class Fragmented : public ::testing::TestWithParam<Case> {};

TEST_P(Fragmented, TheArenaIsWithinTwoPercentOfWhatLivesAtOnce) {
  const Fragmentation f = of(GetParam().set);
  EXPECT_GE(f.arena, f.live);
  EXPECT_LE(static_cast<double>(f.arena), 1.02 * static_cast<double>(f.live));
  EXPECT_GT(f.reserved, f.arena);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Fragmented,
    ::testing::Values(
        Case{"plain", [](plan::PlanSpec&) {}},
        Case{"recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
        Case{"recompute_half",
             [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full, s.recomputation.layers = 12; }},
        Case{"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
        Case{"stages", [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.recomputation.what = plan::Recompute::full; }}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace fragmentation_test
}  // namespace orrery::testing
