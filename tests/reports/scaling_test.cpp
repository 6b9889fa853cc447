// A scaling study as text, Markdown, CSV, JSON and charts.
#include "reports/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "reports/html/scaling_charts.h"
#include "reports/tables/markdown.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace scaling_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

/// Two models on two clusters.
cost::ScalingStudy several() {
  cost::ScalingStudy study = sample::scaling();
  for (const char* model : {"tiny-gpt", "other"})
    for (const char* cluster : {"localhost-8", "larger"}) {
      cost::ScalingSeries series = sample::scaling().series[0];
      series.model = model;
      series.cluster = cluster;
      study.series.push_back(std::move(series));
    }
  study.series.erase(study.series.begin());
  return study;
}

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(ScalingText, FitsEightyColumns) {
  std::istringstream lines(scaling_text(several(), {true, false, 80}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80U) << line;
}

TEST(ScalingText, OfManySeriesComparesThemAndLeavesTheirCausesToAll) {
  const std::string brief = scaling_text(several(), {true, false, 0});
  const std::string all = scaling_text(several(), {true, false, 0}, true);
  for (const std::string& text : {brief, all}) EXPECT_THAT(text, HasSubstr("growth pays up to"));
  EXPECT_THAT(brief, AllOf(HasSubstr("--all"), HasSubstr("tok/s/rank by devices"),
                           Not(HasSubstr("Efficiency lost from size to size"))));
  EXPECT_EQ(times_in(all, "Efficiency lost from size to size"), several().series.size());
  EXPECT_THAT(scaling_text(sample::scaling(), {true, false, 0}), Not(HasSubstr("growth pays up to")));  // one alone
}

TEST(ScalingText, SaysWhereGrowthStopsPayingAndWhatItCosts) {
  const std::string text = scaling_text(sample::scaling(), {false, false, 0});
  EXPECT_THAT(text, HasSubstr("Growth pays up to 4 devices; 8 is the first size"));
  EXPECT_THAT(
      text,
      HasSubstr("2 -> 4 devices: data 2 -> 4; 73 % of what is added becomes throughput; most is lost to data comm."));
  EXPECT_THAT(text, HasSubstr("16 devices: none of 12 plans is feasible"));
  EXPECT_THAT(text, HasSubstr("A paper (pub1)"));
  EXPECT_THAT(text, HasSubstr("480 g/kWh (a source)"));
}

TEST(ScalingText, OfADeadlineThatNothingMeetsNamesTheNearest) {
  cost::ScalingStudy study = sample::scaling();
  study.deadline_s = 864;
  study.ways = {{"tiny-gpt", {}, {}, {}, cost::Place{0, 3}}};
  ASSERT_THAT(run_advice(study), SizeIs(1));
  EXPECT_THAT(run_advice(study)[0], HasSubstr("within 0.01 days: no size does it. Nearest: 8 devices"));
}

TEST(ScalingHeading, SaysForWhichSizesEvidenceIsWhereItDiffers) {
  cost::ScalingSeries series = sample::scaling().series[0];
  std::size_t planned = 0;
  for (cost::ScalingPoint& point : series.points)
    if (point.best) point.stack = "software", point.evidence_text = "five runs", ++planned;
  ASSERT_GE(planned, 2U);
  EXPECT_THAT(series_heading(series), testing::Contains("Evidence for software: five runs"));
  const auto last =
      std::find_if(series.points.rbegin(), series.points.rend(), [](const auto& point) { return point.best; });
  last->evidence_text = "no run";
  const std::vector<std::string> lines = series_heading(series);
  EXPECT_THAT(lines.back(), "Evidence for software (" + count_text(last->devices) + " devices): no run");
  EXPECT_THAT(lines[lines.size() - 2], testing::ContainsRegex("\\([0-9, ]+ devices\\): five runs"));
}

TEST(ScalingNames, AreWhatTellsSeriesApart) {
  const cost::ScalingStudy study = several();
  EXPECT_EQ(series_name(study, 0), "tiny-gpt on localhost-8");
  EXPECT_EQ(series_name(study, 3), "other on larger");
  cost::ScalingStudy batches = sample::scaling();
  batches.series.push_back(batches.series[0]);
  batches.series[1].batch = 128;
  EXPECT_EQ(series_name(batches, 1), "batch 128");
}

TEST(ScalingTables, LossesSumToTheChange) {
  const Table table = losses_table(sample::scaling().series[0]);
  ASSERT_EQ(table.rows.size(), 3U);
  for (const auto& row : table.rows) EXPECT_EQ(row[2], row[3]) << "one cause takes all";
}

TEST(ScalingCsv, HasALineForEachPointAndAsManyFieldsAsItsHead) {
  cost::ScalingStudy study = sample::scaling();
  study.series[0].model = "a \"b\"; c";
  std::istringstream lines(scaling_csv(study));
  std::vector<std::size_t> fields;
  for (std::string line; std::getline(lines, line);) {
    std::size_t n = 1;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) ++n;
    }
    fields.push_back(n);
  }
  ASSERT_THAT(fields, SizeIs(6));
  EXPECT_THAT(fields, Each(fields.front()));
  EXPECT_THAT(scaling_csv(study), HasSubstr("\"a \"\"b\"\"; c\""));
}

