/// The table of plans: what is folded, what a narrow terminal leaves out, and what the columns are made of.
#include "reports/tables/plan_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/tables/binding.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace plan_table_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PlanHeading heading() {
  PlanHeading h;
  h.model = "sample", h.parameters = 7e9, h.parameters_active = 7e9;
  h.cluster = "dgx-a100-80gb", h.device = "A100-SXM4-80GB";
  h.devices = 128, h.nodes = 16, h.devices_per_node = 8;
  h.memory_bytes = 80.0 * (1 << 30), h.peak_flops = 312e12;
  h.precision = "bf16", h.batch = 64, h.sequence = 2048;
  h.evidence = {{"megatron-lm",
                 "published",
                 "from 30 published runs of megatron-lm",
                 {},
                 cost::Spread{"megatron-lm", true, {0.9, 1.1}, {0.95, 1.05}, 30}}};
  return h;
}

std::vector<cost::Prediction> plans() {
  std::vector<cost::Prediction> out = sample::search().plans;
  for (cost::Prediction& one : out) one.cost_per_step_usd = 0.25;
  return out;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, display_width(line));
  return most;
}

TEST(PlanTable, FitsEightyColumnsByLeavingOutTheLeastImportantAndSaysSo) {
  const Table table = plans_table(plans(), {0, 1, 2}, heading(), 12);
  const std::string narrow = text_of(table, {true, false, 80}), wide = text_of(table, {true, false, 200});
  EXPECT_LE(widest(narrow), 80U) << narrow;
  EXPECT_THAT(narrow, HasSubstr("Left out at 80 columns:"));
  for (const char* kept : {"DP", "TP", "PP", "step", "4 of 5 runs", "memory", "MFU"})
    EXPECT_THAT(narrow, HasSubstr(kept));
  EXPECT_THAT(wide, Not(HasSubstr("Left out")));
  for (const char* shown : {"GA", "4 of 5 runs", "tok/s/GPU", "TFLOP/s", "fits", "bubble", "exposed", "$/Mtok"})
    EXPECT_THAT(wide, HasSubstr(shown));
  EXPECT_LE(widest(text_of(table, {true, false, 40})), 80U) << "what a plan is stays, however narrow";
}

TEST(PlanTable, WhatAllPlansHaveInCommonGoesFirstAndIsSaidBelow) {
  std::vector<cost::Prediction> all = plans();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].spec.states.zero_stage = 1;
    all[i].spec.recomputation.what = plan::Recompute::full;
    all[i].spec.recomputation.layers = 3;
    all[i].spec.stages.virtual_stages = 2 + static_cast<int>(i);
  }
  const auto narrow = [&] { return text_of(plans_table(all, {0, 1, 2}, heading()), {true, false, 80}); };
  const auto head = [](const std::string& text) { return text.substr(0, text.find("─")); };
  const std::string common = narrow();
  EXPECT_THAT(head(common), Not(HasSubstr("recompute")));
  EXPECT_THAT(head(common), HasSubstr("fits"));
  EXPECT_THAT(head(common), HasSubstr("VP"));
  EXPECT_THAT(common, HasSubstr("ZeRO 1"));
  EXPECT_THAT(common, HasSubstr("recompute full ×3"));
  all[1].spec.recomputation.layers = 4;
  EXPECT_THAT(head(narrow()), HasSubstr("recompute")) << "it tells the plans apart now";
  EXPECT_THAT(head(narrow()), HasSubstr("fits"));
}

/// The head of the table at 80 columns.
std::string narrow_head(const std::vector<cost::Prediction>& all, const std::vector<std::size_t>& rows) {
  const std::string text = text_of(plans_table(all, rows, heading()), {true, false, 80});
  return text.substr(0, text.find("─"));
}

