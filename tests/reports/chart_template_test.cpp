/// The templates of charts: each is a specification that stands for itself, some chart fills it, and a name that a
/// template does not have, or a sample that would stay, aborts.
#include "reports/html/chart_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/html/plan_charts.h"
#include "reports/html/scaling_charts.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace chart_template_test {

using html::chart_spec;
using nlohmann::json;

json template_of(const std::string& name) {
  for (const html::ChartFile& file : html::chart_files())
    if (file.name == name + ".vg.json") return json::parse(file.text);
  return {};
}

/// A chart of each function, from the samples.
std::vector<html::Chart> all_charts() {
  const ReportData data = sample::plan_report();
  cost::Validation published;
  published.rows.resize(1);
  published.rows[0].source = "paper";
  published.rows[0].predicted_s = 1.1;
  published.rows[0].measured_s = 1;
  published.by_source = {{"paper", {1, 0.1, 0.1, 0.1}}};
  cost::ScalingStudy study = sample::scaling();
  for (const char* model : {"tiny-gpt", "other"})
    for (const char* cluster : {"localhost-8", "larger"}) {
      study.series.push_back(study.series.front());
      study.series.back().model = model;
      study.series.back().cluster = cluster;
    }
  study.series.erase(study.series.begin());
  std::vector<html::Chart> out = html::scaling_charts(study);
  for (html::Chart& chart : std::vector<html::Chart>{
           html::timeline_chart(sample::report()), html::breakdown_chart(sample::prediction().breakdown, {}),
           html::memory_chart(sample::prediction(), {}), html::runs_chart(sample::runs()),
           html::residuals_chart(sample::fit()), html::published_scatter(published), html::sources_chart(published),
           html::loss_chart({3, 2}), html::tornado_chart(*data.page, sample::prediction()),
           html::roofline_chart(sample::operators()), html::pareto_chart(sample::search(), {}),
           html::topology_chart(data.page->topology, "c"), html::goodput_chart(sample::whole_run())})
    out.push_back(std::move(chart));
  return out;
}

TEST(ChartTemplates, AreSpecificationsWithASampleEach) {
  const std::vector<std::string> names = sample::chart_names();
  EXPECT_EQ(names.size() + 1, html::chart_files().size()) << "and config.json";
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const json spec = template_of(name);
    EXPECT_EQ(spec.value("$schema", ""), "https://vega.github.io/schema/vega/v5.json");
    EXPECT_FALSE(spec.contains("config")) << "the page's own is shared";
    std::set<std::string> seen;
    for (const char* list : {"data", "signals"})
      for (const json& one : spec.at(list)) EXPECT_TRUE(seen.insert(list + one.at("name").get<std::string>()).second);
    for (const json& one : spec.at("data")) EXPECT_NE(one.value("values", json{0}).size(), 0U) << "nothing to see";
  }
}

TEST(ChartTemplates, AreEachFilledBySomeChartWithEveryNameThatTheyHave) {
  const std::vector<html::Chart> charts = all_charts();  // aborts if a name is missing on either side
  for (const std::string& name : sample::chart_names())
    EXPECT_TRUE(std::any_of(charts.begin(), charts.end(),
                            [&, marks = template_of(name).at("marks")](const html::Chart& chart) {
                              return json::parse(chart.spec).at("marks") == marks;
                            }))
        << name;
}

TEST(ChartTemplates, KeepWhatTheyAreGivenAndGetThePagesFonts) {
  const json spec = json::parse(chart_spec("loss", {{"loss", {{{"s", 1}, {"l", 2.5}}}}}, json::object()));
  EXPECT_EQ(spec.at("data")[0].at("values"), (json{{{"s", 1}, {"l", 2.5}}}));
  EXPECT_FALSE(spec.contains("$schema")) << "a page names no address";
  EXPECT_EQ(spec.at("config").at("title").at("color"), "var(--ink)");
  EXPECT_EQ(json::parse(chart_spec("topology", {{"lines", json::array()}, {"boxes", json::array()}}, {{"height", 62}}))
                .at("signals")[1],
            (json{{"name", "height"}, {"value", 62}}));
}

TEST(ChartTemplatesDeathTest, AbortOnWhatTheyDoNotKnowAndOnSamplesThatStay) {
  const json none = json::object(), rows = json::array();
  EXPECT_DEATH((void)chart_spec("lost", none, none), "has no lost.vg.json");
  EXPECT_DEATH((void)chart_spec("loss", {{"loss", rows}, {"gain", rows}}, none), "no values is called gain");
  EXPECT_DEATH((void)chart_spec("loss", {{"loss", rows}}, {{"colour", "red"}}), "no value is called colour");
  EXPECT_DEATH((void)chart_spec("loss", {{"loss", rows}}, {{"width", 100}}), "no value is called width");
  EXPECT_DEATH((void)chart_spec("loss", none, none), "loss keeps its sample");
  EXPECT_DEATH((void)chart_spec("breakdown", {{"parts", rows}}, {{"longest", 1}}), "keeps its sample");
}

}  // namespace chart_template_test
}  // namespace orrery::reports
