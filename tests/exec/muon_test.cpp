// Muon: Newton-Schulz on its own and over ranks' pieces, PyTorch's losses, and every split as one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "exec/files/files.h"
#include "plan/lower/lower.h"
#include "plan/outline/whole_matrices.h"
#include "plan/schedule/place.h"
#include "tests/exec/cpu_testing.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace muon_test {

using models::Op;
using models::OpKind;
using plan::OptimizerKind;
using testing::Exact;
using testing::Numbers;
using testing::of;
using testing::Outcome;
using testing::Trial;

const std::string kMuonGolden = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

// -- the operators ----------------------------------------------------------------------------------------------------

Op newton_schulz(std::int64_t rows, std::int64_t columns) {
  Op op;
  op.kind = OpKind::newton_schulz;
  op.m = rows, op.n = columns;
  op.parts.shard = rows * columns;
  return op;
}

Numbers workspace_of(const Op& op) {
  const std::int64_t shorter = std::min(op.m, op.n);
  return Numbers(static_cast<std::size_t>(2 * op.m * op.n + 2 * shorter * shorter));
}

/// In double precision, row-major, as written in the paper.
Exact orthogonalised(const Exact& g, std::size_t rows, std::size_t columns) {
  const bool tall = rows > columns;
  const std::size_t m = std::min(rows, columns), n = std::max(rows, columns);
  Exact x(g.size());
  double norm = 0;
  for (const double v : g) norm += v * v;
  norm = std::sqrt(norm) + 1e-7;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) x[i * n + j] = (tall ? g[j * columns + i] : g[i * columns + j]) / norm;
  for (int step = 0; step < 5; ++step) {
    Exact a(m * m), b(m * m), next(x.size());
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < m; ++j)
        for (std::size_t k = 0; k < n; ++k) a[i * m + j] += x[i * n + k] * x[j * n + k];
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < m; ++j) {
        double square = 0;
        for (std::size_t k = 0; k < m; ++k) square += a[i * m + k] * a[k * m + j];
        b[i * m + j] = -4.7750 * a[i * m + j] + 2.0315 * square;
      }
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 3.4445 * x[i * n + j];
        for (std::size_t k = 0; k < m; ++k) sum += b[i * m + k] * x[k * n + j];
        next[i * n + j] = sum;
      }
    x = next;
  }
  Exact out(g.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) out[i * columns + j] = tall ? x[j * n + i] : x[i * n + j];
  return out;
}

// Of a diagonal matrix each value goes its own way: five times 3.4445 s - 4.7750 s^3 + 2.0315 s^5, from its share of
// the norm on.
TEST(NewtonSchulz, TakesEachSingularValueAlongThePublishedPolynomial) {
  Numbers g = {3, 0, 0, 0, 0, 4, 0, 0}, found(8);
  Exact expected(8);
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}}) {
    double s = static_cast<double>(g[i]) / 5;
    for (int step = 0; step < 5; ++step) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * std::pow(s, 5);
    expected[i] = s;
    EXPECT_GT(s, 0.6);
    EXPECT_LT(s, 1.3);
  }
  testing::on_every_backend([&](Backend& backend) {
    const Op op = newton_schulz(2, 4);
    Numbers workspace = workspace_of(op);
    testing::run(backend, op, {of(g)}, {of(found), of(workspace)});
    EXPECT_LT(testing::error_of(found, expected), 1e-5);
    return std::vector<Numbers>{found};
  });
}

