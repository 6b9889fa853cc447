// Programs of many micro-batches: what repeats is kept once, every entry is what it was, and proofs, placements and
// rehearsals of long programs say what they say of short ones.
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"
#include "plan/schedule/rehearse.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace repeated_test {

std::vector<Entry> all_of(const Entries& entries) {
  std::vector<Entry> out;
  for (const Entry& entry : entries) out.push_back(entry);
  return out;
}

// Some entries that fill, `times` turns of a few, some that drain.
std::vector<Entry> pipeline(int times) {
  std::vector<Entry> out = {{0, -1}, {1, 0}, {1, 1}, {1, 2}};
  for (int i = 0; i < times; ++i) {
    out.push_back({1, 3 + i});
    out.push_back({2, i});
  }
  for (int i = times; i < times + 3; ++i) out.push_back({2, i});
  out.push_back({3, -1});
  return out;
}

TEST(Repeated, KeepsWhatRepeatsOnceAndGivesEveryElementBack) {
  for (const int times : {0, 1, 3, 4, 5, 50, 1000, 100'000}) {
    const std::vector<Entry> plain = pipeline(times);
    const Entries folded(plain);
    ASSERT_EQ(folded.size(), plain.size());
    EXPECT_EQ(all_of(folded), plain) << times;
    for (std::size_t i = 0; i < plain.size(); i += 1 + plain.size() / 97) EXPECT_EQ(folded[i], plain[i]);
    if (times >= 50) {
      EXPECT_LT(folded.kept(), 16u) << times;
    }
  }
}

TEST(Repeated, FoldsAsItGrows) {
  Entries entries;
  std::size_t most = 0;
  for (std::int32_t i = 0; i < 200'000; ++i) {
    entries.push_back({i % 5, i / 5});
    most = std::max(most, entries.kept());
  }
  ASSERT_EQ(entries.size(), 200'000u);
  EXPECT_LT(most, 40'000u);
  for (std::int32_t i = 0; i < 200'000; i += 777)
    EXPECT_EQ(entries[static_cast<std::size_t>(i)], (Entry{i % 5, i / 5})) << i;
}

TEST(Repeated, AnElementThatIsPutInStandsAloneAmongTheOthers) {
  const std::vector<Entry> plain = pipeline(200);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{5}, plain.size() / 2, plain.size() - 1}) {
    Entries folded(plain);
    std::vector<Entry> expected = plain;
    expected[at].block = 7;
    folded.set(at, expected[at]);
    EXPECT_EQ(all_of(folded), expected) << at;
    folded.push_back({9, -1});
    expected.push_back({9, -1});
    EXPECT_EQ(all_of(folded), expected) << at;
  }
}

TEST(Repeated, DoesNotTakeForARepetitionWhatIsNone) {
  std::vector<Entry> plain = pipeline(100);
  plain[60].micro_batch += 1;
  plain[61].ahead = 1;
  plain[120].opening = true;
  EXPECT_EQ(all_of(Entries(plain)), plain);
}

PlanSpec long_pipeline(Order order, int stages, std::int64_t micro_batches) {
  PlanSpec spec;
  spec.mesh.pipeline = stages;
  spec.stages.order = order;
  spec.shape.batch = micro_batches;
  spec.stages.virtual_stages = order == Order::zb_v || order == Order::dualpipe_v || order == Order::dualpipe ? 2 : 1;
  return spec;
}

constexpr Order kOrders[] = {Order::gpipe, Order::one_f_one_b, Order::zb_h1,   Order::zb_h2,
                             Order::zb_v,  Order::dualpipe_v,  Order::dualpipe};

Plan made(const PlanSpec& spec) {
  return samples::make(spec, samples::tiny_gpt(2 * spec.mesh.pipeline));
}

TEST(Repeated, EveryOrderIsSoundHoweverManyMicroBatchesAndItsProgramNoLongerInMemory) {
  for (const Order order : kOrders) {
    std::size_t kept[2];
    int i = 0;
    for (const std::int64_t micro_batches : {256, 1024}) {
      const Schedule schedule = lower(made(long_pipeline(order, 4, micro_batches)));
      EXPECT_EQ(base::render(check(schedule), false), "") << name_of(order);
      kept[i] = 0;
      for (const RankClass& c : schedule.classes) kept[i] += c.program.kept();
      ++i;
    }
    EXPECT_EQ(kept[0], kept[1]) << name_of(order);
  }
}

// One entry among a thousand: every proof sees it.
TEST(Repeated, AFaultAmongManyMicroBatchesIsFound) {
  for (const std::size_t at : {std::size_t{10}, std::size_t{1001}, std::size_t{2030}}) {
    Schedule schedule = lower(made(long_pipeline(Order::one_f_one_b, 4, 1024)));
    ASSERT_TRUE(check(schedule).empty());
    Entries& program = schedule.classes[1].program;
    Entry entry = program[at];
    entry.block = entry.block == 1 ? 2 : 1;
    program.set(at, entry);
    EXPECT_FALSE(check(schedule).empty()) << at;
  }
  // Two of a stage's turns in the other order: its neighbours wait for ever.
  Schedule schedule = lower(made(long_pipeline(Order::one_f_one_b, 4, 1024)));
  Entries& program = schedule.classes[3].program;
  const Entry forward = program[1001], backward = program[1002];
  ASSERT_EQ(forward.micro_batch, backward.micro_batch);
  program.set(1001, backward);
  program.set(1002, forward);
  EXPECT_FALSE(check(schedule).empty());
}

TEST(Repeated, SizesAreThoseOfThePlacementOfEveryBirth) {
  for (const Order order : kOrders)
    for (const std::int64_t micro_batches : {8, 96}) {
      const Schedule schedule = lower(made(long_pipeline(order, 4, micro_batches)));
      for (const RankClass& c : schedule.classes) {
        const Placement whole = place(c), sizes = sizes_of(c);
        EXPECT_EQ(sizes.arena_bytes, whole.arena_bytes) << name_of(order);
        EXPECT_EQ(sizes.peak_live_bytes, whole.peak_live_bytes) << name_of(order);
        EXPECT_EQ(sizes.by_purpose, whole.by_purpose) << name_of(order);
        EXPECT_EQ(sizes.persistent, whole.persistent) << name_of(order);
        EXPECT_TRUE(sizes.births.empty());
        EXPECT_FALSE(whole.births.empty());
      }
    }
}

TEST(Repeated, PlacesOfManyMicroBatchesAreKeptOnceAndRehearsed) {
  std::size_t kept[2];
  int i = 0;
  for (const std::int64_t micro_batches : {256, 1024}) {
    const Schedule schedule = lower(made(long_pipeline(Order::one_f_one_b, 4, micro_batches)));
    std::vector<Placement> placements;
    kept[i] = 0;
    for (const RankClass& c : schedule.classes) {
      placements.push_back(place(c));
      kept[i] += placements.back().births.kept();
    }
    EXPECT_EQ(base::render(rehearse(schedule, placements), false), "");
    ++i;
  }
  EXPECT_EQ(kept[0], kept[1]);
}

}  // namespace repeated_test
}  // namespace orrery::plan
