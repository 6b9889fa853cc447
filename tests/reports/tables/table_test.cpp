/// Tables as text: widths, alignment, ASCII, and the tables of every record against golden files.
#include "reports/tables/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/plan_page.h"
#include "reports/scaling.h"
#include "reports/tables/plan_table.h"
#include "reports/tables/tables.h"
#include "reports/tables/text.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace table_test {

constexpr TableStyle kAscii{false, false};
constexpr TableStyle kUnicode{true, false};

Table small() {
  return {"Title",
          {{"name", Align::left}, {"value", Align::right}, {"", Align::bar}},
          {{"a×b", "1.5", "0.5"}, {"longer", "12", "1"}},
          {"a note"}};
}

TEST(AgainstSerial, NamesTheFirstStepAndLayerWhoseExpertsHaveOtherTokens) {
  using Step = std::vector<ExpertLoad>;
  const Step same = {{"1", 1.5, {6, 2, 4, 4}}, {"3", 1.25, {5, 3, 4, 4}}};
  Step flipped = same;
  flipped[1].tokens = {5, 4, 3, 4};
  EXPECT_EQ(first_other_choice({same, same}, {same, same}), "");
  EXPECT_EQ(first_other_choice({same, flipped}, {same, same}), "step 2, layer 3: expert 1 has 4 tokens, serially 3");
  const Step many = {{"0", 2.125, {}}}, others = {{"0", 2.25, {}}};
  EXPECT_EQ(first_other_choice({many}, {others}),
            "step 1, layer 0: the fullest expert has 2.125 times the mean, serially 2.250");
  EXPECT_EQ(first_other_choice({{}, {}}, {{}, {}}), "") << "a dense model";

  TrainSummary summary;
  summary.serial = SerialComparison{.run = "run/serial", .steps = 20};
  EXPECT_THAT(train_text(summary, kAscii), ::testing::Not(::testing::HasSubstr("other choices")));
  summary.serial->other_choices = first_other_choice({same, flipped}, {same, same});
  EXPECT_THAT(train_text(summary, kAscii), ::testing::HasSubstr("step 2, layer 3: expert 1 has 4 tokens, serially 3"));
  EXPECT_THAT(train_text(summary, kAscii), ::testing::Not(::testing::HasSubstr("rounding alone")));
  summary.serial->rounding = RoundingAlone{1, 1.3e-5, 1.1e-7, 4.7e-4};
  EXPECT_THAT(train_text(summary, kAscii), ::testing::HasSubstr("loss 1.3e-05, gradient 1.1e-07 at step 1, 4.7e-04"));
}

TEST(TrainText, OfARecommendationModelCountsSamples) {
  TrainSummary summary;
  EXPECT_THAT(train_text(summary, kAscii), ::testing::HasSubstr("tokens/s"));
  summary.samples = true;
  EXPECT_THAT(train_text(summary, kAscii), ::testing::HasSubstr("samples/s"));
  EXPECT_THAT(train_text(summary, kAscii), ::testing::Not(::testing::HasSubstr("tokens/s")));
}

TEST(RunsTable, OfRecommendationModelsCountsSamples) {
  std::vector<cost::MeasuredRun> runs(2);
  runs[0].tokens_per_s = runs[1].tokens_per_s = 1000;
  EXPECT_EQ(runs_table(runs).columns.at(runs_table(runs).columns.size() - 2).head, "tokens/s");
  runs[0].samples = true;
  EXPECT_EQ(runs_table(runs).columns.at(runs_table(runs).columns.size() - 2).head, "tokens or samples/s");
  runs[1].samples = true;
  EXPECT_EQ(runs_table(runs).columns.at(runs_table(runs).columns.size() - 2).head, "samples/s");
}

TEST(DisplayWidth, CountsWhatATerminalShows) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("µs × 2"), 6U);
  EXPECT_EQ(display_width("e\xCC\x81"), 1U) << "a combining accent takes no column";
  EXPECT_EQ(display_width("漢字"), 4U);
  EXPECT_EQ(display_width("\xFF\xC3"), 2U) << "malformed bytes count one column each and are never read past the end";
}

TEST(Ascii, KeepsTheMeaningOfTheCharactersThatTablesUse) {
  EXPECT_EQ(to_ascii("3 × 4 µs → −5 — ok ≥ 1 ±2 漢"), "3 x 4 us -> -5 - ok >= 1 +/-2 ?");
}

