// Lowered schedules: what runs, in which order, and what lives how long.
#include "plan/lower.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/check.h"
#include "plan/orders.h"
#include "plan/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace {

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

TEST(Lowering, EverySplitYieldsASoundSchedule) {
  for (const auto& [name, spec] : samples::splits())
    for (bool flash : {false, true})
      for (bool whole : {false, true}) {
        PlanSpec s = spec;
        s.flash = flash;
        EXPECT_EQ(findings(lower(samples::make(s), {.recompute_whole_layer = whole})), "") << name;
      }
}

TEST(Lowering, UnevenStagesAreSound) {
  PlanSpec spec;
  spec.pipeline = 3;
  spec.layers_per_stage = {2, 1, 1};
  EXPECT_EQ(findings(lower(samples::make(spec))), "");
}

TEST(Lowering, ATensorParallelBlockIsComputeAllReduceComputeAllReduceCompute) {
  PlanSpec spec;
  spec.tensor = 2;
  const Schedule schedule = lower(samples::make(spec));
  std::string seen;
  for (const Step& step : schedule.classes[0].blocks[1].steps)
    if (step.layer == 0) seen += step.kind == StepKind::compute ? "c" : "a";
  EXPECT_EQ(seen, "cacac");
}

TEST(Lowering, WithoutTensorParallelismABlockIsOneSegment) {
  const Schedule schedule = lower(samples::make({}));
  int steps = 0;
  for (const Step& step : schedule.classes[0].blocks[1].steps) steps += step.layer == 0;
  EXPECT_EQ(steps, 1);
}

TEST(Lowering, RecomputationKeepsOnlyTheInputsOfBlocks) {
  PlanSpec spec;
  spec.recompute = Recompute::full;
  const Schedule schedule = lower(samples::make(spec));
  std::int64_t kept_by_blocks = 0;
  for (const Buffer& b : schedule.classes[0].buffers)
    if (b.per_micro_batch && b.name.rfind("h.", 0) == 0) kept_by_blocks += b.elements;
  // Blocks 0 to 2 leave their output, the input of the next; block 3's is the head's input. 16 x 32 elements each.
  EXPECT_EQ(kept_by_blocks, 4 * 16 * 32);
}

TEST(Lowering, ZeroThreeHoldsOnlyShardsBetweenUses) {
  PlanSpec spec;
  spec.data = 2;
  spec.zero_stage = 3;
  const Schedule schedule = lower(samples::make(spec));
  const RankClass& c = schedule.classes[0];
  std::int64_t elements = 0, kept = 0;
  for (const Bucket& b : c.buckets) elements += b.elements;
  for (const Buffer& b : c.buffers)
    if (b.persistent && b.purpose == Purpose::parameters) kept += b.elements;
  EXPECT_EQ(kept * 2, elements);
}

TEST(Lowering, EveryModelKindLowers) {
  models::Model llama = samples::tiny_gpt();
  llama.family = models::Family::llama;
  llama.normalisation = models::Normalisation::rms_norm;
  llama.activation = models::Activation::swiglu;
  llama.positions = models::Positions::rope;
  llama.bias = false;
  llama.tied_embeddings = false;
  llama.kv_heads = 2;
  models::Model bert = samples::tiny_gpt();
  bert.pre_norm = false;
  bert.causal = false;
  for (const models::Model& model : {llama, bert})
    for (const auto& [name, spec] : samples::splits())
      EXPECT_EQ(findings(lower(samples::make(spec, model))), "") << name;
}

TEST(Check, FindsAReceiveThatNobodySends) {
  PlanSpec spec;
  spec.pipeline = 2;
  Schedule schedule = lower(samples::make(spec));
  auto& steps = schedule.classes[0].blocks[1].steps;
  ASSERT_EQ(steps.back().kind, StepKind::send);
  const std::vector<int> deaths = steps.back().deaths;
  steps.pop_back();
  for (int b : deaths) steps.back().deaths.push_back(b);
  EXPECT_NE(findings(schedule), "");
}

TEST(Check, FindsADeadlockWhenStagesRunOppositeOrders) {
  PlanSpec spec;
  spec.pipeline = 2;
  spec.order = Order::gpipe;
  Schedule schedule = lower(samples::make(spec));
  // Stage 0 asks for the gradient of micro-batch 0 before it has run the forward of micro-batch 1, while stage 1 is
  // GPipe.
  auto& program = schedule.classes[0].program;
  std::swap(program[program.size() - 2], program[1]);
  EXPECT_NE(findings(schedule), "");
}

TEST(Check, FindsAMissingReadAndAnEarlyDeath) {
  Schedule schedule = lower(samples::make({}));
  schedule.classes[0].blocks[1].steps[1].reads.pop_back();
  EXPECT_NE(findings(schedule).find("S02"), std::string::npos);
  schedule = lower(samples::make({}));
  for (Step& step : schedule.classes[0].blocks[1].steps)
    if (!step.births.empty()) {
      step.deaths.push_back(step.births.front());
      break;
    }
  EXPECT_NE(findings(schedule), "");
}