TEST(PlanTable, WhatTellsTwoRowsApartOutlivesEveryFigureButStepAndMemory) {
  std::vector<cost::Prediction> all = plans();
  EXPECT_THAT(narrow_head(all, {0, 1, 2}), Not(HasSubstr("order")));
  all[1].spec = all[0].spec, all[2].spec = all[0].spec;
  all[1].spec.stages.order = plan::Order::zb_h1;
  all[2].spec.stages.order = plan::Order::gpipe;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].mfu = 0.5 + 0.01 * static_cast<double>(i);
  const std::string head = narrow_head(all, {0, 1, 2});
  for (const char* kept : {"order", "step", "memory"}) EXPECT_THAT(head, HasSubstr(kept));
  all[1].spec.stages.order = all[0].spec.stages.order;
  all[1].spec.mesh.sequence_parallel = !all[0].spec.mesh.sequence_parallel;
  EXPECT_THAT(narrow_head(all, {0, 1, 2}), HasSubstr("SP"));
}

TEST(PlanTable, AColumnInWhichRowsDifferOutlivesOneInWhichTheyDoNot) {
  std::vector<cost::Prediction> all = plans();
  all[1].spec = all[0].spec, all[2].spec = all[0].spec;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].spec.shape.micro_batch = 1 << i;
    all[i].memory_peak_bytes = all[0].memory_peak_bytes, all[i].mfu = all[0].mfu;
  }
  const std::string text = text_of(plans_table(all, {0, 1, 2}, heading()), {true, false, 60});
  const std::string head = text.substr(0, text.find("─"));
  for (const char* kept : {"MBS", "GA"}) EXPECT_THAT(head, HasSubstr(kept));
  for (const char* common : {"DP", "TP", "MFU", "fits"}) EXPECT_THAT(head, Not(HasSubstr(common))) << text;
  EXPECT_THAT(text, HasSubstr("DP 4"));
}

TEST(PlanTable, AFieldWithoutAColumnHasOneWhereNothingElseTellsRowsApart) {
  std::vector<cost::Prediction> all = plans();
  all[1].spec = all[0].spec;
  EXPECT_THAT(narrow_head(all, {0, 1}), Not(HasSubstr("flash")));
  all[1].spec.numerics.flash = !all[0].spec.numerics.flash;
  EXPECT_THAT(narrow_head(all, {0, 1}), HasSubstr("flash"));
  EXPECT_THAT(narrow_head(all, {0, 2}), Not(HasSubstr("flash"))) << "the split tells these apart";
}

TEST(PlanTable, ARateIsOfWhatTheDevicesAreCalled) {
  PlanHeading h = heading();
  const auto text = [&] { return text_of(plans_table(plans(), {0, 1, 2}, h), {true, false, 200}); };
  EXPECT_THAT(text(), HasSubstr("tok/s/GPU"));
  h.kind = clusters::DeviceKind::accelerator;
  EXPECT_THAT(text(), HasSubstr("tok/s/chip"));
  h.kind = clusters::DeviceKind::cpu;
  EXPECT_THAT(text(), HasSubstr("tok/s/rank"));
}

TEST(PlanTable, TheHeadingSaysForWhatOnWhatAndOnWhatEvidence) {
  const PlanHeading shown = heading();
  const std::string text =
      heading_text(shown, {true, false, 80}) + evidence_text(shown.evidence.front(), {true, false, 80});
  EXPECT_LE(widest(text), 80U) << text;
  for (const char* said : {"sample: 7.00 B parameters", "128 x A100-SXM4-80GB", "16 nodes", "megatron-lm, bf16",
                           "64 sequences x 2,048 =", "Evidence: from 30 published runs"})
    EXPECT_THAT(text, HasSubstr(said));
}

TEST(PlanTable, FoldsWhatDiffersInTheMicroBatchUnlessTheJobComparesIt) {
  std::vector<cost::Prediction> all = plans();
  all.insert(all.begin() + 1, all[0]);
  all[1].spec.shape.micro_batch *= 2;
  all[1].spec.stages.virtual_stages = 2;
  EXPECT_THAT(families(all, {}), ElementsAre(0, 0, 2, 3));
  EXPECT_THAT(families(all, {"micro_batch"}), ElementsAre(0, 1, 2, 3));
  all[1].spec = all[0].spec;
  all[1].spec.states.zero_stage = 2;
  EXPECT_THAT(families(all, {}), ElementsAre(0, 1, 2, 3)) << "ZeRO is another family";
}

