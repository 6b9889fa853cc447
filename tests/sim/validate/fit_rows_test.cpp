/// A stack out of a handful of runs: numbers that the runs tell come back, others stay, an outlier does little harm.
#include "sim/validate/fit_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace fit_rows_test {

using ::testing::HasSubstr;

Library small_library() {
  Library out;
  out.clusters = {*testing::cluster("hgx-h100")};
  out.stacks = {testing::stack("generic-eager")};
  return out;
}

Row run(std::int64_t tensor, std::int64_t pipeline, std::int64_t gpus, std::int64_t micro) {
  Row row;
  Setup& s = row.setup;
  s.id = std::to_string(tensor) + "-" + std::to_string(pipeline) + "-" + std::to_string(micro);
  s.source = "here";
  s.kind = "training";
  s.verified = true;
  s.family = "llama";
  s.stack = "ours";
  s.gpu_type = "H100-SXM5-80GB";
  s.precision = "bf16";
  s.recompute = "none";
  s.layers = 32, s.hidden = 4096, s.heads = 32, s.sequence = 4096, s.vocab = 32000;
  s.gpus = gpus, s.tensor = tensor, s.pipeline = pipeline, s.data = gpus / tensor / pipeline;
  s.micro_batch = micro, s.batch = 256;
  s.sequence_parallel = tensor > 1;
  s.memory_kind = "max_memory_reserved";
  return row;
}

std::vector<Row> runs() {
  return {run(1, 1, 64, 1), run(2, 1, 16, 1), run(2, 2, 16, 2), run(4, 1, 16, 1), run(4, 2, 32, 1), run(4, 4, 32, 4),
          run(8, 1, 16, 1), run(8, 1, 32, 4), run(8, 2, 32, 1), run(8, 4, 64, 2), run(1, 8, 16, 1), run(16, 1, 32, 1)};
}

/// What a stack with other numbers than the generic one's takes.
std::vector<Row> measured(const cost::Stack& truth, std::vector<Row> rows = runs()) {
  Library known = small_library();
  known.stacks = {};
  known.stand_in = truth;
  const cost::Validation v = validate(rows, known);
  EXPECT_EQ(v.rows.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].measured.seconds = v.rows[i].predicted_s;
    rows[i].measured.memory_bytes = v.rows[i].predicted_bytes;
  }
  return rows;
}

cost::Stack other_stack() {
  cost::Stack truth = testing::stack("generic-eager");
  truth.memory.fragmentation = 0.3;
  for (cost::Parameter& p : truth.parameters) {
    if (p.name == "stack.matmul_share") p.value *= 0.85;
    if (p.name == "stack.host_op_time") p.value *= 2.5;
  }
  return truth;
}

double number(const cost::RowFit& fit, const std::string& name) {
  for (const cost::FittedNumber& n : fit.numbers)
    if (n.parameter == name) return n.after / n.before;
  return std::nan("");
}

cost::RowFit fitted(const std::vector<Row>& rows) {
  const auto fit = fit_rows(rows, small_library(), testing::stack("generic-eager"), {}, {"ours", {}});
  EXPECT_TRUE(fit.has_value());
  return fit.value();
}

double error_of(const cost::ValidatedRow& row) {
  return std::abs(row.predicted_s / *row.measured_s - 1);
}

TEST(FitRows, FindsTheNumbersThatTheRunsWereMadeWith) {
  const cost::RowFit fit = fitted(measured(other_stack()));
  EXPECT_EQ(fit.used, runs().size());
  EXPECT_NEAR(number(fit, "stack.matmul_share"), 0.85, 0.05);
  EXPECT_GT(number(fit, "stack.host_op_time"), 1.15) << "in part: host_message_time takes the rest";
  EXPECT_GT(fit.before.median, 0.09);
  EXPECT_LT(fit.after.median, 0.02);
  EXPECT_LT(fit.left_one_out.median, 0.06);
  EXPECT_LT(fit.memory_after.median, 0.02);
  EXPECT_LT(fit.memory_after.median, fit.memory_before.median);
  EXPECT_FALSE(fit.teaching.empty());
  ASSERT_EQ(fit.stack.fitted->grounds.size(), 1U) << "all runs were of dense models on one kind of device";
  EXPECT_FALSE(fit.stack.fitted->grounds.front().mixtures);
}

