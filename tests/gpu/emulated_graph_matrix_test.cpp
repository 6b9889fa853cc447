// What a training step's graphs are, by model and technique: each trained by graphs and without, to the same bits, and
// the pieces counted that a step is made of. docs/gpu-status.md has the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/exec/families.h"
#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_graph_matrix_test {

using models::DType;
using plan::Order;
using plan::PlanSpec;
using plan::Recompute;
using plan::Space;
using testing::Outcome;
using testing::Trial;

struct Technique {
  const char* name;
  const char* families;  ///< g: GPT, l: Llama, b: BERT, e: an encoder under the head of GPT
  void (*set)(PlanSpec&);
  std::int64_t graphs, steps_beside;  ///< of a training step, the most of any rank
};

void pipeline(PlanSpec& s, Order order, int chunks = 1) {
  s.mesh.pipeline = 2, s.stages.virtual_stages = chunks, s.stages.order = order;
}

const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all = {
      {"serial", "glbe", [](PlanSpec&) {}, 1, 0},
      {"bf16", "gb", [](PlanSpec& s) { s.numerics.precision = DType::bf16; }, 1, 0},
      {"fp16", "b", [](PlanSpec& s) { s.numerics.precision = DType::fp16; }, 1, 0},
      {"recompute", "gb", [](PlanSpec& s) { s.recomputation.what = Recompute::full; }, 1, 0},
      {"loss_in_chunks", "b", [](PlanSpec& s) { s.numerics.loss_chunks = 2; }, 1, 0},
      {"data", "glbe", [](PlanSpec& s) { s.mesh.data = 2; }, 1, 0},
      {"data_overlapped", "gb", [](PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }, 1, 0},
      {"zero_1", "glb", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }, 1, 0},
      {"zero_2", "gb", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }, 1, 0},
      {"zero_3", "glbe", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }, 1, 0},
      {"zero_1_in_groups", "g", [](PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 1, s.states.zero_group = 2; },
       1, 0},
      {"tensor", "glbe", [](PlanSpec& s) { s.mesh.tensor = 2; }, 1, 0},
      {"sequence", "lb", [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }, 1, 0},
      {"context", "gle", [](PlanSpec& s) { s.mesh.context = 2; }, 1, 0},
      {"gpipe", "gb", [](PlanSpec& s) { pipeline(s, Order::gpipe); }, 1, 0},
      {"1f1b", "glbe", [](PlanSpec& s) { pipeline(s, Order::one_f_one_b); }, 1, 0},
      {"interleaved", "g", [](PlanSpec& s) { pipeline(s, Order::one_f_one_b, 2); }, 1, 0},
      {"zb_h1", "gb", [](PlanSpec& s) { pipeline(s, Order::zb_h1); }, 1, 0},
      {"zb_v", "g", [](PlanSpec& s) { pipeline(s, Order::zb_v, 2); }, 1, 0},
      {"dualpipe", "g", [](PlanSpec& s) { pipeline(s, Order::dualpipe, 2); }, 1, 0},
      {"dualpipe_beside", "g", [](PlanSpec& s) { pipeline(s, Order::dualpipe, 2), s.mesh.tensor = 2; }, 1, 0},
      {"data_tensor_pipeline", "gb",
       [](PlanSpec& s) { pipeline(s, Order::one_f_one_b), s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 1; },
       1, 0},
      {"activations_on_the_host", "gb", [](PlanSpec& s) { s.offload.activations = Space::host; }, 1, 0},
      {"parameters_on_the_host", "g", [](PlanSpec& s) { s.offload.parameters = Space::host; }, 1, 0},
      // Four micro-batches, two blocks and the embedding: sums on the host stand between their passes.
      {"optimizer_on_the_host", "gb", [](PlanSpec& s) { s.offload.optimizer = Space::host; }, 17, 57},
      {"optimizer_on_nvme", "g", [](PlanSpec& s) { s.offload.optimizer = Space::nvme; }, 17, 87},
      {"gradients_in_bf16", "gb",
       [](PlanSpec& s) { s.mesh.data = 2, s.compression.gradients = plan::GradientCompression::bf16; }, 1, 0},
      {"powersgd", "g",
       [](PlanSpec& s) {
         s.mesh.data = 2, s.compression.gradients = plan::GradientCompression::powersgd;
         s.compression.rank = 2, s.compression.minimum_rate = 1.5;
       },
       1, 0},
      {"gist_8_bits", "g", [](PlanSpec& s) { s.compression.activations = plan::ActivationEncoding::fp8; }, 1, 0},
  };
  return all;
}

Trial trial_of(char family, const PlanSpec& spec) {
  Trial trial = family == 'b' ? testing::golden_bert() : testing::golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  trial.training.initial_weights.clear();
  if (spec.stages.virtual_stages > 1) m.layers = 4;
  if (family == 'l') testing::make_llama(m);
  if (family == 'e') testing::make_encoder(m);
  trial.steps = 3;
  trial.gradients_at = {};
  trial.check = Arena::Check::overlaps;
  trial.sample_every = 100;
  return trial;
}

class GraphMatrix : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GraphMatrix, StepsAreOfTheGraphsThatTheTableHasAndTrainToTheSameBits) {
  const Technique& one = techniques()[GetParam()];
  for (const char family : std::string(one.families)) {
    SCOPED_TRACE(family);
    PlanSpec spec = trial_of(family, {}).spec;
    one.set(spec);
    Trial trial = trial_of(family, spec);
    trial.spec = spec;
    const Outcome with = on_devices(trial);
    std::int64_t graphs = 0, beside = 0;
    for (const Executor::GraphCounts& counts : with.graphs) {
      EXPECT_EQ(counts.failed, 0) << counts.reason;
      EXPECT_EQ(counts.reason, "");
      EXPECT_EQ(counts.replayed, (trial.steps - 1) * counts.captured) << "the first step is traced";
      graphs = std::max(graphs, counts.captured);
      beside = std::max(beside, counts.plain_steps / (trial.steps - 1));
    }
    std::printf("[ graphs   ] %-26s %c  %2lld graphs, %2lld steps beside\n", one.name, family,
                static_cast<long long>(graphs), static_cast<long long>(beside));
    EXPECT_EQ(graphs, one.graphs);
    EXPECT_EQ(beside, one.steps_beside);
    trial.graphs = false;
    const OrderOfStreams other(kOthersFirst);
    expect_same_bits(on_devices(trial), with);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, GraphMatrix, ::testing::Range(std::size_t{0}, techniques().size()),
                         [](const auto& tested) { return std::string(techniques()[tested.param].name); });

}  // namespace emulated_graph_matrix_test
}  // namespace orrery::exec::gpu_test
