/// Headlines: what is read, what is refused, quantities by hand, and that a run that cannot be expressed says so.
#include "sim/validate/headlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace headlines_test {

using ::testing::HasSubstr;

Library library() {
  Library out;
  out.clusters = {*testing::cluster("dgx-a100-80gb")};
  out.stacks = {testing::stack("megatron-2021")};
  return out;
}

std::string row(const std::string& id, const std::string& more, int layers = 24, int hidden = 2048) {
  return "- {id: " + id + ", layers: " + std::to_string(layers) + ", hidden: " + std::to_string(hidden) +
         ", kind: training, verified: true, family: gpt, heads: 16, seq_len: 1024, gpu_type: "
         "A100-SXM4-80GB, stack: megatron-2021, precision_kind: fp16, global_batch: 64, micro_batch: 1, " +
         more + "}\n";
}

std::string file(const std::string& headline) {
  return "headlines:\n- {what: w, source: s, said: \"10 x\", unit: x, published: 10, " + headline + "}\nresults:\n" +
         row("one", "gpus: 1, tp: 1, pp: 1, dp: 1") + row("eight", "gpus: 8, tp: 1, pp: 1, dp: 8") +
         row("zero", "gpus: 8, tp: 1, pp: 1, dp: 8, zero_stage: 3") +
         row("staged", "gpus: 8, tp: 1, pp: 8, dp: 1", 64, 8192) + row("odd", "gpus: 8, tp: 3, pp: 1, dp: 1");
}

cost::HeadlineResult result(const std::string& headline, const std::string& source = "s") {
  std::string text = file(headline);
  text.replace(text.find("source: s"), 9, "source: \"" + source + "\"");
  const auto parsed = parse_headlines(text, "h.yaml");
  if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
  return predict_headlines(*parsed, library()).at(0);
}

TEST(Headlines, ASpeedUpIsTheRateOfAllAndARateRatioThatOfEach) {
  const double speedup = *result("quantity: speedup, runs: [eight, one]").predicted;
  const double each = *result("quantity: rate_ratio, runs: [eight, one]").predicted;
  EXPECT_GT(speedup, 4);
  EXPECT_LE(speedup, 8);
  EXPECT_NEAR(speedup, 8 * each, 1e-9);
}

TEST(Headlines, ZeRO3KeepsAnEighthOfTheStatesOnEachOfEightDevices) {
  EXPECT_NEAR(*result("quantity: state_ratio, runs: [eight, zero]").predicted, 8, 0.2);
}

TEST(Headlines, TeraflopsTimesDevicesArePetaflops) {
  const double tera = *result("quantity: teraflops, runs: [eight]").predicted;
  EXPECT_NEAR(*result("quantity: petaflops, runs: [eight]").predicted, 8 * tera / 1000, 1e-9);
  EXPECT_GT(tera, 30);
  EXPECT_LT(tera, 312) << "more than an A100 has";
}

TEST(Headlines, MinutesSumStepsOfSeveralRuns) {
  const double one = *result("quantity: minutes, runs: [one], steps: [60]").predicted;
  const double eight = *result("quantity: minutes, runs: [eight], steps: [60]").predicted;
  EXPECT_NEAR(*result("quantity: minutes, runs: [one, eight], steps: [60, 120]").predicted, one + 2 * eight, 1e-9);
}

TEST(Headlines, ABubbleIsNearItsFormula) {
  // Seven of 64 + 7 turns; embedding and head make the ends a little slower than the rest.
  EXPECT_NEAR(*result("quantity: bubble, runs: [staged], order: gpipe").predicted, 7.0 / 71, 0.04);
  EXPECT_DOUBLE_EQ(*result("quantity: bubble, runs: [eight]").predicted, 0);
}

// megatron-2021 has numbers that were chosen over PTD-P's rows; a ratio of bytes rests on none of them.
TEST(Headlines, AreInSampleWhereTheStackWasFittedToTimesOfTheirSource) {
  const char* fitted = "PTD-P (Narayanan SC21), table 1";
  EXPECT_TRUE(result("quantity: teraflops, runs: [eight]", fitted).in_sample);
  EXPECT_FALSE(result("quantity: state_ratio, runs: [eight, zero]", fitted).in_sample);
  EXPECT_FALSE(result("quantity: teraflops, runs: [eight]", "PTD-P of somebody else").in_sample);
}

TEST(Headlines, SayWhetherTheirFullestRunFits) {
  const cost::HeadlineResult small = result("quantity: speedup, runs: [eight, one]");
  EXPECT_TRUE(small.fits);
  EXPECT_LT(*small.memory_share, 1);
  const cost::HeadlineResult large = result("quantity: rate_ratio, runs: [eight, staged]");
  EXPECT_FALSE(large.fits) << "52 billion parameters on eight devices";
  EXPECT_DOUBLE_EQ(*large.memory_share, *result("quantity: memory_share, runs: [staged]").predicted);
}

TEST(Headlines, ARunThatCannotBeExpressedHasItsReason) {
  const cost::HeadlineResult odd = result("quantity: teraflops, runs: [odd]");
  EXPECT_FALSE(odd.predicted.has_value());
  EXPECT_THAT(odd.reason, HasSubstr("devices"));
}

TEST(Headlines, RefuseWhatCannotBeMeantAndSayWhere) {
  const auto said = [](const std::string& headline) {
    const auto parsed = parse_headlines(file(headline), "h.yaml");
    return parsed ? std::string() : base::render(parsed.error(), false);
  };
  EXPECT_THAT(said("quantity: luck, runs: [one]"), HasSubstr("luck"));
  EXPECT_THAT(said("quantity: teraflops, runs: [another]"), HasSubstr("another"));
  EXPECT_THAT(said("quantity: speedup, runs: [one]"), HasSubstr("2 runs"));
  EXPECT_THAT(said("quantity: minutes, runs: [one]"), HasSubstr("h.yaml:2"));
  EXPECT_THAT(said("quantity: bubble, runs: [staged], order: sideways"), HasSubstr("sideways"));
}

}  // namespace headlines_test
}  // namespace orrery::sim