TEST(FitRows, IsNotMovedFarByOneOutlier) {
  std::vector<Row> rows = measured(other_stack());
  rows[3].measured.seconds = 6 * *rows[3].measured.seconds;
  const cost::RowFit fit = fitted(rows);
  EXPECT_NEAR(number(fit, "stack.matmul_share"), 0.85, 0.08);
  EXPECT_LT(fit.after.median, 0.04) << "of the others";
}

TEST(FitRows, LeavesOutAStepThatNoDeviceCanTake) {
  std::vector<Row> rows = measured(other_stack());
  rows[3].measured.seconds = 1e-3;
  const cost::RowFit fit = fitted(rows);
  ASSERT_EQ(fit.left_out.size(), 1U);
  EXPECT_EQ(fit.left_out[0].id, rows[3].setup.id);
  EXPECT_THAT(fit.left_out[0].reason, HasSubstr("faster than the devices' peak"));
  EXPECT_EQ(fit.used, rows.size() - 1);
  EXPECT_NEAR(number(fit, "stack.matmul_share"), 0.85, 0.05);
}

TEST(FitRows, LeavesWhatTheRunsDoNotTellWithItsFamily) {
  std::vector<Row> rows = measured(other_stack());
  rows.resize(1);  // one plan without tensor parallelism
  const cost::RowFit fit = fitted(rows);
  EXPECT_NEAR(number(fit, "stack.tensor_hop_time"), 1, 1e-3);
  EXPECT_NEAR(number(fit, "stack.host_message_time"), 1, 1e-3);
  for (const cost::FittedNumber& n : fit.numbers) {
    if (n.parameter == "stack.tensor_hop_time") {
      EXPECT_THAT(n.source, HasSubstr("do not determine"));
    }
  }
}

TEST(FitRows, KeepsWhatRowsSayOfTheirNetwork) {
  std::vector<Row> rows = runs();
  for (const std::size_t slow : {4, 8}) rows[slow].setup.network_state = "slow";
  rows = measured(other_stack(), std::move(rows));
  EXPECT_LT(fitted(rows).after.median, 0.02);
  std::vector<Row> kept = {rows[4], rows[8]};
  rows.erase(rows.begin() + 8);
  rows.erase(rows.begin() + 4);
  Library own = small_library();
  own.stand_in = fitted(rows).stack;
  for (const cost::ValidatedRow& row : validate(kept, own).rows) EXPECT_LT(error_of(row), 0.1) << row.id;
  for (Row& row : kept) row.setup.network_state = "fast";
  for (const cost::ValidatedRow& row : validate(kept, own).rows) EXPECT_GT(error_of(row), 0.3) << row.id;
}

TEST(FitRows, LearnsFromRunsThatDied) {
  std::vector<Row> rows = measured(testing::stack("generic-eager"));
  Row died = run(1, 1, 64, 4);
  died.setup.kind = kOutOfMemory;
  rows.push_back(died);
  const cost::RowFit fit = fitted(rows);
  Library known = small_library();
  known.stand_in = fit.stack;
  known.stacks = {};
  const std::vector<Row> one{died};
  const auto chance = validate(one, make_cases(one, known), {}).rows.at(0).fits_probability;
  ASSERT_TRUE(chance.has_value());
  EXPECT_LT(*chance, 0.6);
}