TEST(Table, AlignsNumbersRightAndNamesLeft) {
  EXPECT_EQ(text_of(small(), kUnicode),
            "Title\n"
            "name    value\n"
            "──────  ─────  ────────────────────────\n"
            "a×b       1.5  ████████████\n"
            "longer     12  ████████████████████████\n"
            "a note\n");
}

TEST(Table, ShortensWhatIsWiderThanItsLimit) {
  const Table table{"", {{"source", Align::left, 8}}, {{"fit µ 2026-11-20"}, {"12345678"}, {"漢字漢字漢字"}}, {}};
  EXPECT_EQ(text_of(table, kUnicode), "source\n────────\nfit µ 2…\n12345678\n漢字漢…\n");
}

std::size_t widest_line(const std::string& text) {
  std::size_t most = 0, at = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; at = end + 1, end = text.find('\n', at))
    most = std::max(most, display_width(text.substr(at, end - at)));
  return most;
}

TEST(Table, GoesOverSeveralLinesWhereATerminalIsTooNarrow) {
  const Table table{"", {{"what it is", Align::left}, {"the time taken"}}, {{"one two three four", "1.5 ms"}}, {}};
  EXPECT_EQ(text_of(table, {true, false, 20}),
            "                 the\n"
            "                time\n"
            "what it is     taken\n"
            "────────────  ──────\n"
            "one two       1.5 ms\n"
            "three four\n")
      << "heads and texts are broken at blanks, figures stay whole";
}

TEST(Table, NeverBreaksAFigureOrTakesItsUnitAway) {
  const Table table{"",
                    {{"operation", Align::left}, {"bytes"}, {"time"}, {"what it says", Align::left}, {"", Align::bar}},
                    {{"reduce-scatter", "10.2 GiB", "16.5 ms", "52.1 GiB too much memory", "0.5"},
                     {"all-gather", "1.25 KiB", "204 µs", "as fast", "1"}},
                    {"Of it 4.0 %, in 2.06 days."}};
  for (std::size_t width = 22; width < 100; ++width) {
    const std::string text = text_of(table, {true, false, width});
    EXPECT_LE(widest_line(text), width) << text;
    for (const char* whole : {"GiB", "ms", "µs", "KiB", "%", "days"})
      EXPECT_THAT(text, testing::Not(testing::ContainsRegex("\n *" + std::string(whole)))) << width;
    if (text.find("█") != std::string::npos) {
      EXPECT_THAT(text, testing::Not(testing::HasSubstr("Left out"))) << "a bar says what a figure says: it goes first";
    }
  }
  const std::string narrow = text_of(table, {true, false, 28});
  EXPECT_THAT(narrow, testing::HasSubstr("10.2 GiB"));
  EXPECT_THAT(narrow, testing::HasSubstr("what it says")) << "columns that find no place are named";
}

TEST(Table, LeavesAColumnOutRatherThanBreakANameOfAnother) {
  const std::string name = "device.vector.normalisation_grad.rate";
  const Table table{"",
                    {{"name", Align::left}, {"before"}, {"after"}, {"source", Align::left, 0, 1}},
                    {{name, "52.0 GB/s", "14.1 GB/s", "fit of one run"}},
                    {}};
  EXPECT_THAT(text_of(table, {true, false, 70}), testing::HasSubstr(name + "  52.0 GB/s"));
  EXPECT_THAT(text_of(table, {true, false, 44}), testing::ContainsRegex("device\\.vector\\. +52\\.0 GB/s"))
      << "where a name must be broken, it is at a sign";
}

TEST(Wrapped, KeepsANumberWithItsUnit) {
  EXPECT_EQ(wrapped("it takes 17.3 s, 4.0 % of all", 13), "it takes\n17.3 s, 4.0 %\nof all");
  EXPECT_EQ(wrapped("a change of × 0.5", 13), "a change of\n× 0.5");
}

TEST(Table, NeverCutsANote) {
  std::string note = "begins";
  for (int i = 0; i < 100; ++i) note += " word";
  note += " ends";
  const Table table{"", {{"a"}}, {{"1"}}, {note}};
  for (const std::size_t width : {0U, 80U})
    EXPECT_THAT(text_of(table, {true, false, width}), testing::HasSubstr("ends\n"));
}

