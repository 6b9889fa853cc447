// What of a split plan is in its serial program, and which plans have none.
#include "plan/lower/serial.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace serial_test {

SerialProgram program_of(const PlanSpec& spec, models::Model model = samples::tiny_gpt()) {
  auto made = serial_program(samples::make(spec, std::move(model)), samples::cpu_cluster(1));
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  return std::move(*made);
}

// Of one rank, without a message, and sound.
void expect_serial(const SerialProgram& program) {
  EXPECT_EQ(base::render(check(program.schedule), false), "");
  EXPECT_EQ(program.plan.spec().mesh.ranks(), 1);
  ASSERT_EQ(program.schedule.classes.size(), 1U);
  for (const Block& block : program.schedule.classes.front().blocks)
    for (const Step& step : block.steps) EXPECT_EQ(step.kind, StepKind::compute) << block.name << " " << step.part;
}

PlanSpec asynchronous(Order order) {
  PlanSpec spec;
  spec.stages.order = order;
  spec.mesh.pipeline = 4;
  spec.shape.micro_batch = order == Order::pipedream_2bw ? 2 : 8;
  return spec;
}

TEST(SerialProgram, OfASplitThatLeavesTheMathematicsIsAPlainStep) {
  for (const auto& [name, spec] : samples::splits()) {
    SCOPED_TRACE(name);
    const SerialProgram program = program_of(spec);
    expect_serial(program);
    EXPECT_FALSE(program.own);
    EXPECT_EQ(program.plan.spec().shape.micro_batch, spec.shape.micro_batch);
  }
}

TEST(SerialProgram, OfAnAsynchronousPipelineKeepsWeightsAsLongAsItsStages) {
  const auto versions = [](Order order, bool tied) {
    models::Model model = samples::tiny_gpt();
    model.tied_embeddings = tied;
    const SerialProgram program = program_of(asynchronous(order), model);
    expect_serial(program);
    EXPECT_TRUE(program.own);
    const RankClass& c = program.schedule.classes.front();
    std::map<std::string, int> out;
    for (const Bucket& b : c.buckets) out[b.name] = !b.stashed ? 0 : c.buffers[b.stashed].versions;
    return out;
  };
  using Versions = std::map<std::string, int>;
  EXPECT_EQ(versions(Order::pipedream, true),
            (Versions{{"wte", 3}, {"embedding", 3}, {"h.0", 3}, {"h.1", 2}, {"h.2", 1}, {"h.3", 0}, {"head", 0}}));
  EXPECT_EQ(versions(Order::pipedream_vertical, true),
            (Versions{{"wte", 3}, {"embedding", 3}, {"h.0", 3}, {"h.1", 3}, {"h.2", 3}, {"h.3", 3}, {"head", 3}}));
  for (const auto& [name, count] : versions(Order::pipedream_2bw, false)) EXPECT_EQ(count, 1) << name;
}

// A tied table of PipeDream: as input it is as old as the first stage's weights, as head it is the newest.
TEST(SerialProgram, ATiedTableIsReadInTwoAges) {
  const SerialProgram program = program_of(asynchronous(Order::pipedream));
  const RankClass& c = program.schedule.classes.front();
  const auto table = std::find_if(c.buckets.begin(), c.buckets.end(), [](const Bucket& b) { return b.name == "wte"; });
  ASSERT_NE(table, c.buckets.end());
  for (const Block& block : c.blocks) {
    if (block.name != "forward") continue;
    for (const Step& step : block.steps) {
      const auto reads = [&](BufferId buffer) {
        return std::find(step.reads.begin(), step.reads.end(), buffer) != step.reads.end();
      };
      if (step.part != "embedding" && step.part != "head") continue;
      const bool old = step.part == "embedding";
      EXPECT_TRUE(reads(old ? table->stashed : table->parameters)) << step.part;
      EXPECT_FALSE(reads(old ? table->parameters : table->stashed)) << step.part;
    }
  }
}

TEST(SerialProgram, OfReplicasThatCompressTakesTurns) {
  for (const GradientCompression how :
       {GradientCompression::bf16, GradientCompression::fp16, GradientCompression::powersgd})
    for (const int zero : {0, 1, 2, 3})
      for (const int pipeline : {1, 2}) {
        PlanSpec spec;
        spec.mesh.data = 2;
        spec.mesh.pipeline = pipeline;
        spec.states.zero_stage = zero;
        spec.compression.gradients = how;
        spec.compression.minimum_rate = 1.5;
        spec.compression.rank = 2;
        if (how == GradientCompression::powersgd && zero > 1) continue;
        SCOPED_TRACE(describe(spec));
        const SerialProgram program = program_of(spec);
        expect_serial(program);
        const RankClass& c = program.schedule.classes.front();
        const auto times = [&](const std::string& name) {
          return std::count_if(c.program.begin(), c.program.end(), [&](const Entry& entry) {
            return c.blocks[static_cast<std::size_t>(entry.block)].name == name;
          });
        };
        const std::int64_t rounds = zero >= 2 ? 4 : 1;  // 8 sequences, one a micro-batch and replica
        EXPECT_EQ(times("sum"), rounds);
        EXPECT_EQ(times("turn"), 2 * rounds);
        EXPECT_EQ(times("take.1"), rounds);
        EXPECT_EQ(times("forward"), 8);
        const bool apart = std::any_of(c.buffers.begin(), c.buffers.end(),
                                       [](const Buffer& b) { return b.name == "wte.own_of_head"; });
        EXPECT_EQ(apart, pipeline == 2 || zero >= 2) << "a tied table's gradients that travel apart are kept apart";
      }
}

