/// The HTML report without a browser: parts come and go with their data, nothing escapes its place, nothing is fetched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "reports/html/page.h"
#include "reports/report.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace html_test {

using testing::HasSubstr;
using testing::Not;

ChartLibrary library() {
  ChartLibrary out;
  out.version = "test";
  for (std::size_t i = 0; i < chart_library_files().size(); ++i)
    out.parts.push_back("exports.x = " + std::to_string(i) + ";");
  return out;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

/// The specifications in a page, as JSON.
std::vector<nlohmann::json> specs(const std::string& page) {
  std::vector<nlohmann::json> out;
  const std::string open = "class=\"spec\"";
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
    const std::size_t from = page.find('>', at) + 1;
    out.push_back(nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from)));
  }
  return out;
}

TEST(Report, HasAChartForEachPartAndATableBehindEachChart) {
  const std::string page = report_html(sample::report(), library());
  EXPECT_EQ(specs(page).size(), 12U);
  EXPECT_EQ(count(page, "<figure"), 12U);
  EXPECT_EQ(count(page, "<details><summary>Data</summary>\n<div class=\"scroll\"><table>"), 12U);
  EXPECT_EQ(count(page, "role=\"img\" aria-label=\""), 12U);
  for (const char* heading :
       {"Timeline, predicted and measured", "Where the step goes", "Memory by stage", "Predicted against measured",
        "Calibration", "Money and time of the run", "Throughput per device", "Scaling efficiency",
        "Efficiency lost from size to size", "Device time per token by cause", "Memory by size", "Training loss",
        "Calibrated parameters", "Plans considered", "Provenance"})
    EXPECT_THAT(page, HasSubstr(heading));
}

TEST(Report, LeavesOutWhatIsAbsent) {
  ReportData data;
  data.title = "empty";
  const std::string empty = report_html(data, library());
  EXPECT_EQ(count(empty, "<figure"), 0U);
  EXPECT_THAT(empty, Not(HasSubstr("Plans considered")));
  data = sample::report();
  data.measured.reset();
  data.run.reset();
  data.fit.reset();
  data.scaling.reset();
  const std::string page = report_html(data, library());
  EXPECT_EQ(count(page, "<figure"), 5U);
  EXPECT_THAT(page, Not(HasSubstr("Measured —")));
  EXPECT_THAT(page, Not(HasSubstr("Scaling efficiency")));
}

TEST(Report, DrawsNeitherTimelineWithoutItsSchedule) {
  ReportData data = sample::report();
  data.schedule.reset();
  EXPECT_THAT(report_html(data, library()), Not(HasSubstr("Timeline")));
}

TEST(Report, ShowsOpenTablesWhereTheLibraryIsAbsent) {
  const std::string page = report_html(sample::report(), {});
  EXPECT_EQ(specs(page).size(), 0U);
  EXPECT_EQ(count(page, "<script"), 0U);
  EXPECT_EQ(count(page, "<details open>"), 12U);
  EXPECT_THAT(page, HasSubstr("tables only"));
}

TEST(Report, EscapesTextsFromInputs) {
  ReportData data = sample::report();
  data.title = "<b>&\"'</b>";
  data.runs[0].directory = "</script><script>alert(1)</script>";
  data.fit->residuals[0].what = "</script><script>alert(2)</script>\u2028";
  data.provenance[0].value = "<img src=x>";
  const std::string page = report_html(data, library());
  EXPECT_THAT(page, HasSubstr("<h1>&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;</h1>"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_EQ(count(page, "<script"), 13U) << "twelve specifications and the library";
  EXPECT_EQ(count(page, "</script"), 13U);
  EXPECT_EQ(specs(page).size(), 12U) << "each is still valid JSON";
}

TEST(Prose, ShowsWhatStandsBetweenBackticksAsCodeAndEscapesAll) {
  EXPECT_EQ(html::prose("run `orrery plan A<B` & see"), "run <code>orrery plan A&lt;B</code> &amp; see");
  EXPECT_EQ(html::prose("`a` or `b`"), "<code>a</code> or <code>b</code>");
  EXPECT_EQ(html::prose("one ` alone"), "one ` alone");
  EXPECT_EQ(html::prose(""), "");
}

TEST(Prose, BreaksNoLineBetweenANumberAndItsUnit) {
  EXPECT_EQ(html::prose("took 674 ms of 17.0 s (4.0 %)."), "took 674\u00a0ms of 17.0\u00a0s (4.0\u00a0%).");
  EXPECT_EQ(html::prose("15.2–22.2 s, `4 ms` as code"), "15.2–\u206022.2\u00a0s, <code>4 ms</code> as code");
  EXPECT_EQ(html::prose("two words – and 3 of them "), "two words – and 3 of them ") << "no unit, no range";
}

TEST(Report, KeepsTheLibraryInsideItsElement) {
  ChartLibrary hostile = library();
  hostile.parts[0] = "var s = '</script><!--';\n//# sourceMappingURL=x.map";
  hostile.licence = "free -- for --> all";
  const std::string page = report_html(sample::report(), hostile);
  EXPECT_THAT(page, HasSubstr("<\\/script><\\!--"));
  EXPECT_THAT(page, Not(HasSubstr("sourceMappingURL")));
  EXPECT_THAT(page, HasSubstr("free - - for - -> all"));
}

TEST(Report, NamesNoResourceElsewhere) {
  const std::string page = report_html(sample::report(), library());
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"?(https?:)?//")));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(Report, NamesItsChartsAndLetsTheKeyboardReachThem) {
  const std::string page = report_html(sample::report(), library());
  EXPECT_THAT(page, HasSubstr("view.description(name)")) << "else each is a \"Vega visualization\"";
  EXPECT_THAT(page, HasSubstr("plot.tabIndex = 0"));
}

