// What the mean rank has of tokens and of tables' lookups, by hand.
#include "cost/prices/mean_share.h"

#include <gtest/gtest.h>

#include "models/read/read.h"
#include "tests/plan/samples.h"

namespace orrery::cost {
namespace mean_share_test {

plan::Plan tables_on(const std::vector<std::string>& places) {
  auto model = models::parse_model(
      "family: dlrm\nname: small\ndense_features: 3\nembedding_dim: 8\ntables:\n"
      "  - {rows: 1000, multi_hot: 3}\n  - {rows: 1000}\nbottom_mlp: [16, 8]\ntop_mlp: [16, 1]\n",
      "small.yaml");
  ENSURE(model.has_value(), "{}", base::render(model.error(), false));
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.shape.batch = 64, spec.shape.micro_batch = 32;
  spec.states.optimizer = plan::OptimizerKind::rowwise_adagrad;
  std::vector<plan::TablePlacement::Cell> cells;
  for (const std::string& place : places) cells.push_back({place, {"job.yaml", 1, 1, 1}});
  auto placement = plan::TablePlacement::parse_rows(cells);
  ENSURE(placement.has_value(), "{}", base::render(placement.error(), false));
  spec.embedding.placement = *placement;
  auto made = plan::make_plan(std::make_shared<models::Model>(*model),
                              std::make_shared<clusters::Cluster>(samples::cpu_cluster(2)), spec);
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  return *made;
}

// One rank looks up three rows of a sample, the other one: the mean is two of three.
TEST(MeanShare, OfTablesIsTheMeanOverTheFullest) {
  const MeanShare share = mean_share(tables_on({"whole 0", "whole 1"}));
  EXPECT_DOUBLE_EQ(share.lookups, 2.0 / 3);
  EXPECT_DOUBLE_EQ(share.pooled, 1) << "both pool a vector of a sample";
  EXPECT_DOUBLE_EQ(share.rows, 1);
  models::Op op;
  op.kind = models::OpKind::embedding_bag;
  op.n = 192, op.k = 512;
  EXPECT_EQ(of_mean_rank(op, share).n, 128);
  EXPECT_EQ(of_mean_rank(op, share).k, 512);
  op.kind = models::OpKind::matmul;
  EXPECT_EQ(of_mean_rank(op, share), op) << "every rank has samples alike";
}

TEST(MeanShare, OfTablesSplitByColumnsIsEven) {
  EXPECT_TRUE(mean_share(tables_on({"column 0-1", "column 0-1"})).even());
}

// Of two experts on each of two ranks a token chooses one: the fullest cannot get more than all tokens, twice the mean.
TEST(MeanShare, OfTokensIsNoLessThanWhatARankCanGet) {
  models::Model model = samples::tiny_gpt();
  model.experts.count = 4;
  model.experts.hidden = model.ffn_hidden;
  model.experts.chosen = 1;
  plan::PlanSpec spec;
  spec.mesh.data = spec.mesh.expert = 2;
  for (const auto& [imbalance, share] : {std::pair{1.0, 1.0}, {1.25, 0.8}, {4.0, 0.5}}) {
    spec.tokens.imbalance = spec.tokens.bound = imbalance;
    EXPECT_DOUBLE_EQ(mean_share(samples::make(spec, model)).rows, share);
  }
  models::Op op;
  op.kind = models::OpKind::grouped_matmul;
  op.slots = 2, op.expected = 0.5;
  EXPECT_DOUBLE_EQ(of_mean_rank(op, {.rows = 0.8}).expected, 0.4);
  op.chosen = 1;
  EXPECT_DOUBLE_EQ(of_mean_rank(op, {.rows = 0.8}).expected, 0.5) << "rows on their way into slots";
}

}  // namespace mean_share_test
}  // namespace orrery::cost
