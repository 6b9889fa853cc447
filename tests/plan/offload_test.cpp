// What leaves the device: which buffers, when their copies begin, when their memory is free again; and that a schedule
// whose steps reach into another memory is refused.
#include "plan/lower/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace offload_test {

using ::testing::HasSubstr;

PlanSpec leaving(int prefetch = 1) {
  PlanSpec spec;
  spec.shape.batch = 8;
  spec.offload.activations = Space::host;
  spec.offload.prefetch = prefetch;
  return spec;
}

const Block& block(const RankClass& c, const std::string& name) {
  for (const Block& b : c.blocks)
    if (b.name == name) return b;
  throw std::runtime_error("no block " + name);
}

/// A block's steps in letters: layers of compute steps, < for what leaves and > for what comes, each once in a row, and
/// r for a release.
std::string sketch(const Block& b) {
  std::string text;
  for (const Step& step : b.steps) {
    std::string letter;
    if (step.kind == StepKind::copy)
      letter = (step.stream == Stream::to_host ? "<" : ">") + fmt::format("{}", step.layer);
    else if (step.part == "release")
      letter = "r";
    else if (step.kind == StepKind::compute)
      letter = step.layer ? fmt::format("{}", step.layer) : step.part.substr(0, 4);
    else
      letter = name_of(step.kind);
    if (text.size() < letter.size() + 1 || text.substr(text.size() - letter.size() - 1) != letter + " ")
      text += letter + " ";
  }
  return text;
}

TEST(Offload, CopiesLeaveBehindTheirLayerAndComeBackOneLayerAhead) {
  const Schedule schedule = lower(samples::make(leaving()));
  const RankClass& c = schedule.classes.front();
  // The top block stays: backward follows at once. Memory is free when the layer behind has run.
  EXPECT_EQ(sketch(block(c, "forward")), "load embe 0 <0 1 r <1 2 r <2 3 r head ");
  EXPECT_EQ(sketch(block(c, "backward")), "head >2 3 >1 2 >0 1 0 embe ");
}

TEST(Offload, FetchesAsManyLayersAheadAsIsSaid) {
  const Schedule schedule = lower(samples::make(leaving(2)));
  EXPECT_EQ(sketch(block(schedule.classes.front(), "backward")), "head >1 3 >0 2 1 0 embe ");
}

TEST(Offload, WhereBackwardDoesNotFollowAtOnceAllLayersLeave) {
  PlanSpec spec = leaving();
  spec.stages.order = Order::gpipe;
  const Schedule schedule = lower(samples::make(spec));
  EXPECT_EQ(sketch(block(schedule.classes.front(), "forward")), "load embe 0 <0 1 r <1 2 r <2 3 r <3 head r ");
  EXPECT_EQ(sketch(block(schedule.classes.front(), "backward")), ">3 head >2 3 >1 2 >0 1 0 embe ");
}

TEST(Offload, AStageThatSendsFreesItsLastLayerWithTheCopy) {
  PlanSpec spec = leaving();
  spec.mesh.pipeline = 2;
  const Schedule schedule = lower(samples::make(spec));
  const Block& forward = block(schedule.classes.front(), "forward");
  EXPECT_EQ(sketch(forward), "load embe 0 <0 1 r <1 send ");
  const Step& last = forward.steps[forward.steps.size() - 2];
  EXPECT_EQ(last.kind, StepKind::copy);
  EXPECT_EQ(last.deaths, std::vector<BufferId>{last.source.buffer});
}

TEST(Offload, RecomputationLeavesItsCheckpointsAlone) {
  PlanSpec spec = leaving();
  spec.recomputation.what = Recompute::full;
  const RankClass c = lower(samples::make(spec)).classes.front();
  int copies = 0;
  for (const Step& step : block(c, "forward").steps) copies += step.kind == StepKind::copy ? 1 : 0;
  EXPECT_EQ(copies, 3) << "the input of each block but the last";
}