TEST(SerialProgram, OfAParameterServerUpdatesOnceForEachWorker) {
  for (const int staleness : {0, 2}) {
    PlanSpec spec;
    spec.mesh.data = 4;
    spec.states.staleness = staleness;
    const SerialProgram program = program_of(spec);
    expect_serial(program);
    const RankClass& c = program.schedule.classes.front();
    for (const Bucket& b : c.buckets) EXPECT_EQ(!b.stashed ? 0 : c.buffers[b.stashed].versions, staleness);
    for (const Block& block : c.blocks)
      for (const Step& step : block.steps)
        if (std::any_of(step.ops.begin(), step.ops.end(),
                        [](const models::Op& op) { return models::updates_parameters(op.kind); })) {
          ASSERT_EQ(step.ops.size(), 4U);
          for (int w = 0; w < 4; ++w) EXPECT_EQ(step.ops[static_cast<std::size_t>(w)].turn, w);
        }
  }
}

TEST(SerialProgram, ThereIsNoneOfWhatOnlyASplitComputes) {
  PlanSpec spec;
  spec.mesh.data = spec.mesh.tensor = 2;
  spec.compression.gradients = GradientCompression::powersgd;
  const auto parts = serial_program(samples::make(spec), samples::cpu_cluster(1));
  ASSERT_FALSE(parts.has_value());
  EXPECT_EQ(parts.error().front().code, "P94");
  spec.compression.gradients = GradientCompression::bf16;
  EXPECT_TRUE(serial_program(samples::make(spec), samples::cpu_cluster(1)).has_value())
      << "a value is rounded by itself";
  spec.mesh.tensor = 1;
  spec.mesh.context = 2;
  const auto pieces = serial_program(samples::make(spec), samples::cpu_cluster(1));
  ASSERT_FALSE(pieces.has_value());
  EXPECT_EQ(pieces.error().front().code, "P94");
}

// A rank's experts work for all ranks among which a layer's experts are divided: their gradients are one sender's.
TEST(SerialProgram, OfCompressedExpertsTakesTheGradientsOfAllThatSharedThem) {
  models::Model model = samples::tiny_gpt();
  model.experts = {.count = 4, .chosen = 2, .hidden = 16};
  PlanSpec spec;
  spec.shape.batch = 8, spec.shape.sequence = 16, spec.shape.micro_batch = 2;
  spec.mesh.data = 4, spec.mesh.expert = 2;
  spec.compression.gradients = GradientCompression::bf16;
  const auto made = serial_program(samples::make(spec, model), samples::cpu_cluster(1));
  ASSERT_TRUE(made.has_value());
  const RankClass& c = made->schedule.classes.front();
  const auto times = [&](std::string_view name) {
    return std::count_if(c.program.begin(), c.program.end(), [&](const Entry& entry) {
      return c.blocks[static_cast<std::size_t>(entry.block)].name == name;
    });
  };
  EXPECT_EQ(times("turn"), 4);
  EXPECT_EQ(times("turn.experts"), 2);
  EXPECT_EQ(times("take.3"), 1);
  EXPECT_EQ(times("take.experts.1"), 1);
  EXPECT_EQ(times("take.experts.2"), 0);
  spec.mesh.expert = 4;
  const auto alone = serial_program(samples::make(spec, model), samples::cpu_cluster(1));
  ASSERT_TRUE(alone.has_value());
  for (const Block& block : alone->schedule.classes.front().blocks)
    EXPECT_EQ(block.name.find("experts"), std::string::npos) << "no other rank has them";
  model.experts.aux_coefficient = 0.01;
  spec.stages.order = Order::gpipe;
  const auto balanced = serial_program(samples::make(spec, model), samples::cpu_cluster(1));
  ASSERT_FALSE(balanced.has_value());
  EXPECT_EQ(balanced.error().front().code, "P94");
  model.experts.aux_coefficient = 0;
  PlanSpec halves;
  halves.mesh.data = halves.mesh.expert_tensor = 2;
  halves.compression.gradients = GradientCompression::powersgd;
  const auto approximated = serial_program(samples::make(halves, model), samples::cpu_cluster(1));
  ASSERT_FALSE(approximated.has_value()) << "each rank has a half of an expert's matrices";
  EXPECT_EQ(approximated.error().front().code, "P94");
}

TEST(SerialProgram, OfProductsInEightBitsIsOfWholeMatricesAlone) {
  PlanSpec spec;
  spec.numerics.precision = models::DType::fp8;
  spec.mesh.data = 2, spec.states.zero_stage = 3;
  EXPECT_TRUE(serial_program(samples::make(spec), samples::cpu_cluster(1)).has_value());
  for (int Mesh::*cut : {&Mesh::tensor, &Mesh::context}) {
    PlanSpec one;
    one.numerics.precision = models::DType::fp8;
    one.mesh.*cut = 2;
    const auto refused = serial_program(samples::make(one), samples::cpu_cluster(1));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().front().code, "P94");
  }
}

}  // namespace serial_test
}  // namespace orrery::plan