TEST(ScalingMarkdown, HasTablesThatNoNameBreaks) {
  cost::ScalingStudy study = sample::scaling();
  study.series[0].measured[0].source = "a|b\n# c <script>";
  const std::string text = scaling_markdown(study, "tiny-gpt on localhost-8");
  EXPECT_THAT(text, HasSubstr("# tiny-gpt on localhost-8\n"));
  EXPECT_THAT(text, HasSubstr("a\\|b \\# c \\<script\\>"));
  EXPECT_THAT(text, HasSubstr("| devices | step |"));
}

TEST(ScalingJson, KeepsPointsWithoutAPlanInTheStudyAlone) {
  const nlohmann::json study = scaling_json(sample::scaling());
  EXPECT_EQ(study["series"][0]["points"].size(), 5U);
  EXPECT_TRUE(study["series"][0]["points"][4]["plan"].is_null());
  EXPECT_THAT(study["series"][0]["points"][4]["reason"].get<std::string>(), HasSubstr("memory"));
  const nlohmann::json points = scaling_points_json(sample::scaling());
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[1]["measured_s"], 0.118) << "of that very plan";
  EXPECT_TRUE(points[2]["measured_s"].is_null()) << "another plan was measured";
  EXPECT_EQ(nlohmann::json::parse(scaling_json_file(sample::scaling(), "t"))["scaling_study"]["study"], study);
}

TEST(ScalingCharts, HaveAPanelForEachSeriesAndAMapOfTwoSweptDimensions) {
  const auto one = html::scaling_charts(sample::scaling());
  EXPECT_THAT(one, SizeIs(6)) << "nothing is swept";
  const auto charts = html::scaling_charts(several());
  ASSERT_THAT(charts, SizeIs(7)) << "money first, the map last";
  for (std::size_t i = 1; i < 6; ++i) EXPECT_EQ(sample::rows_of(charts[i], "panels").size(), 4U) << charts[i].title;
  EXPECT_EQ(charts[6].title, "MFU by model and cluster");
  const nlohmann::json maps = sample::rows_of(charts[6], "panels");
  ASSERT_EQ(maps.size(), 5U) << "a map for each size";
  EXPECT_EQ(maps[0]["cells"].size(), 4U);
  EXPECT_EQ(maps[4]["cells"][0]["text"], "—") << "no plan fits";
}

TEST(ScalingCharts, LeadFromTheEfficiencyOfASizeToTheNextByWhatEachCauseTakes) {
  const cost::ScalingStudy study = sample::scaling();
  const auto charts = html::scaling_charts(study);
  const auto losses = std::find_if(charts.begin(), charts.end(), [](const auto& chart) {
    return chart.title == "Efficiency lost from size to size";
  });
  ASSERT_NE(losses, charts.end());
  const nlohmann::json panel = sample::rows_of(*losses, "panels")[0];
  ASSERT_EQ(panel["levels"].size(), 4U);
  double level = panel["levels"][0]["v"];
  std::size_t next = 1;
  for (const nlohmann::json& step : panel["rows"]) {
    while (next < 4 && panel["levels"][next]["i"] < step["i"]) {
      EXPECT_NEAR(panel["levels"][next]["v"].get<double>(), level, 6e-3);
      level = panel["levels"][next++]["v"];
    }
    EXPECT_NEAR(step["from"].get<double>(), level, 6e-3) << "a step begins where the one before it ends";
    level = step["to"];
  }
  EXPECT_EQ(next, 3U) << "every size but the first is led to";
  EXPECT_NEAR(panel["levels"][3]["v"].get<double>(), level, 6e-3);
  EXPECT_GT(panel["extent"][0].get<double>(), 0) << "losses are not slivers of a whole bar";
  for (std::size_t at = 1; at < 4; ++at)
    EXPECT_GE(panel["levels"][at]["i"].get<int>() - panel["levels"][at - 1]["i"].get<int>(), 4)
        << "room for a label, also where nothing is lost";
}

TEST(ScalingCharts, OfOneSizeDrawNoLinesOverSizes) {
  cost::ScalingStudy study = sample::scaling();
  study.series[0].points.resize(1);
  for (const html::Chart& chart : html::scaling_charts(study))
    for (const char* line : {"Throughput per device", "Scaling efficiency", "Efficiency lost", "Money and time"})
      EXPECT_THAT(chart.title, testing::Not(HasSubstr(line)));
}

TEST(ScalingCharts, SayTheWholeTitleOfAPanelInTwoLinesWhereThePageIsNarrow) {
  cost::ScalingStudy study = several();
  for (std::size_t i = 0; i < study.series.size(); ++i)
    study.series[i].cluster += std::string(" of a name that is very long indeed, number ") + std::to_string(i);
  const nlohmann::json panel = sample::rows_of(html::scaling_charts(study)[1], "panels")[0];
  std::string all;
  for (const nlohmann::json& line : panel["lines"]) all += (all.empty() ? "" : " ") + line.get<std::string>();
  EXPECT_EQ(all, series_name(study, 0));
  EXPECT_EQ(panel["lines"].size(), 2U);
}