// The step times of a device are known by runs whose times are known, and by more than one or two.
TEST(FitRows, HasItsGroundWhereSeveralTimedRunsWere) {
  Library two = small_library();
  two.clusters.push_back(*testing::cluster("dgx-a100-80gb"));
  const auto grounds = [&](const std::vector<Row>& rows) {
    const auto fit = fit_rows(rows, two, testing::stack("generic-eager"), {}, {"ours", {}});
    EXPECT_TRUE(fit.has_value());
    std::vector<clusters::Architecture> out;
    for (const cost::Ground& ground : fit->stack.fitted->grounds) out.push_back(ground.architecture);
    return out;
  };
  using clusters::Architecture;
  std::vector<Row> rows =
      measured(testing::stack("generic-eager"), {run(2, 1, 16, 1), run(4, 1, 16, 1), run(8, 1, 16, 1)});
  const auto on_a100 = [](Row row) {
    row.setup.gpu_type = "A100-SXM4-80GB";
    row.setup.id += "-a100";
    row.measured.seconds = 4 * *row.measured.seconds;
    return row;
  };
  std::vector<Row> more;
  for (const Row& row : rows) more.push_back(on_a100(row));
  Row died = more[0], remembered = more[1];
  died.setup.kind = kOutOfMemory;
  died.measured = {};
  remembered.measured.seconds.reset();
  rows.push_back(died);
  rows.push_back(remembered);
  EXPECT_THAT(grounds(rows), ::testing::ElementsAre(Architecture::hopper)) << "one died, and one has no time";
  rows.insert(rows.end(), more.begin(), more.begin() + 2);
  EXPECT_THAT(grounds(rows), ::testing::ElementsAre(Architecture::hopper)) << "two";
  rows.push_back(more[2]);
  EXPECT_THAT(grounds(rows), ::testing::ElementsAre(Architecture::hopper, Architecture::ampere)) << "three";
  EXPECT_THAT(grounds({rows[0], more[0]}), ::testing::ElementsAre(Architecture::hopper, Architecture::ampere))
      << "without three of a kind, those of most: a fit without ground would be trusted everywhere";
}

TEST(FitRows, ProposesNoRunThatTheSoftwareCannotDo) {
  std::vector<Row> rows = {run(1, 1, 16, 1), run(1, 1, 16, 2)};
  for (Row& row : rows) row.setup.zero_stage = 3, row.setup.recompute = "full";
  rows = measured(testing::stack("generic-eager"), std::move(rows));
  const auto proposed = [&](const cost::Stack& like) {
    const auto fit = fit_rows(rows, small_library(), like, {}, {"ours", {}});
    EXPECT_TRUE(fit.has_value());
    return fit->teaching.size();
  };
  cost::Stack like = testing::stack("generic-eager");
  EXPECT_EQ(proposed(like), 3U);
  like.can.tensor = like.can.pipeline = false;
  EXPECT_EQ(proposed(like), 1U) << "replicas alone, of larger micro-batches";
}

TEST(FitRows, SaysWhyNothingCanBeFitted) {
  std::vector<Row> rows{runs().front()};
  const auto none = fit_rows(rows, small_library(), testing::stack("generic-eager"), {}, {"ours", {}});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().front().code, "F05");
  const auto stopped = fit_rows(measured(other_stack()), small_library(), testing::stack("generic-eager"), {},
                                {"ours", [](const std::string&) { return false; }});
  ASSERT_FALSE(stopped.has_value());
  EXPECT_TRUE(stopped.error().empty()) << "stopped, not wrong";
}

TEST(FitRows, NamesADeviceOfWhichAnothersNumbersAreTaken) {
  std::vector<Row> rows = measured(testing::stack("generic-eager"), {run(2, 1, 16, 1), run(4, 1, 16, 1)});
  for (Row& row : rows) row.setup.gpu_type = "H1000", row.setup.device_at = {"rows.csv", 2, 40, 5};
  const cost::RowFit fit = fitted(rows);
  ASSERT_EQ(fit.warnings.size(), 1U) << "once";
  EXPECT_EQ(fit.warnings.front().code, "V07");
  EXPECT_EQ(fit.warnings.front().where.column, 40);
  EXPECT_THAT(fit.warnings.front().message, HasSubstr("no device `H1000`"));
  for (Row& row : rows) row.setup.gpu_type = "NVIDIA H100 80GB HBM3";
  EXPECT_TRUE(fitted(rows).warnings.empty()) << "the same device in other words";
}

}  // namespace fit_rows_test
}  // namespace orrery::sim