TEST(Place, LiveBuffersNeverOverlapAndStayInTheArena) {
  for (const auto& [name, spec] : samples::splits()) {
    const Schedule schedule = lower(samples::make(spec));
    for (const RankClass& c : schedule.classes) {
      const Placement placement = place(c);
      EXPECT_LE(placement.peak_live_bytes, placement.arena_bytes) << name;
      std::int64_t sum = 0;
      for (std::int64_t bytes : placement.by_purpose) sum += bytes;
      EXPECT_EQ(sum, placement.peak_live_bytes) << name;
      std::map<std::pair<int, int>, std::pair<std::int64_t, std::int64_t>> alive;  // (buffer, micro-batch) -> range
      for (std::size_t i = 0; i < c.buffers.size(); ++i)
        if (c.buffers[i].persistent) alive[{static_cast<int>(i), -1}] = {placement.persistent[i], c.buffers[i].bytes()};
      std::size_t birth = 0;
      std::int64_t most = 0;
      for (std::size_t e = 0; e < c.program.size(); ++e) {
        const auto& steps = c.blocks[static_cast<std::size_t>(c.program[e].block)].steps;
        for (const Step& step : steps) {
          for (int b : step.births) {
            const Placed& p = placement.births[birth++];
            ASSERT_EQ(p.buffer, b);
            for (const auto& [key, range] : alive)
              ASSERT_FALSE(p.offset < range.first + range.second && range.first < p.offset + p.bytes)
                  << name << ": " << c.buffers[static_cast<std::size_t>(b)].name << " over "
                  << c.buffers[static_cast<std::size_t>(key.first)].name;
            ASSERT_LE(p.offset + p.bytes, placement.arena_bytes);
            alive[{b, c.program[e].micro_batch}] = {p.offset, p.bytes};
          }
          std::int64_t live = 0;
          for (const auto& [key, range] : alive) live += (range.second + kAlignment - 1) / kAlignment * kAlignment;
          most = std::max(most, live);
          for (int b : step.deaths) alive.erase({b, c.program[e].micro_batch});
        }
      }
      EXPECT_EQ(birth, placement.births.size());
      EXPECT_EQ(most, placement.peak_live_bytes) << name;
    }
  }
}

TEST(Place, GPipeHoldsAllMicroBatchesAndOneFOneBOnlyThePipelineDepth) {
  PlanSpec spec;
  spec.pipeline = 2;
  spec.batch = 8;
  spec.order = Order::gpipe;
  const std::int64_t gpipe = place(lower(samples::make(spec)).classes[0]).arena_bytes;
  spec.order = Order::one_f_one_b;
  const std::int64_t flush = place(lower(samples::make(spec)).classes[0]).arena_bytes;
  EXPECT_GT(gpipe, flush);
  EXPECT_EQ(in_flight(Order::gpipe, 0, 2, 8), 8);
  EXPECT_EQ(in_flight(Order::one_f_one_b, 0, 2, 8), 2);
}

TEST(Orders, OneFOneBMatchesTheFigureForFourStages) {
  // Stage 2 of 4 with 4 micro-batches: F0, F1 B0, F2 B1, F3 B2, B3.
  std::string text;
  for (const Turn& t : turns(Order::one_f_one_b, 2, 4, 4))
    text += (t.forward ? "F" : "B") + std::to_string(t.micro_batch) + " ";
  EXPECT_EQ(text, "F0 F1 B0 F2 B1 F3 B2 B3 ");
}

TEST(Groups, AreStrides) {
  const Group data{"data", {{2, 3}}, 0};
  EXPECT_EQ(data.members(3), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(data.members(8), (std::vector<int>{6, 8, 10}));
  const Group embedding{"embedding", {{6, 2}}, 2};
  EXPECT_EQ(embedding.members(1), (std::vector<int>{1, 7}));
  EXPECT_EQ(embedding.members(7), (std::vector<int>{1, 7}));
  EXPECT_TRUE(embedding.members(3).empty());
}

TEST(MakePlan, NamesEveryBrokenRule) {
  PlanSpec spec;
  spec.tensor = 3;
  spec.data = 2;
  spec.micro_batch = 3;
  spec.batch = 8;
  spec.sequence = 32;
  auto made = make_plan(std::make_shared<models::Model>(samples::tiny_gpt()),
                        std::make_shared<clusters::Cluster>(samples::cpu_cluster(4)), spec);
  ASSERT_FALSE(made.has_value());
  std::set<std::string> codes;
  for (const base::Diagnostic& d : made.error()) codes.insert(d.code);
  EXPECT_EQ(codes, (std::set<std::string>{"P02", "P03", "P04", "P05", "P09", "P10"}));
}

}  // namespace
}  // namespace orrery::plan