TEST(ScalingCharts, PutPanelsBelowEachOtherWhereThePageIsNarrow) {
  const nlohmann::json spec = nlohmann::json::parse(html::scaling_charts(several())[1].spec);
  EXPECT_FALSE(spec.contains("height")) << "it follows the number of columns";
  std::set<std::string> signals;
  for (const nlohmann::json& signal : spec["signals"]) signals.insert(signal["name"]);
  EXPECT_THAT(signals, testing::IsSupersetOf({"width", "height", "columns", "panel"}));
  for (const nlohmann::json& panels : spec["marks"])
    EXPECT_THAT(panels["encode"]["update"]["y"]["signal"].get<std::string>(), HasSubstr("columns"));
}

TEST(ScalingCharts, ShareAScaleWhereSeriesAreAlikeAndKeepTheirOwnWhereNot) {
  const auto domain = [](const cost::ScalingStudy& study, std::size_t series) {
    return sample::rows_of(html::scaling_charts(study)[1], "panels")[series]["high"].get<double>();
  };
  cost::ScalingStudy study = several();
  for (cost::ScalingPoint& point : study.series[1].points) {
    point.tokens_per_s_per_device *= 2;
    point.tokens_per_s_per_device_interval.reset();
  }
  EXPECT_EQ(domain(study, 0), domain(study, 1));
  for (cost::ScalingPoint& point : study.series[1].points) point.tokens_per_s_per_device *= 50;
  EXPECT_LT(domain(study, 0), domain(study, 1));
}

TEST(ScalingCharts, DrawMoneyOverTimeOfABudgetAlone) {
  const cost::ScalingStudy with = sample::scaling();
  ASSERT_TRUE(with.tokens);
  const auto chart = html::scaling_costs(with);
  ASSERT_TRUE(chart);
  EXPECT_EQ(chart->data[0].rows.size(), run_costs_table(with.series[0]).rows.size());
  cost::ScalingStudy without = with;
  for (cost::ScalingPoint& point : without.series[0].points) point.run.reset();
  EXPECT_FALSE(html::scaling_costs(without));
}

TEST(ScalingPage, BeginsWithTheSeriesSideBySide) {
  const cost::ScalingStudy study = several();
  const Table table = side_by_side_table(study);
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_EQ(table.rows[3][0], "other on larger");
  EXPECT_EQ(table.rows[0][1], "8") << "the largest size that has a plan";
  EXPECT_THAT(html::scaling_lead(study), HasSubstr("Side by side"));
  EXPECT_THAT(html::scaling_lead(sample::scaling()), HasSubstr("Size by size"));
  EXPECT_THAT(scaling_subtitle(study), HasSubstr("Strong scaling, 1 to 16 devices"));
}

TEST(ScalingPage, ListsTheWaysOnABudgetAsRows) {
  cost::ScalingStudy study = sample::scaling();
  study.deadline_s = 864;
  study.ways = {{"tiny-gpt", {}, {}, {}, cost::Place{0, 3}}};
  ASSERT_EQ(ways_table(study).rows.size(), 1U);
  EXPECT_EQ(ways_table(study).rows[0][0], "none in time; nearest");
  EXPECT_EQ(ways_table(study).rows[0][2], "8");
  study.ways = {{"tiny-gpt", cost::Place{0, 0}, cost::Place{0, 1}, cost::Place{0, 2}, {}}};
  EXPECT_EQ(ways_table(study).rows.size(), 3U);
  study.tokens.reset();
  EXPECT_TRUE(ways_table(study).rows.empty());
}

TEST(ScalingCharts, DrawBandsAndMeasurementsWhereThereAreAny) {
  const nlohmann::json rows = sample::rows_of(html::scaling_charts(sample::scaling())[1], "panels")[0]["rows"];
  const auto drawn = [&](const char* kind) {
    return std::count_if(rows.begin(), rows.end(), [&](const auto& row) { return row["kind"] == kind; });
  };
  EXPECT_EQ(drawn("point"), 4);
  EXPECT_EQ(drawn("band"), 4);
  EXPECT_EQ(drawn("measured"), 2);
  const cost::ScalingStudy study = sample::scaling();
  const auto& measured = study.series[0].measured;
  const auto predicted =
      std::count_if(measured.begin(), measured.end(), [](const auto& m) { return m.predicted_s > 0; });
  EXPECT_EQ(drawn("of-plan"), predicted) << "of the plans that were measured";
  cost::ScalingStudy bare = sample::scaling();
  bare.series[0].points.clear();
  EXPECT_THAT(html::scaling_charts(bare), SizeIs(0));
  EXPECT_EQ(times_in(html::scaling_sections(sample::scaling()), "A paper (pub1)"), 1U);
}

}  // namespace scaling_test
}  // namespace orrery::reports