TEST(Offload, EveryMemoryHasItsArena) {
  PlanSpec spec = leaving();
  spec.mesh.pipeline = 2;
  spec.shape.micro_batch = 1;
  const Schedule there = lower(samples::make(spec));
  spec.offload = {};
  const Schedule here = lower(samples::make(spec));
  const Placement with = place(there.classes.front()), without = place(here.classes.front());
  EXPECT_EQ(without.host.arena_bytes, 0);
  EXPECT_LT(with.arena_bytes, without.arena_bytes);
  EXPECT_GT(with.host.arena_bytes, 0);
  EXPECT_EQ(with.host.arena_bytes, with.host.peak_live_bytes) << "one slab a micro-batch in flight: no holes";
  std::int64_t saved = 0;
  for (const Buffer& b : there.classes.front().buffers)
    if (b.space == Space::host) saved += (b.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  EXPECT_EQ(with.host.arena_bytes, 2 * saved) << "two micro-batches in flight on the first of two stages";
}

// Each memory of activations, optimizer and parameters, with gradients reduced early and not, trained and evaluated.
TEST(Offload, EverySplitThatLeavesIsSound) {
  int sound = 0;
  const auto expect_sound = [&](const std::string& name, const PlanSpec& spec) {
    const auto made = samples::try_make(spec);
    if (!made) return;
    for (const bool forward : {false, true}) {
      if (forward && spec.stages.asynchronous()) continue;
      LowerOptions options;
      options.forward_only = forward;
      const base::Diagnostics faults = check(lower(*made, options));
      EXPECT_TRUE(faults.empty()) << name << ", " << describe(spec) << "\n" << base::render(faults, false);
      sound += faults.empty() ? 1 : 0;
    }
  };
  for (auto& [name, spec] : samples::splits())
    for (const Space activations : {Space::device, Space::host})
      for (const Space optimizer : {Space::device, Space::host, Space::nvme})
        for (const Space parameters : {Space::device, Space::host, Space::nvme})
          for (const bool early : {false, true}) {
            spec.offload = {activations, optimizer, parameters, early ? 2 : 1};
            spec.states.overlap_gradients = early;
            expect_sound(name, spec);
          }
  EXPECT_GT(sound, 1000);
}

TEST(Offload, AScheduleThatReachesIntoAnotherMemoryIsRefused) {
  const Schedule sound = lower(samples::make(leaving()));
  const auto codes = [](const Schedule& schedule) {
    std::string text;
    for (const base::Diagnostic& d : check(schedule)) text += d.code + " ";
    return text;
  };
  Schedule wrong = sound;
  for (Buffer& b : wrong.classes.front().buffers)
    if (b.space == Space::host) b.space = Space::nvme;
  EXPECT_THAT(codes(wrong), HasSubstr("S20"));
  wrong = sound;
  for (Block& b : wrong.classes.front().blocks)
    for (Step& step : b.steps)
      if (step.kind == StepKind::copy) --step.target.elements;
  EXPECT_THAT(codes(wrong), HasSubstr("S04"));
  wrong = sound;
  for (Block& b : wrong.classes.front().blocks)
    for (Step& step : b.steps)
      if (step.kind == StepKind::compute && !step.reads.empty()) step.on_host = true;
  EXPECT_THAT(codes(wrong), HasSubstr("S20"));
}

TEST(Offload, PlansThatCannotLeaveSaySo) {
  const auto code = [](const PlanSpec& spec) {
    const auto made = samples::try_make(spec);
    return made ? std::string() : made.error().front().code;
  };
  PlanSpec spec;
  spec.shape.batch = 8;
  spec.offload.activations = Space::nvme;
  EXPECT_EQ(code(spec), "P51");
  spec.offload = {};
  spec.offload.optimizer = Space::host;
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::zb_h1;
  EXPECT_EQ(code(spec), "P52");
  spec = {};
  spec.shape.batch = 8;
  spec.mesh.data = 2;
  spec.states.zero_stage = 1;
  spec.offload.parameters = Space::host;
  EXPECT_EQ(code(spec), "P53");
}

// An all-to-all of a mixture also reads how many rows each rank has: values that leave and come back with the rest, and
// that no encoding may round.
TEST(Offload, CountsOfMessagesFollowTheirBuffersAndAreNeverEncoded) {
  models::Model mixture = samples::tiny_gpt();
  mixture.experts = {.count = 4, .chosen = 2, .hidden = 32};
  int made = 0;
  for (const bool encoded : {false, true})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const bool flash : {false, true}) {
        PlanSpec spec;
        spec.shape.batch = 8;
        spec.mesh.data = 2;
        spec.mesh.expert = 2;
        spec.recomputation.what = recompute;
        spec.numerics.flash = flash;
        if (encoded)
          spec.compression.activations = ActivationEncoding::fp8;
        else
          spec.offload.activations = Space::host;
        const auto plan = samples::try_make(spec, mixture);
        if (!plan) continue;
        ++made;
        const Schedule schedule = lower(*plan);
        EXPECT_EQ(base::render(check(schedule), false), "") << describe(spec);
        for (const Block& block : schedule.classes[0].blocks)
          for (const Step& step : block.steps)
            for (const models::Op& op : step.ops)
              EXPECT_FALSE(op.kind == models::OpKind::encode && op.dtype == models::DType::int32) << describe(spec);
      }
  EXPECT_GE(made, 8);
}

}  // namespace offload_test
}  // namespace orrery::plan
