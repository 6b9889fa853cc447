/// What a checkpoint costs: its bytes are those that the executor writes, its times those of the coefficients, and
/// measured checkpoints give the coefficients back.
#include <gtest/gtest.h>

#include <numeric>

#include "cost/fit/observations.h"
#include "cost/run/checkpoint.h"
#include "exec/state/checkpoint_parts.h"
#include "models/layers/counts.h"
#include "plan/lower/lower.h"
#include "plan/spec/table_layout.h"
#include "tests/cost/support.h"
#include "tests/plan/samples.h"

namespace orrery::cost {
namespace checkpoint_price_test {

/// Every split, each with its own optimizer, precision and technique in turn.
std::vector<plan::PlanSpec> many_plans() {
  using models::DType;
  using plan::OptimizerKind;
  std::vector<plan::PlanSpec> out;
  for (const auto& [name, split] : samples::splits())
    for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lamb,
                                          OptimizerKind::adafactor, OptimizerKind::adamw_8bit})
      for (const DType precision : {DType::fp32, DType::bf16, DType::fp16}) {
        out.push_back(split);
        out.back().states.optimizer = optimizer;
        out.back().numerics.precision = precision;
        if (split.mesh.data < 2 || optimizer != OptimizerKind::adamw) continue;
        plan::PlanSpec other = out.back();
        other.mesh.data = 4;
        other.states.zero_group = split.states.zero_stage > 0 ? 2 : 0;
        out.push_back(other);
        other = out.back();
        other.compression.gradients = plan::GradientCompression::powersgd;
        out.push_back(other);
      }
  for (const plan::Order order :
       {plan::Order::pipedream, plan::Order::pipedream_vertical, plan::Order::pipedream_2bw, plan::Order::dualpipe}) {
    out.push_back({});
    out.back().mesh.pipeline = 4;  // so that a stage stashes more than one version
    out.back().mesh.data = 2;
    out.back().shape.batch = out.back().shape.sequence = 16;
    out.back().stages.order = order;
    if (out.back().stages.asynchronous()) out.back().shape.micro_batch = order == plan::Order::pipedream_2bw ? 2 : 8;
    if (order == plan::Order::dualpipe) out.back().stages.virtual_stages = 2;
  }
  return out;
}

TEST(CheckpointBytes, AreThoseOfThePartsThatEachRankWrites) {
  int plans = 0, compressed = 0, stashed = 0, factored = 0;
  for (const plan::PlanSpec& spec : many_plans()) {
    const auto made = samples::try_make(spec);
    if (!made) continue;
    const plan::Schedule schedule = plan::lower(*made);
    const std::vector<double> found = checkpoint_bytes_by_rank(schedule);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(schedule.spec.mesh.ranks()));
    for (int rank = 0; rank < schedule.spec.mesh.ranks(); ++rank) {
      double written = 0;
      for (const exec::OwnedPart& one : exec::owned_parts(schedule, rank)) {
        written += 4 * static_cast<double>(one.part.end - one.part.begin);
        compressed += one.part.state == exec::State::low_rank_q;
        stashed += one.part.state == exec::State::stashed && one.part.version > 0;
        factored += one.part.state == exec::State::factor_rows;
      }
      ASSERT_EQ(found[static_cast<std::size_t>(rank)], written) << plan::describe(spec) << ", rank " << rank;
    }
    ++plans;
  }
  EXPECT_GT(plans, 300);
  EXPECT_GT(compressed, 0);
  EXPECT_GT(stashed, 0);
  EXPECT_GT(factored, 0);
}

models::Model clicks() {
  models::Model model;
  model.name = "clicks";
  model.family = models::Family::dlrm;
  models::Recommender r;
  r.dense_features = 3;
  r.embedding_dim = 8;
  r.tables = {{50, models::Pooling::sum, 1}, {7, models::Pooling::mean, 3}, {200, models::Pooling::sum, 4}};
  r.bottom_mlp = {16, 8};
  r.top_mlp = {16, 1};
  model.layers = 5;
  model.hidden = 8;
  model.heads = model.kv_heads = model.head_dim = model.ffn_hidden = model.vocab = model.max_sequence = 1;
  model.recommender = r;
  return model;
}

/// Three tables wherever they may be, with every optimizer that updates tables, with and without a parameter server.
std::vector<plan::PlanSpec> many_placements() {
  using plan::OptimizerKind;
  std::vector<plan::PlanSpec> out;
  for (const auto& rows : std::vector<std::vector<std::string>>{{"whole 0", "whole 1", "whole 3"},
                                                                {"replicated", "replicated", "row 0-3"},
                                                                {"replicated", "replicated", "replicated"},
                                                                {"row 0-3", "replicated", "column 0-3"},
                                                                {"column 2 1", "whole 0", "grid 2x2 0-3"}})
    for (const char* tiers : {"", "host", "nvme"})
      for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad, OptimizerKind::adam})
        for (const int staleness : {-1, 0, 2}) {
          plan::PlanSpec spec;
          spec.mesh.data = 4;
          spec.shape.batch = 16;
          spec.shape.micro_batch = 4;
          spec.shape.sequence = 1;
          spec.states.optimizer = optimizer;
          if (staleness >= 0) spec.states.staleness = staleness;
          std::vector<plan::TablePlacement::Cell> cells;
          for (const std::string& row : rows) cells.push_back({row, {}});
          spec.embedding.placement = *plan::TablePlacement::parse_rows(cells);
          if (*tiers != 0) spec.embedding.tiers = *plan::TableTiers::parse_rows({{tiers, {}}});
          out.push_back(spec);
        }
  return out;
}