TEST(Report, IsTheSameEveryTime) {
  EXPECT_EQ(report_html(sample::report(), library()), report_html(sample::report(), library()));
}

TEST(TimelineChart, MergesTouchingStepsAndKeepsTheirTime) {
  const ReportData data = sample::report();
  const html::Chart chart = html::timeline_chart(data);
  const nlohmann::json panels = sample::rows_of(chart, "panels");
  ASSERT_EQ(panels.size(), 2U);
  const nlohmann::json& bars = panels[0]["spans"];
  double forward = 0;
  for (const auto& bar : bars)
    if (bar["c"] == "var(--forward)") forward += bar["b"].get<double>() - bar["a"].get<double>();
  EXPECT_NEAR(forward, 2 * 4 * 4.1, 1e-6) << "two stages, four micro-batches of 4.1 ms each, in ms";
  const auto labelled = std::count_if(bars.begin(), bars.end(), [](const auto& bar) { return bar.contains("label"); });
  EXPECT_EQ(labelled, 2 * 4 * 2) << "attention and mlp of a micro-batch touch and are one bar";
}

TEST(TimelineChart, StaysSmallForManySpans) {
  ReportData data = sample::report();
  data.measured.reset();
  plan::Timeline& timeline = *data.predicted;
  timeline.spans.clear();
  for (int i = 0; i < 60000; ++i) {  // steps of two micro-batches in turn with gaps, on one rank
    const int entry = i % 2;
    timeline.spans.push_back({0, 0, {entry, 0}, entry, i * 1e-3, i * 1e-3, i * 1e-3 + 0.4e-3});
  }
  const html::Chart chart = html::timeline_chart(data);
  EXPECT_LE(sample::rows_of(chart, "panels")[0]["spans"].size(), 12000U);
  EXPECT_LT(html::embedded(chart.spec).size(), 4U << 20U);
  EXPECT_EQ(chart.data[0].rows[0][1], "24.0 s") << "no time is lost by drawing less";
}

/// `n` passes of a millisecond each on one rank: three of ten are forward.
ReportData many_passes(int n) {
  ReportData data = sample::report();
  data.measured.reset();
  const plan::RankClass& rank = data.schedule->classes.front();
  const auto first = [&](SpanKind kind) {
    for (std::int32_t entry = 0; entry < std::ssize(rank.program); ++entry) {
      const auto& steps =
          rank.blocks[static_cast<std::size_t>(rank.program[static_cast<std::size_t>(entry)].block)].steps;
      for (std::int32_t step = 0; step < std::ssize(steps); ++step)
        if (span_kind_of(steps[static_cast<std::size_t>(step)]) == kind) return plan::StepRef{entry, step};
    }
    return plan::StepRef{};
  };
  const plan::StepRef forward = first(SpanKind::forward), backward = first(SpanKind::backward);
  data.predicted->spans.clear();
  for (int i = 0; i < n; ++i) {
    const double at = i * 1e-3;
    data.predicted->spans.push_back({0, 0, i % 10 < 3 ? forward : backward, i % 7, at, at, at + 0.9e-3});
  }
  return data;
}

