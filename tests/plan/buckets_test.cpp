// Parameters in flat buckets: where they begin, which of them count in the norm, and by what the loss is divided.
#include "plan/lower/buckets.h"

#include <gtest/gtest.h>

#include <map>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace buckets_test {

// Of a tied table each end of a pipeline has a copy; its square belongs to the norm once.
TEST(Buckets, CountEveryParameterOnceInTheNorm) {
  for (const int stages : {1, 2, 4})
    for (const bool tied : {true, false}) {
      PlanSpec spec;
      spec.mesh.pipeline = stages;
      models::Model model = samples::tiny_gpt();
      model.tied_embeddings = tied;
      const Plan plan = samples::make(spec, model);
      std::map<std::string, int> counted;
      for (int stage = 0; stage < stages; ++stage)
        for (const Bucket& bucket : stage_parameters(plan, StageId(stage)).buckets)
          for (const ParameterRange& range : bucket.ranges) counted[range.name] += range.counts_in_norm ? 1 : 0;
      EXPECT_GT(counted.size(), 4U * 8);
      for (const auto& [name, count] : counted) EXPECT_EQ(count, 1) << name << ", " << stages << " stages";
    }
}

// Widths that are no multiple of anything: heads of 3, biases of 6 and 18.
TEST(Buckets, BeginEveryParameterWhereKernelsWantIt) {
  models::Model model = samples::tiny_gpt(2, 6, 7);
  model.heads = model.kv_heads = 2, model.head_dim = 3, model.ffn_hidden = 5;
  PlanSpec spec;
  spec.mesh.data = 2, spec.states.zero_stage = 1;
  const StageParameters parameters = stage_parameters(samples::make(spec, model), kFirstStage);
  std::map<BucketId, std::int64_t> end;  // by bucket
  int begun = 0;
  for (const StageLayer& layer : parameters.layers)
    for (const models::TensorId i : layer.program->tensors.keys()) {
      const models::Tensor& tensor = layer.program->tensors[i];
      if (tensor.role != models::TensorRole::parameter) continue;
      EXPECT_EQ(layer.offset[i] % kParameterAlignment, 0) << tensor.name;
      std::int64_t& before = end[layer.bucket[i]];
      EXPECT_TRUE(tensor.shared || layer.offset[i] >= before) << tensor.name << " lies over another";
      before = layer.offset[i] + tensor.elements();
      ++begun;
    }
  EXPECT_GT(begun, 2 * 8);
  for (const Bucket& bucket : parameters.buckets) EXPECT_EQ(bucket.elements % (2 * kParameterAlignment), 0);
}

// The loss is a mean over the tokens of all replicas and micro-batches, so that the sum of their gradients is its own.
TEST(Lowering, DividesTheLossByAllTokensOfTheStep) {
  for (const int data : {1, 2, 4}) {
    PlanSpec spec;
    spec.mesh.data = data, spec.shape.batch = 8, spec.shape.sequence = 16;
    int losses = 0;
    for (const RankClass& c : lower(samples::make(spec)).classes)
      for (const Block& block : c.blocks)
        for (const Step& step : block.steps)
          for (const models::Op& op : step.ops)
            if (op.kind == models::OpKind::cross_entropy || op.kind == models::OpKind::cross_entropy_grad) {
              EXPECT_DOUBLE_EQ(op.scale, 1.0 / (8 * 16)) << data << " replicas";
              losses += block.variant_of < 0 ? 1 : 0;
            }
    EXPECT_EQ(losses, 2);
  }
}

}  // namespace buckets_test
}  // namespace orrery::plan