TEST(NewtonSchulz, IsThatOfDoublePrecisionForWideAndTallMatrices) {
  for (const auto& shape : {std::pair(24, 100), std::pair(100, 24), std::pair(40, 40)}) {
    const auto [rows, columns] = shape;
    SCOPED_TRACE(rows);
    Numbers g = testing::random_numbers(rows * columns, "gradient", 0.01);
    const Exact expected =
        orthogonalised(testing::exact(g), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
    testing::on_every_backend([&](Backend& backend) {
      const Op op = newton_schulz(shape.first, shape.second);
      Numbers found(g.size()), workspace = workspace_of(op);
      testing::run(backend, op, {of(g)}, {of(found), of(workspace)});
      EXPECT_LT(testing::error_of(found, expected), 1e-4);
      return std::vector<Numbers>{found};
    });
  }
}

TEST(NewtonSchulz, OfNothingIsNothing) {
  Numbers g(12), found(12, 7.0F);
  const Op op = newton_schulz(3, 4);
  Numbers workspace = workspace_of(op);
  testing::run(*make_cpu_backend(1), op, {of(g)}, {of(found), of(workspace)});
  EXPECT_EQ(found, Numbers(12));
}

/// A matrix cut by rows or columns over two tensor ranks, their parts at element 7 of a bucket in three shards.
TEST(NewtonSchulz, MakesOfPiecesWhatItMakesOfTheWhole) {
  constexpr std::int64_t kRows = 6, kColumns = 8, kOffset = 7, kShards = 3, kShard = 12, kWays = 2;
  Numbers whole = testing::random_numbers(kRows * kColumns, "whole"), expected(whole.size());
  const Op alone = newton_schulz(kRows, kColumns);
  Numbers workspace = workspace_of(alone);
  const auto backend = make_cpu_backend(1);
  testing::run(*backend, alone, {of(whole)}, {of(expected), of(workspace)});
  for (const bool by_rows : {true, false}) {
    Op op = alone;
    op.parts = {kOffset, kShard, kShards, by_rows ? 2 : 1, by_rows ? 1 : 2};
    const std::int64_t rows = by_rows ? kRows / kWays : kRows, columns = by_rows ? kColumns : kColumns / kWays;
    Numbers pieces(kWays * kShards * kShard, 99.0F);
    const auto place = [&](std::int64_t rank, std::int64_t element) {  // in the gathered pieces
      const std::int64_t at = kOffset + element;
      return static_cast<std::size_t>((at / kShard * kWays + rank) * kShard + at % kShard);
    };
    const auto whole_element = [&](std::int64_t rank, std::int64_t element) {
      const std::int64_t row = element / columns + (by_rows ? rank * rows : 0);
      const std::int64_t column = element % columns + (by_rows ? 0 : rank * columns);
      return static_cast<std::size_t>(row * kColumns + column);
    };
    for (std::int64_t rank = 0; rank < kWays; ++rank)
      for (std::int64_t e = 0; e < rows * columns; ++e) pieces[place(rank, e)] = whole[whole_element(rank, e)];
    for (int rank = 0; rank < kWays; ++rank)
      for (int shard = 0; shard < kShards; ++shard) {
        StepContext context;
        context.tensor_rank = rank, context.tensor_ways = kWays, context.shard = shard;
        Numbers own(kShard, 55.0F);
        testing::run(*backend, op, {of(pieces)}, {of(own), of(workspace)}, context);
        for (std::int64_t within = 0; within < kShard; ++within) {
          const std::int64_t element = shard * kShard + within - kOffset;
          const bool of_matrix = element >= 0 && element < rows * columns;
          EXPECT_EQ(own[static_cast<std::size_t>(within)], of_matrix ? expected[whole_element(rank, element)] : 55.0F)
              << "rank " << rank << ", shard " << shard << ", element " << within;
        }
      }
  }
}

// Two steps by hand: b = 0.1 g, then its tenth nearer to g; what is made of it is g moved nine tenths of the way to b.
TEST(MuonMoments, AreNesterovsInTheFormOfALinearInterpolation) {
  std::vector<ElementRange> ranges = {{0, 2, true, 1}, {2, 3, false, 1}};
  ranges[0].orthogonal = 1;
  Numbers momentum = {0, 0, 5}, direction(4, 9.0F), coefficient = {0.5F};
  momentum.push_back(6);
  StepContext context;
  context.momentum = 0.9;
  Op op;
  op.kind = OpKind::muon_moments;
  op.m = 4;
  const auto backend = make_cpu_backend(1);
  for (const float value : {4.0F, -2.0F}) {  // times the coefficient 2 and -1
    Numbers gradient = {value, 2 * value, value, value};
    testing::run(*backend, op, {of(gradient), of(coefficient)}, {of(momentum), of(direction)}, context, ranges);
  }
  EXPECT_NEAR(momentum[0], 0.9 * 0.2 - 0.1, 1e-6);
  EXPECT_NEAR(direction[0], 0.1 * -1 + 0.9 * (0.9 * 0.2 - 0.1), 1e-6);
  EXPECT_NEAR(direction[1], 2 * static_cast<double>(direction[0]), 1e-6);
  EXPECT_EQ(momentum[2], 5) << "AdamW's";
  EXPECT_EQ(direction[2], 0);
  EXPECT_EQ(direction[3], 0) << "padding";
}

// -- training ---------------------------------------------------------------------------------------------------------

nlohmann::json muon_golden() {
  return nlohmann::json::parse(read_file(kMuonGolden + "golden_muon.json", 1 << 20));
}

/// The run of tests/golden/pytorch/generate_muon.py.
Trial muon_trial(const std::string& model = "gpt") {
  const nlohmann::json file = muon_golden();
  const nlohmann::json &muon = file.at("muon"), &adamw = file.at("adamw");
  Trial trial = testing::golden_trial("cosine_clipped");
  plan::Optimizer& o = trial.training.optimizer;
  o = {};
  o.kind = OptimizerKind::muon;
  o.learning_rate = muon.at("learning_rate"), o.momentum = muon.at("momentum");
  o.weight_decay = muon.at("weight_decay");
  o.adamw_learning_rate = adamw.at("learning_rate"), o.adamw_weight_decay = adamw.at("weight_decay");
  o.beta1 = adamw.at("beta1"), o.beta2 = adamw.at("beta2"), o.epsilon = adamw.at("epsilon");
  trial.training.schedule.minimum = file.at("schedule").at("minimum");
  if (model != "llama") return trial;
  testing::make_llama(trial.model);
  trial.training.initial_weights = kMuonGolden + "llama_initial.safetensors";
  return trial;
}

class MuonAgainstPyTorch : public ::testing::TestWithParam<const char*> {};

TEST_P(MuonAgainstPyTorch, HasItsLosses) {
  const nlohmann::json losses = muon_golden().at("losses").at(GetParam());
  const Outcome ours = testing::train(muon_trial(GetParam()));
  ASSERT_EQ(ours.steps.size(), losses.size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    const double loss = losses[i];
    EXPECT_NEAR(ours.steps[i].loss, loss, 1e-5 * loss) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, MuonAgainstPyTorch, ::testing::Values("gpt", "llama"));

TEST(MuonTraining, IsNotThatOfAFusedMatrixOfQueriesKeysAndValues) {
  Trial trial = muon_trial();
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  int matrices = 0;
  for (const plan::Bucket& bucket : schedule.classes.front().buckets)
    for (const plan::ParameterRange& range : bucket.ranges) {
      matrices += range.orthogonal ? 1 : 0;
      if (range.orthogonal) {
        EXPECT_EQ(range.name.rfind("h.", 0), 0U) << range.name;
      }
    }
  EXPECT_EQ(matrices, 2 * 6) << "q, k, v, the projection and two of the MLP";
}

struct MuonSplit {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

void expect_as_serial(const Trial& serial, const MuonSplit& split, double of_loss, double of_weights) {
  SCOPED_TRACE(split.name);
  Trial trial = serial;
  split.set(trial.spec);
  const Outcome one = testing::train(serial), other = testing::train(trial);
  const double loss = testing::loss_distance(other, one);
  const double weights =
      testing::relative_distance(testing::determined(other.weights), testing::determined(one.weights));
  EXPECT_LE(loss, of_loss);
  EXPECT_LE(weights, of_weights);
  EXPECT_LT(one.steps.back().loss, one.steps.front().loss) << "nothing was learnt";
  std::printf("[ errors   ] muon %-32s loss %.1e  weights after step 20 %.1e\n", split.name, loss, weights);
  for (std::size_t rank = 0; rank < other.memory.size(); ++rank)
    EXPECT_EQ(other.memory[rank].peak_live, other.placements[rank].peak_live_bytes) << "rank " << rank;
}

class MuonOfLlama : public ::testing::TestWithParam<MuonSplit> {};

TEST_P(MuonOfLlama, EqualsSerial) {
  expect_as_serial(muon_trial("llama"), GetParam(), 1e-5, 1e-5);
}

using plan::PlanSpec;
INSTANTIATE_TEST_SUITE_P(
    Splits, MuonOfLlama,
    ::testing::Values(
        MuonSplit{"tensor_2_zero_3", [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.data = 2, s.states.zero_stage = 3; }},
        MuonSplit{"sub_groups", [](PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 2, s.states.zero_group = 2; }},
        MuonSplit{"overlapped",
                  [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
        MuonSplit{"sequence_context_recompute",
                  [](PlanSpec& s) {
                    s.mesh.tensor = 2, s.mesh.context = 2, s.states.zero_stage = 1, s.mesh.sequence_parallel = true;
                    s.recomputation.what = plan::Recompute::full;
                  }},
        MuonSplit{"dualpipe",
                  [](PlanSpec& s) {
                    s.stages.order = plan::Order::dualpipe, s.mesh.pipeline = 2, s.stages.virtual_stages = 2;
                  }},
        MuonSplit{"zb_h1_zero_1",
                  [](PlanSpec& s) {
                    s.stages.order = plan::Order::zb_h1, s.mesh.pipeline = 2, s.mesh.data = 2, s.states.zero_stage = 1;
                  }}),
    [](const auto& tested) { return tested.param.name; });

// Gradients are summed in fp32 with bf16, so that shards differ by what fp32 rounds. In fp16 they meet in fp16, and
// Newton-Schulz makes up to 485 times more of what is small beside the rest.
TEST(MuonTraining, InSixteenBitsOfShardsEqualsSerial) {
  Trial trial = muon_trial();
  trial.spec.numerics.precision = models::DType::bf16;
  expect_as_serial(trial, {"bf16", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }}, 1e-3, 1e-2);
  trial.spec.numerics.precision = models::DType::fp16;
  trial.training.loss_scaling.initial = 1024;
  expect_as_serial(trial, {"fp16", [](PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 1; }},
                   1e-2, 1e-1);
}

TEST(MuonTraining, RoundsAtRandomWithoutMasters) {
  Trial trial = muon_trial();
  trial.spec.numerics.precision = models::DType::bf16;
  trial.spec.numerics.rounding = plan::Rounding::stochastic;
  expect_as_serial(trial, {"stochastic", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }}, 1e-2, 1e-1);
}

TEST(MuonTraining, SkipsAStepWhoseGradientsOverflow) {
  Trial trial = muon_trial();
  trial.spec.numerics.precision = models::DType::fp16;
  trial.spec.mesh.data = 2, trial.spec.states.zero_stage = 2;
  trial.training.loss_scaling = {std::ldexp(1.0, 40), 100, 1024};
  const Outcome ours = testing::train(trial);
  EXPECT_TRUE(ours.steps.front().skipped);
  EXPECT_FALSE(ours.steps.back().skipped);
  EXPECT_TRUE(std::isfinite(ours.steps.back().loss) && ours.steps.back().loss < ours.steps.front().loss);
}

TEST(MuonTraining, TakesGradientsInFewerBits) {
  Trial trial = muon_trial();
  trial.spec.mesh.data = 2, trial.spec.states.zero_stage = 1;
  trial.spec.compression.gradients = plan::GradientCompression::bf16;
  const Outcome ours = testing::train(trial);
  trial.spec.compression.gradients = plan::GradientCompression::none;
  const double distance = testing::loss_distance(ours, testing::train(trial));
  EXPECT_LE(distance, 5e-3);
  EXPECT_GT(distance, 0) << "nothing was rounded";
}

// -- what a rank has and does -----------------------------------------------------------------------------------------

TEST(MuonStates, AreOneMomentumForMatricesAndTwoMomentsForAllElse) {
  for (const int zero : {0, 1, 3}) {
    Trial trial = muon_trial();
    trial.spec.mesh.data = zero > 0 ? 4 : 1, trial.spec.states.zero_stage = zero;
    const plan::RankClass c = plan::lower(testing::plan_of(trial)).classes.front();
    for (const plan::Bucket& bucket : c.buckets) {
      const std::int64_t optimized = bucket.elements / (zero > 0 ? 4 : 1);
      const auto elements = [&](plan::BufferId buffer) { return c.buffers[buffer].elements; };
      std::int64_t rest = 0;
      for (const plan::ParameterRange& range : bucket.ranges)
        if (!range.orthogonal) rest = std::max(rest, range.offset + range.elements);
      const bool block = bucket.name.rfind("h.", 0) == 0;
      EXPECT_EQ(elements(bucket.first_moment), optimized);
      EXPECT_EQ(elements(bucket.second_moment), block ? std::min(rest, optimized) : optimized) << bucket.name;
      if (block) {
        EXPECT_LT(rest, bucket.elements / 10) << "what is no matrix comes first";
      }
    }
  }
}

TEST(MuonWork, OfABucketInShardsIsThatOfTheShardWithMost) {
  plan::WholeMatrices bucket;  // three of 8 x 8 and one of 8 x 32, in two shards of 224
  for (std::int64_t i = 0; i < 3; ++i) bucket.matrices.push_back({64 * i, 64, 8, 8, 1, 1});
  bucket.matrices.push_back({192, 256, 8, 32, 1, 1});
  const std::vector<Op> whole = plan::newton_schulz(bucket, 448, 1), halves = plan::newton_schulz(bucket, 224, 2);
  ASSERT_EQ(whole.size(), 4U);
  for (const Op& op : whole) EXPECT_EQ(op.expected, 1);
  // The first shard has something of all four, the second of the last alone.
  for (const Op& op : halves) EXPECT_EQ(op.expected, 1);
  const std::vector<Op> quarters = plan::newton_schulz(bucket, 112, 4);
  EXPECT_EQ(quarters[0].expected, 0) << "only the first shard has it";
  EXPECT_EQ(quarters[1].expected, 1);
  EXPECT_EQ(quarters[2].expected, 1);
  EXPECT_EQ(quarters[3].expected, 1);
  EXPECT_EQ(plan::newton_schulz_workspace(bucket), 2 * 8 * 32 + 2 * 8 * 8);
  // 5 (4 a^2 b + 2 a^3 + 3 a^2 + 2 a b) + 3 a b with a = 8 and b = 32.
  EXPECT_DOUBLE_EQ(models::flops_of(whole[3]), 5 * (4 * 64 * 32 + 2 * 512 + 3 * 64 + 2 * 256) + 3 * 256);
}

}  // namespace muon_test
}  // namespace orrery::exec