TEST(TimelineChart, DividesABarOfSeveralPassesByWhatItHolds) {
  const nlohmann::json bars = sample::rows_of(html::timeline_chart(many_passes(60000)), "panels")[0]["spans"];
  double forward = 0, all = 0;
  for (const nlohmann::json& bar : bars) {
    const double area = (bar["b"].get<double>() - bar["a"].get<double>()) * bar["h"].get<double>();
    all += area;
    if (bar["c"] == "var(--forward)") forward += area;
    EXPECT_LE(bar["y"].get<double>() + bar["h"].get<double>(), 1 + 1e-9);
  }
  EXPECT_NEAR(forward / all, 0.3, 0.01) << "the colours show as much forward time as there is";
  EXPECT_THAT(html::timeline_chart(many_passes(60000)).text, HasSubstr("divided from top to bottom"));
}

TEST(TimelineChart, DrawsEveryPassByItselfWhereThereIsRoom) {
  const html::Chart chart = html::timeline_chart(many_passes(9000));
  const nlohmann::json bars = sample::rows_of(chart, "panels")[0]["spans"];
  EXPECT_EQ(bars.size(), 9000U);
  EXPECT_TRUE(std::all_of(bars.begin(), bars.end(), [](const auto& bar) { return bar["h"] == 1; }));
  EXPECT_THAT(chart.text, Not(HasSubstr("divided from top to bottom")));
}

TEST(TimelineChart, KeepsALongWaitThatStandsAmongManySpans) {
  ReportData data = sample::report();
  data.measured.reset();
  plan::Timeline& timeline = *data.predicted;
  timeline.spans.clear();
  double at = 0;
  for (int i = 0; i < 60000; ++i) {  // as above, and every ten thousand steps the rank waits for 3 s of 78 s
    if (i % 10000 == 5000) at += 3;
    timeline.spans.push_back({0, 0, {i % 2, 0}, i % 2, at, at, at + 0.4e-3});
    at += 1e-3;
  }
  const nlohmann::json bars = sample::rows_of(html::timeline_chart(data), "panels")[0]["spans"];
  EXPECT_LE(bars.size(), 12000U);
  int waits = 0;
  double before = 0;
  for (const nlohmann::json& bar : bars) {
    waits += bar["a"].get<double>() - before > 2.5 ? 1 : 0;
    before = bar["b"];
  }
  EXPECT_EQ(waits, 6) << "no bar is drawn over a wait";
}

TEST(Specifications, HaveNumbersOfSevenDigitsInAscii) {
  const nlohmann::json spec = {{"values", {1.0 / 3, 123456789.0, 0.3, 7}}, {"text", "µ"}};
  EXPECT_EQ(html::text_of_spec(spec), R"({"text":"\u00b5","values":[0.3333333,123456800.0,0.3,7]})");
}

TEST(Tables, GiveTextInTheLastColumnAWidthOfItsOwn) {
  const std::string words(60, 'w');
  const Table table{"", {{"a", Align::left}, {"b", Align::left}}, {{"x", "short"}, {"y", words}}, {}};
  EXPECT_THAT(html::table_html(table), HasSubstr("<td>y</td><td><span class=\"w\">" + words + "</span></td>"));
  EXPECT_THAT(html::table_html({"", table.columns, {table.rows[0]}, {}}), HasSubstr("<td>x</td><td>short</td>"));
}

TEST(MemoryChart, DrawsTheCapacityOnlyWhereItCanBeSeen) {
  cost::Prediction p = sample::prediction();
  EXPECT_EQ(sample::rows_of(html::memory_chart(p, {}), "capacity").size(), 1U);
  p.memory_capacity_bytes *= 1000;
  const html::Chart chart = html::memory_chart(p, {});
  EXPECT_EQ(sample::rows_of(chart, "capacity").size(), 0U);
  EXPECT_THAT(chart.text, HasSubstr("far above the chart"));
}

TEST(LogTicks, ArePowersOfTenOverManyDecadesAndFinerOverFew) {
  EXPECT_EQ(html::log_ticks(0.0005, 9), (nlohmann::json{0.001, 0.01, 0.1, 1.0}));
  EXPECT_EQ(html::log_ticks(25, 250), (nlohmann::json{50.0, 100.0, 200.0}));
  EXPECT_EQ(html::log_ticks(6.5, 9.5), (nlohmann::json{7.0, 8.0, 9.0}));
  EXPECT_EQ(html::log_ticks(1.1, 1.3), (nlohmann::json{1.1, 1.2, 1.3}));
  EXPECT_EQ(html::log_ticks(120379.9, 207209.9), (nlohmann::json{140000.0, 160000.0, 180000.0, 200000.0}))
      << "round numbers, not the ends of the axis";
}

}  // namespace html_test
}  // namespace orrery::reports