TEST(Table, StaysAlignedInAscii) {
  EXPECT_EQ(text_of(small(), kAscii),
            "Title\n"
            "name    value\n"
            "------  -----  ------------------------\n"
            "axb       1.5  ############\n"
            "longer     12  ########################\n"
            "a note\n");
}

TEST(Table, ColourChangesNothingButEscapes) {
  const std::string coloured = text_of(small(), {true, true});
  std::string plain;
  for (std::size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\x1b') {
      i = coloured.find('m', i);
    } else {
      plain += coloured[i];
    }
  }
  EXPECT_NE(coloured, plain);
  EXPECT_EQ(plain, text_of(small(), kUnicode));
}

TEST(TableDeathTest, RefusesARowOfAnotherWidth) {
  Table table = small();
  table.rows.push_back({"too", "short"});
  EXPECT_DEATH((void)text_of(table, kUnicode), "row of 2 cells");
}

TEST(Percent, ShowsADashForWhatIsNotANumber) {
  EXPECT_EQ(percent(0.1234), "12.3 %");
  EXPECT_EQ(percent(1.0), "100 %");
  EXPECT_EQ(percent(std::numeric_limits<double>::quiet_NaN()), "—");
}

TEST(Number, SeparatesThousandsAndKeepsSmallOnesShort) {
  EXPECT_EQ(number(75672.4), "75,672");
  EXPECT_EQ(number(1234567), "1,234,567");
  EXPECT_EQ(number(-123456), "-123,456");
  EXPECT_EQ(number(0.87654), "0.8765");
  EXPECT_EQ(number(2.5e-7), "2.500e-07");
  EXPECT_EQ(number(179.0004), "179.0") << "as long as 180.6 beside it";
  EXPECT_EQ(number(3.00002), "3.000");
  EXPECT_EQ(number(179), "179") << "a whole number is a count";
  EXPECT_EQ(number(3638), "3,638");
  EXPECT_EQ(number(1234.5), "1,235");
  EXPECT_EQ(number(999.96), "1,000") << "never 1000. with a point behind it";
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(-1000), "-1,000");
  EXPECT_EQ(count_text(16396, "candidate"), "16,396 candidates");
}

TEST(Energy, HasAUnitThatSuitsItsSize) {
  EXPECT_EQ(energy_text(7.2e6), "2.00 kWh");
  EXPECT_EQ(energy_text(88000), "24.4 Wh");
  EXPECT_EQ(energy_text(1.346), "1.35 J");
  EXPECT_EQ(energy_text(0.0106), "10.6 mJ");
  EXPECT_EQ(money_text(0.1105), "0.111 $");
  EXPECT_EQ(money_text(3.74e-7), "0.374 µ$");
  EXPECT_EQ(money_text(1e-13), "0 $");
}

TEST(Estimate, ShowsNoMoreDigitsThanAreKnown) {
  EXPECT_EQ(estimate_text(74.0231), "74.0");
  EXPECT_EQ(estimate_text(818593), "819,000");
  EXPECT_EQ(estimate_text(999.6), "1,000") << "rounding may take one digit more";
  EXPECT_EQ(estimate_text(99.96), "100");
  EXPECT_EQ(estimate_text(0.001922, 2), "0.0019");
  EXPECT_EQ(estimate_text(38.38, 2), "38");
  EXPECT_EQ(estimate_text(1234, 2), "1,200");
  EXPECT_EQ(estimate_text(-1.2345), "-1.23");
  EXPECT_EQ(estimate_text(0), "0");
  EXPECT_EQ(estimate_text(2.5e-7), "2.50e-07");
  EXPECT_EQ(estimate_text(std::numeric_limits<double>::infinity()), "—");
}

TEST(SplitInLetters, LeavesOutDegreesOfOne) {
  plan::PlanSpec spec;
  EXPECT_EQ(split_in_letters(spec), "DP1 MBS1");
  spec.mesh.data = 32, spec.mesh.tensor = 4, spec.mesh.pipeline = 8, spec.stages.virtual_stages = 12;
  spec.states.zero_stage = 1;
  EXPECT_EQ(split_in_letters(spec), "DP32 TP4 PP8 VP12 MBS1 ZeRO1");
}