TEST(PlanTable, APlanThatAnotherStackStandsForHasThatStacksEvidence) {
  PlanHeading h = heading();
  h.evidence.push_back({"fully-sharded",
                        "uncalibrated",
                        "no run of fully-sharded was ever compared",
                        {},
                        cost::Spread{"", true, {0.5, 2}, {0.9, 1.1}, 0}});
  h.by_zero = {0, 0, 0, 1};
  std::vector<cost::Prediction> all = plans();
  for (cost::Prediction& one : all) one.spec.states.zero_stage = 0;
  EXPECT_THAT(text_of(plans_table(all, {0, 1}, h), {true, false, 200}), Not(HasSubstr("by")));
  all[1].spec.states.zero_stage = 3;
  const std::string text = text_of(plans_table(all, {0, 1}, h), {true, false, 200});
  EXPECT_THAT(text, HasSubstr("fully-sharded\n"));
  EXPECT_THAT(text, HasSubstr("Evidence for fully-sharded: no run of fully-sharded was ever compared."));
  EXPECT_NEAR(figures_of(all[1], h).step_time_s->high, 2 * all[1].step_time_s, 1e-9);
  EXPECT_NEAR(figures_of(all[0], h).step_time_s->high, 1.1 * all[0].step_time_s, 1e-9);
}

TEST(PlanTable, FiguresFollowFromTheStepTime) {
  const cost::Prediction plan = plans().front();  // 1.7321 s, 128 ranks, 64 x 2048 tokens
  const PlanFigures f = figures_of(plan, heading());
  EXPECT_NEAR(f.tokens_per_s_per_device, 64 * 2048 / 1.7321 / 128, 1e-6);
  EXPECT_NEAR(f.flops_per_s_per_device, plan.mfu * 312e12, 1);
  EXPECT_NEAR(f.usd_per_million_tokens, 0.25 / (64 * 2048) * 1e6, 1e-9);
  ASSERT_TRUE(f.step_time_s && f.fits_probability);
  EXPECT_NEAR(f.step_time_s->low, 0.9 * 1.7321, 1e-9);
  EXPECT_GT(*f.fits_probability, 0.99) << "61 GiB of 80";
  PlanHeading unknown = heading();
  unknown.evidence.front().several_nodes.reset();
  EXPECT_FALSE(figures_of(plan, unknown).step_time_s);
}

TEST(Wrapped, BreaksAtBlanksAndIndents) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 0, 2), "one two three");
  EXPECT_EQ(wrapped("unbreakable-word and", 6), "unbreakable-word\nand");
  EXPECT_EQ(wrapped("\x1b[1mone\x1b[0m two", 7), "\x1b[1mone\x1b[0m two") << "colours take no columns";
}

TEST(Binding, IsComputeUntilALossTakesAQuarterOfTheStep) {
  cost::Prediction p;
  p.step_time_s = 10, p.breakdown.forward = 3, p.breakdown.backward = 5.5, p.breakdown.bubble = 1.5;
  EXPECT_EQ(binding_of(p).part, "compute");
  EXPECT_THAT(binding_of(p).sentence, HasSubstr("the largest loss beside it is bubble, 1.50 s (15.0 %)."));
  p.breakdown.bubble = 0.7, p.breakdown.imbalance = 0.8, p.breakdown.contention = 0.9;
  EXPECT_THAT(binding_of(p).sentence, HasSubstr("bubble, 1.50 s (15.0 %), of it imbalance 8.0 %."))
      << "one loss, not two";
  p.breakdown.imbalance = p.breakdown.contention = 0;
  p.breakdown.backward = 4, p.breakdown.bubble = 3;
  const Binding bubble = binding_of(p);
  EXPECT_EQ(bubble.part, "bubble");
  EXPECT_DOUBLE_EQ(bubble.share, 0.3);
  EXPECT_EQ(bubble.sentence, "Bubble binds: 3.00 s (30.0 %) of the step of 10.0 s; compute is 7.00 s (70.0 %).");
  p.memory_peak_bytes = 2.0 * (1 << 30), p.memory_capacity_bytes = 1.0 * (1 << 30);
  EXPECT_THAT(binding_of(p).sentence, HasSubstr("Memory binds: it needs 1.00 GiB more"));
}

}  // namespace plan_table_test
}  // namespace orrery::reports