TEST(CheckpointBytes, HaveEmbeddingTablesAndTheirStatesWhereverTheyAre) {
  int plans = 0, served = 0, far = 0;
  for (const plan::PlanSpec& spec : many_placements()) {
    const auto made =
        plan::make_plan(std::make_shared<const models::Model>(clicks()),
                        std::make_shared<const clusters::Cluster>(samples::cpu_cluster(spec.mesh.data)), spec);
    if (!made) continue;
    const plan::Schedule schedule = plan::lower(*made);
    const std::vector<double> found = checkpoint_bytes_by_rank(schedule);
    double tables = 0;
    for (int rank = 0; rank < 4; ++rank) {
      double written = 0;
      for (const exec::OwnedPart& one : exec::owned_parts(schedule, rank)) {
        const double bytes = 4 * static_cast<double>(one.part.end - one.part.begin);
        written += bytes;
        const bool of_table = one.part.tensor.name.find("emb_l.") != std::string::npos;
        if (of_table && one.part.state != exec::State::stashed) tables += bytes;
      }
      ASSERT_EQ(found[static_cast<std::size_t>(rank)], written) << plan::describe(spec) << ", rank " << rank;
    }
    // Worked by hand: 257 rows of 8 values, and a state for each row or two for each value.
    const double rows = 257, states = spec.states.optimizer == plan::OptimizerKind::adam              ? 2 * 8
                                      : spec.states.optimizer == plan::OptimizerKind::rowwise_adagrad ? 1
                                                                                                      : 0;
    EXPECT_EQ(tables, 4 * rows * (8 + states)) << plan::describe(spec);
    ++plans;
    served += spec.states.has_server();
    far += schedule.tables->cached();
  }
  EXPECT_GE(plans, 50);
  EXPECT_GT(served, 10);
  EXPECT_GT(far, 10);
}

TEST(CheckpointBytes, AreTwelveAParameterWithAdamHoweverItIsSplit) {
  double whole = 0;
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const std::vector<double> ranks = checkpoint_bytes_by_rank(plan::lower(plan));
    const double all = std::accumulate(ranks.begin(), ranks.end(), 0.0);
    if (whole == 0) whole = all;
    EXPECT_EQ(all, whole) << name;
  }
  EXPECT_EQ(whole, 12.0 * static_cast<double>(models::parameters(samples::tiny_gpt())));
}

TEST(CheckpointSize, SumsNodes) {
  const CheckpointSize size = checkpoint_size({1, 2, 3, 4, 7, 1}, 2);
  EXPECT_EQ(size.bytes, 18);
  EXPECT_EQ(size.largest_rank, 7);
  EXPECT_EQ(size.largest_node, 8);
}

Pricing priced(const std::vector<Calibration>& calibrations = {}) {
  return Pricing(testing::cpu_cluster(2), testing::cpu_stack(), calibrations);
}

Calibration disk(double copy, double latency, double write, double commit) {
  Calibration c;
  c.set("device.checkpoint.copy_bandwidth", copy, "test");
  c.set("network.storage.write_latency", latency, "test");
  c.set("network.storage.write_bandwidth", write, "test");
  c.set("network.storage.commit_time", commit, "test");
  return c;
}

TEST(CheckpointPrice, IsWorkedByHand) {
  const CheckpointPrice price = checkpoint_price({3e9, 2e9, 3e9}, priced({disk(1e9, 0.5, 0.3e9, 0.125)}));
  EXPECT_DOUBLE_EQ(price.copy, 2);
  EXPECT_DOUBLE_EQ(price.write, 10.5);
  EXPECT_DOUBLE_EQ(price.commit, 0.125);
  EXPECT_DOUBLE_EQ(price.pause(), 2.125);
  EXPECT_DOUBLE_EQ(persist_time(10.5, 4), 12) << "seen at the end of the third step";
  EXPECT_DOUBLE_EQ(persist_time(10.5, 0), 10.5);
  EXPECT_DOUBLE_EQ(persist_time(0, 4), 0);
}

TEST(CheckpointFit, FindsTheDiskThatMeasuredCheckpointsHad) {
  const Calibration truth = disk(2.5e9, 0.04, 0.2e9, 0.03);
  const Pricing measured = priced({truth});
  std::vector<Observation> observations;
  for (const double bytes : {1e5, 1e7, 1e9, 4e9})
    for (double CheckpointPrice::*part : {&CheckpointPrice::copy, &CheckpointPrice::write, &CheckpointPrice::commit}) {
      Observation o;
      o.saving = part;
      o.size = {bytes, 0.6 * bytes, bytes};
      o.seconds = checkpoint_price(o.size, measured).*part;
      o.count = 1;
      o.what = "checkpoint";
      observations.push_back(o);
    }
  FitOptions options;
  options.name = "disk";
  const Fitted fitted = fit_observations(observations, priced(), options, "fit to a test");
  for (const auto& [name, parameter] : truth.parameters) {
    ASSERT_TRUE(fitted.calibration.has(name)) << name;
    EXPECT_NEAR(fitted.calibration.at(name) / parameter.value, 1, 0.1) << name;
  }
  EXPECT_EQ(fitted.calibration.parameters.size(), truth.parameters.size()) << "nothing else is revealed";
}

}  // namespace checkpoint_price_test
}  // namespace orrery::cost
