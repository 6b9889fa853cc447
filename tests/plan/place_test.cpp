// Where buffers lie: what a message still reads is apart from what the next one writes, and an arena has no end to
// spare.
#include "plan/schedule/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/lower/lower.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/rehearse.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace place_test {

/// Its ends count as layers: the embedding is alone on the first of four stages.
PlanSpec ends_as_layers() {
  PlanSpec spec;
  spec.mesh.pipeline = 4;
  spec.stages.ends_as_layers = true;
  spec.shape.micro_batch = 2;
  spec.recomputation.what = Recompute::selective;
  spec.numerics.flash = false;
  return spec;
}

struct Extent {
  std::string name;
  std::int64_t begin = 0, end = 0;
};

// Buffers of the device that live within a block: those that a send frees behind all that it computes, and those that a
// receive makes ahead of that.
void ends_of(const RankClass& c, const Placement& placement, std::vector<Extent>& leave, std::vector<Extent>& arrive) {
  std::map<BufferId, Extent> places;
  for (const Placed& birth : placement.births) {
    const Buffer& buffer = c.buffers[birth.buffer];
    if (!buffer.per_micro_batch && buffer.space == Space::device)
      places[birth.buffer] = {buffer.name, birth.offset, birth.offset + buffer.bytes()};
  }
  const auto take = [&](const std::vector<BufferId>& buffers, std::vector<Extent>& out) {
    for (const BufferId buffer : buffers)
      if (places.count(buffer) > 0) out.push_back(places.at(buffer));
  };
  for (const Block& block : c.blocks) {
    for (const Step& step : block.steps) {
      if (step.kind == StepKind::compute) break;
      take(step.births, arrive);
    }
    for (auto step = block.steps.rbegin(); step != block.steps.rend() && step->kind != StepKind::compute; ++step)
      if (step->kind == StepKind::send) take(step->deaths, leave);
  }
}

TEST(Placement, WhatABlockSendsIsApartFromWhatTheNextReceives) {
  int pairs = 0;
  const auto expect_apart = [&](const std::string& name, const Plan& plan) {
    for (const RankClass& c : lower(plan).classes) {
      std::vector<Extent> leave, arrive;
      ends_of(c, place(c), leave, arrive);
      for (const Extent& a : leave)
        for (const Extent& b : arrive) {
          ++pairs;
          EXPECT_TRUE(a.end <= b.begin || b.end <= a.begin) << name << ": " << a.name << ", " << b.name;
        }
    }
  };
  for (const auto& [name, spec] : samples::splits()) expect_apart(name, samples::make(spec));
  expect_apart("bert", samples::make(ends_as_layers(), samples::tiny_bert()));
  EXPECT_GT(pairs, 50);
}

// By hand, of every block: what lives in it is what a placement gives places to within it.
TEST(Placement, ReadsOffABlockWhatLivesInItAlone) {
  PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.pipeline = 2, spec.states.zero_stage = 2, spec.offload.optimizer = Space::host;
  int leave = 0, arrive = 0, on_host = 0;
  for (const RankClass& c : lower(samples::make(spec)).classes)
    for (const Block& block : c.blocks)
      for (const Space space : {Space::device, Space::host}) {
        std::int64_t alive = 0, most = 0;
        for (const Step& step : block.steps) {
          for (const BufferId b : step.births)
            if (c.buffers[b].space == space && !c.buffers[b].per_micro_batch)
              alive += (c.buffers[b].bytes() + kAlignment - 1) / kAlignment * kAlignment;
          most = std::max(most, alive);
          for (const BufferId b : step.deaths)
            if (c.buffers[b].space == space && !c.buffers[b].per_micro_batch)
              alive -= (c.buffers[b].bytes() + kAlignment - 1) / kAlignment * kAlignment;
        }
        EXPECT_EQ(alive, 0) << block.name;
        const std::vector<ScratchBuffer> within = scratch_of(c, block, space);
        EXPECT_EQ(most_alive(within), most) << block.name;
        for (const ScratchBuffer& one : within) {
          EXPECT_EQ(c.buffers[one.buffer].space, space);
          leave += one.leaves, arrive += one.arrives, on_host += space == Space::host;
        }
      }
  EXPECT_TRUE(leave > 0 && arrive > 0 && on_host > 0) << "messages, and copies of what is updated";
}

// The embedding's output waits for the first block's stage, which sends its gradient first.
TEST(Placement, StagesThatSendToEachOtherDoNotWaitForEver) {
  EXPECT_EQ(base::render(rehearse(lower(samples::make(ends_as_layers(), samples::tiny_bert()))), false), "");
}

TEST(Placement, AnArenaEndsWhereItsLastBufferDoes) {
  const auto expect_no_more = [](const std::string& name, const Plan& plan) {
    for (const RankClass& c : lower(plan).classes) {
      const Placement placement = place(c);
      std::map<Space, std::int64_t> end;
      const auto reach = [&](BufferId buffer, std::int64_t to) {
        std::int64_t& furthest = end[c.buffers[buffer].space];
        furthest = std::max(furthest, to);
      };
      for (const BufferId i : c.buffers.keys())
        if (c.buffers[i].persistent) {
          const std::int64_t one = (c.buffers[i].bytes() + kAlignment - 1) / kAlignment * kAlignment;
          reach(i, placement.persistent[i] + c.buffers[i].versions * one);
        }
      for (const Placed& birth : placement.births) {
        if (birth.ring > 1) return;  // rings are whole
        reach(birth.buffer, birth.offset + birth.bytes);
      }
      for (const auto& [space, furthest] : end) EXPECT_EQ(placement.arena_bytes_of(space), furthest) << name;
    }
  };
  for (auto [name, spec] : samples::splits()) {
    expect_no_more(name, samples::make(spec));
    spec.offload.activations = Space::host;
    if (const auto offloaded = samples::try_make(spec)) expect_no_more(name + ", offloaded", *offloaded);
  }
}

}  // namespace place_test
}  // namespace orrery::plan