TEST(RunsTable, SpeaksOfCalibrationOnlyWhereOneChangedSomething) {
  std::vector<cost::MeasuredRun> runs = sample::runs();
  EXPECT_THAT(text_of(runs_table(runs), kUnicode), testing::HasSubstr("predicted before"));
  for (cost::MeasuredRun& run : runs) run.predicted_before_s = run.predicted_after_s;
  const Table table = runs_table(runs);
  const std::string text = text_of(table, kUnicode);
  for (const char* word : {"before", "after", "fit", "calibration"})
    EXPECT_THAT(text, testing::Not(testing::HasSubstr(word)));
  const auto predicted = [](const Column& column) { return column.head == "predicted"; };
  EXPECT_EQ(std::count_if(table.columns.begin(), table.columns.end(), predicted), 1);
  EXPECT_THAT(text, testing::HasSubstr("crowded")) << "which has nothing to do with a fit";
}

TEST(AgainstSerial, SaysThatTheFirstStepWasEqualWhereOnlyLaterOnesDiffer) {
  TrainSummary summary;
  SerialComparison later{.run = "run/serial", .steps = 20};
  later.gradient_first = 7e-8, later.gradient_last = 2.5e-4, later.bound = later.gradient_bound = 1e-5;
  summary.serial = later;
  EXPECT_THAT(train_text(summary, kAscii), testing::HasSubstr("first step"));
  summary.serial->gradient_first = 1e-3;
  EXPECT_THAT(train_text(summary, kAscii), testing::Not(testing::HasSubstr("first step")));
}

TEST(Tables, FitATerminalOfEightyColumns) {
  for (const Table& table :
       {runs_table(sample::runs()), lengths_table(sample::whole_run()), compared_table(sample::compared()),
        sizes_table(sample::scaling().series[0]), parameters_table(sample::fit().parameters)}) {
    const std::string text = text_of(table, {true, false, 80});
    EXPECT_LE(widest_line(text), 80U) << text;
  }
}

TEST(SizesTable, GivesThePlaceOfThePlanToFiguresInANarrowTerminal) {
  const std::string text = text_of(sizes_table(sample::scaling().series[0]), {true, false, 80});
  EXPECT_THAT(text, testing::HasSubstr("MFU"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("…"))) << "no plan is cut";
}

TEST(PlansTable, LeavesOutDimensionsThatNoPlanUses) {
  const Table table = plans_table(sample::search());
  std::vector<std::string> heads;
  for (const Column& column : table.columns) heads.push_back(column.head);
  EXPECT_THAT(heads, testing::Not(testing::Contains("CP")));
  EXPECT_THAT(heads, testing::Contains("PP"));
  cost::SearchResult with_context = sample::search();
  with_context.plans[0].spec.mesh.context = 2;
  with_context.plans[0].spec.mesh.data /= 2;
  EXPECT_EQ(plans_table(with_context).columns.size(), table.columns.size() + 1);
  with_context.plans[0].spec.mesh.data *= 2;
  EXPECT_EQ(plans_table(with_context).columns.size(), table.columns.size() + 2) << "plans for several sizes say theirs";
}

TEST(PlansTable, SaysWhatLeavesTheDeviceAndAmongHowManyStatesArePartitioned) {
  cost::SearchResult result = sample::search();
  EXPECT_THAT(text_of(plans_table(result), kUnicode), testing::Not(testing::HasSubstr("offload")));
  plan::PlanSpec& spec = result.plans[0].spec;
  spec.offload = {plan::Space::host, plan::Space::nvme, plan::Space::device, 1};
  spec.mesh.data = 16, spec.states.zero_stage = 3, spec.states.zero_group = 8;
  const std::string text = text_of(plans_table(result), kUnicode);
  EXPECT_THAT(text, testing::HasSubstr("activations, optimizer on nvme"));
  EXPECT_THAT(text, testing::HasSubstr("ZeRO  over"));
  EXPECT_THAT(text, testing::ContainsRegex("   3     8 "));
}

