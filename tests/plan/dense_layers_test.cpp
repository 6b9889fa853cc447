// Products of recommendation models: which values they read and write, in 32 and in 16 bits.
#include "plan/lower/dense_layers.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace orrery::plan {
namespace dense_layers_test {

using models::DType;
using models::OpKind;

/// An MLP of widths 3, 4, 1 in a bucket of its own, for 16 samples.
struct Bottom {
  explicit Bottom(DType precision) {
    spec.numerics.precision = precision;
    layout.samples = 16;
    Bucket bucket{.name = "bottom", .elements = 32};
    std::int64_t offset = 0;
    for (const auto& [name, elements] :
         {std::pair{"bot_l.0.weight", 12}, {"bot_l.0.bias", 4}, {"bot_l.2.weight", 4}, {"bot_l.2.bias", 1}}) {
      ParameterRange range;
      range.name = name;
      range.offset = offset;
      range.elements = elements;
      bucket.ranges.push_back(range);
      offset += elements;
    }
    bucket.parameters = build.buffer("parameters", Purpose::parameters, DType::fp32, 32, true);
    bucket.gradients = build.buffer("gradients", Purpose::gradients, DType::fp32, 32, true);
    build.result().buckets.push_back(bucket);
    dense.know(BucketId(0));
    x = build.buffer("x", Purpose::input, DType::fp32, 48);
  }
  [[nodiscard]] std::int64_t count(OpKind kind) const {
    return std::count_if(ops.begin(), ops.end(), [&](const models::Op& op) { return op.kind == kind; });
  }

  PlanSpec spec;
  models::Recommender model;
  TableLayout layout;
  ClassBuilder build;
  RecommenderStep step{spec, model, layout, {}, {}};
  DenseLayers dense{build, step};
  DenseLayers::Mlp mlp{.prefix = "bot_l.", .widths = {3, 4, 1}};
  DenseLayers::Ops ops;
  BufferId x;
};

TEST(DenseLayers, AnMlpHasAProductAndAReluForEachLayer) {
  Bottom b(DType::fp32);
  EXPECT_EQ(b.dense.forward(b.mlp, b.x, b.ops).size(), 2U);
  EXPECT_EQ(b.count(OpKind::matmul), 2);
  EXPECT_EQ(b.count(OpKind::relu), 2);
}

TEST(DenseLayers, TheLastLayerMayBeLinear) {
  Bottom b(DType::fp32);
  b.mlp.last_is_linear = true;
  (void)b.dense.forward(b.mlp, b.x, b.ops);
  EXPECT_EQ(b.count(OpKind::relu), 1);
}

TEST(DenseLayers, In32BitsProductsReadParametersAndAddToGradientsThemselves) {
  Bottom b(DType::fp32);
  const auto outputs = b.dense.forward(b.mlp, b.x, b.ops);
  b.dense.backward(b.mlp, b.x, outputs, b.dense.value("dy", 16), false, b.ops);
  EXPECT_EQ(b.count(OpKind::convert), 0);
}

TEST(DenseLayers, In16BitsForwardAndBackwardShareOneCopyOfAWeightAndGradientsAreWidened) {
  Bottom b(DType::bf16);
  const auto outputs = b.dense.forward(b.mlp, b.x, b.ops);
  EXPECT_EQ(b.count(OpKind::convert), 2);  // a copy of each weight
  b.dense.backward(b.mlp, b.x, outputs, b.dense.value("dy", 16), true, b.ops);
  EXPECT_EQ(b.count(OpKind::convert), 4);  // and a gradient of each
}

TEST(DenseLayers, TheGradientOfAnInputThatNobodyWantsIsLeftOut) {
  Bottom wanted(DType::fp32), not_wanted(DType::fp32);
  for (Bottom* b : {&wanted, &not_wanted}) {
    const auto outputs = b->dense.forward(b->mlp, b->x, b->ops);
    const BufferId dx = b->dense.backward(b->mlp, b->x, outputs, b->dense.value("dy", 16), b == &wanted, b->ops);
    EXPECT_EQ(dx.exists(), b == &wanted);
  }
  EXPECT_EQ(wanted.count(OpKind::matmul), not_wanted.count(OpKind::matmul) + 1);
}

}  // namespace dense_layers_test
}  // namespace orrery::plan
