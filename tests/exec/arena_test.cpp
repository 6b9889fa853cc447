// The arena hands out what the placement says, keeps honest books, and stops on anything else.
#include "exec/engine/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "exec/cpu/backend.h"

namespace orrery::exec {
namespace arena_test {

/// One persistent buffer, one scalar step buffer, one saved per micro-batch; two micro-batches forward, then backward.
constexpr plan::BufferId kLoss(1), kSaved(2);

struct Example {
  plan::RankClass rank_class;
  plan::Placement placement;

  Example() {
    rank_class.buffers = {{"weights", plan::Purpose::parameters, models::DType::fp32, 64, true, false},
                          {"loss", plan::Purpose::scalars, models::DType::fp32, 1, false, false},
                          {"saved", plan::Purpose::activations, models::DType::fp32, 64, false, true}};
    plan::Step begin, forward, backward, end;
    begin.births = {kLoss};
    forward.births = {kSaved};
    backward.deaths = {kSaved};
    end.deaths = {kLoss};
    rank_class.blocks = {{"begin", {begin}}, {"forward", {forward}}, {"backward", {backward}}, {"finish", {end}}};
    rank_class.program = {{0, -1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, -1}};
    placement.arena_bytes = 1024;
    placement.persistent = {0, -1, -1};
    placement.births = {{{0, 0}, kLoss, -1, 256, 256}, {{1, 0}, kSaved, 0, 512, 256}, {{2, 0}, kSaved, 1, 768, 256}};
  }
};

TEST(Arena, HandsOutWhatThePlacementSaysAndKeepsBooks) {
  const Example e;
  const auto backend = make_cpu_backend(1);
  Arena arena(*backend, e.rank_class, e.placement, Arena::Check::overlaps_and_poison);
  EXPECT_EQ(arena.use().current, 256);
  for (int step = 0; step < 2; ++step) {
    arena.begin_step();
    arena.birth({0, 0}, kLoss, -1);
    arena.birth({1, 0}, kSaved, 0);
    EXPECT_EQ(arena.use().current, 768);
    EXPECT_FALSE(arena.resting()) << "another arena may not lie here now";
    arena.birth({2, 0}, kSaved, 1);
    EXPECT_EQ(arena.data(kSaved, 1) - arena.base(), 768);
    EXPECT_EQ(arena.data(kLoss, 1), arena.data(kLoss, -1)) << "one copy for all micro-batches";
    float value = 0;
    std::memcpy(&value, arena.data(kSaved, 0), sizeof value);
    EXPECT_TRUE(std::isnan(value)) << "a newborn buffer holds nothing to rely on";
    arena.death(kSaved, 0);
    arena.death(kSaved, 1);
    arena.death(kLoss, -1);
    EXPECT_TRUE(arena.resting());
  }
  EXPECT_EQ(arena.use().current, 256);
  EXPECT_EQ(arena.use().peak_live, 1024);
  EXPECT_EQ(arena.use().peak_extent, 1024);
}

TEST(Arena, ReportsWhatWasHandedOutAndNotThePlansFigure) {
  Example e;
  e.placement.arena_bytes = 4096;  // a plan that promises more than it uses
  const auto backend = make_cpu_backend(1);
  Arena arena(*backend, e.rank_class, e.placement, Arena::Check::overlaps);
  arena.begin_step();
  arena.birth({0, 0}, kLoss, -1);
  EXPECT_EQ(arena.use().peak_extent, 512);
}

TEST(ArenaDeath, StopsOnOverlapsLeaksAndUseAfterDeath) {
  const auto backend = make_cpu_backend(1);
  Example e;
  EXPECT_DEATH(
      {
        plan::Placed late = e.placement.births[2];
        late.offset = 640;
        e.placement.births.set(2, late);
        Arena arena(*backend, e.rank_class, e.placement, Arena::Check::overlaps);
        arena.begin_step();
        arena.birth({1, 0}, kSaved, 0);
        arena.birth({2, 0}, kSaved, 1);
      },
      "overlap");
  EXPECT_DEATH(
      {
        Arena arena(*backend, e.rank_class, e.placement, Arena::Check::overlaps);
        arena.begin_step();
        arena.birth({0, 0}, kLoss, -1);
        arena.begin_step();
      },
      "outlived");
  EXPECT_DEATH(
      {
        Arena arena(*backend, e.rank_class, e.placement, Arena::Check::none);
        (void)arena.data(kLoss, -1);
      },
      "does not live");
  EXPECT_DEATH(
      {
        Arena arena(*backend, e.rank_class, e.placement, Arena::Check::none);
        arena.birth({0, 0}, kLoss, -1);
        arena.birth({0, 0}, kLoss, -1);
      },
      "born twice");
  EXPECT_DEATH(
      {
        Arena arena(*backend, e.rank_class, e.placement, Arena::Check::none);
        arena.birth({3, 0}, kSaved, 0);
      },
      "no place");
}

}  // namespace arena_test
}  // namespace orrery::exec