TEST(TablesTable, FitsANarrowTerminalAndKeepsPlacesAndMemories) {
  cost::Prediction prediction = sample::prediction();
  cost::TableRow row{
      .table = "emb_l.129.weight", .rows = 1'562'500'000, .sharding = "node_row", .place = "row 112-119"};
  row.compute_s = 1.234e-3, row.communication_s = 4.567e-3, row.bytes = 3.21e9;
  row.tier = "host", row.cache_bytes = 1.25e9, row.hit_rate = 0.875, row.fetched_bytes = 2.34e8;
  prediction.tables.assign(3, row);
  const auto widest = [&](std::size_t width) {
    const std::string text = text_of(tables_table(prediction), {.width = width});
    std::size_t most = 0, at = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; at = end + 1, end = text.find('\n', at))
      most = std::max(most, display_width(text.substr(at, end - at)));
    return std::pair(most, text);
  };
  EXPECT_GT(widest(0).first, 100U) << "all of it is more than 80 columns";
  const auto [most, text] = widest(80);
  EXPECT_LE(most, 80U) << text;
  for (const char* kept : {"emb_l.129.weight", "node_row", "112-119", "host", "87.5 %"})
    EXPECT_THAT(text, testing::HasSubstr(kept));
}

TEST(ParametersTable, SaysALongSourceOnceWhenSeveralShareIt) {
  const std::string fit = "fit 2026-11-20 to 30 runs: " + std::string(80, 'r');
  const Table table = parameters_table({{"a", 1, 2, "s", fit}, {"b", 1, 2, "s", fit}, {"c", 1, 2, "s", "datasheet"}});
  EXPECT_EQ(table.rows[0].back(), "source 1 below");
  EXPECT_EQ(table.rows[1].back(), "source 1 below");
  EXPECT_EQ(table.rows[2].back(), "datasheet");
  EXPECT_EQ(table.notes, std::vector<std::string>{"Source 1: " + fit});
}

TEST(BreakdownTable, SharesAddUpToTheStep) {
  double sum = 0;
  for (const Part& part : parts_of(sample::prediction().breakdown)) sum += part.seconds;
  EXPECT_NEAR(sum, sample::prediction().step_time_s, 1e-9);
  const Table table = breakdown_table(sample::prediction().breakdown);
  EXPECT_EQ(table.rows.back()[0], "step");
  EXPECT_EQ(table.rows.back()[2], "100 %");
}

TEST(HeldOutError, JudgesOnlyRunsThatMayBeJudged) {
  std::vector<cost::MeasuredRun> runs = sample::runs();
  const double expected = (std::abs(0.138 - 0.131) / 0.131 + std::abs(0.121 - 0.127) / 0.127) / 2;
  EXPECT_NEAR(held_out_error(runs), expected, 1e-12) << "fitted and crowded runs do not count";
  for (cost::MeasuredRun& run : runs) run.step_time_spread = 0.2;
  EXPECT_TRUE(std::isnan(held_out_error(runs))) << "runs that spread over 10 % are listed, not judged";
}

TEST(Texts, MatchTheirGoldenFiles) {
  sample::expect_golden("plan.txt", plan_text(sample::search(), kUnicode));
  sample::expect_golden("plan-ascii.txt", plan_text(sample::search(), kAscii));
  sample::expect_golden("simulate.txt", prediction_text(sample::prediction(), kUnicode));
  sample::expect_golden("calibrate.txt", fit_text(sample::fit(), kUnicode));
  sample::expect_golden("runs.txt", runs_text(sample::runs(), kUnicode));
  sample::expect_golden("scaling.txt", scaling_text(sample::scaling(), kUnicode));
}

TEST(PlanText, SaysWhenNothingFitsAndLeavesTheAdviceToTheError) {
  cost::SearchResult none;
  none.candidates = 12;
  none.rejected = {{"memory", 12}};
  none.nearest = {"the smallest plan needs 96 GiB of 80 GiB: allow recomputation"};
  const std::string text = plan_text(none, kAscii);
  EXPECT_THAT(text, testing::HasSubstr("No feasible plan"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("allow recomputation"))) << "it would stand there twice";
}

TEST(Texts, AreAsciiWhenAsked) {
  for (const std::string& text :
       {plan_text(sample::search(), kAscii), prediction_text(sample::prediction(), kAscii),
        fit_text(sample::fit(), kAscii), runs_text(sample::runs(), kAscii), scaling_text(sample::scaling(), kAscii)}) {
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
    EXPECT_EQ(text.find('?'), std::string::npos) << "a character without an ASCII form";
  }
}

}  // namespace table_test
}  // namespace orrery::reports
