/// Chrome traces: valid JSON, events that never overlap on a thread, arrows that point forward, memory that adds up.
#include "reports/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/spans.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace trace_test {

using nlohmann::json;

std::vector<json> events(const json& trace, const std::string& phase) {
  std::vector<json> out;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) out.push_back(event);
  return out;
}

class TraceOf : public testing::TestWithParam<plan::Origin> {
 protected:
  plan::Schedule schedule = sample::schedule();
  plan::Timeline timeline = sample::timeline(schedule, GetParam());
  json trace = json::parse(trace_json(timeline, schedule, {.all_ranks = true}));
};

TEST_P(TraceOf, EventsOfAThreadAreInOrderAndNeverOverlap) {
  std::map<std::pair<int, int>, double> last_end;
  for (const json& event : events(trace, "X")) {
    EXPECT_GE(event["dur"].get<double>(), 0);
    double& end = last_end[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>(), end - 1e-9) << event;
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_GE(last_end.size(), 4U);
}

TEST_P(TraceOf, EverySpanOfTheIterationIsOneEventBesidesWaiting) {
  const int iteration = typical_iteration(timeline);
  const auto expected = std::count_if(timeline.spans.begin(), timeline.spans.end(),
                                      [&](const plan::Span& s) { return s.iteration == iteration; });
  const std::vector<json> all = events(trace, "X");
  const auto shown = std::count_if(all.begin(), all.end(), [](const json& e) { return e["cat"] != "waiting"; });
  EXPECT_EQ(shown, expected);
  EXPECT_GT(std::ssize(all), shown) << "the sample waits for messages";
}

TEST_P(TraceOf, EveryMessageHasAnArrowThatPointsForwardAndEndsInsideTheReceive) {
  const std::vector<json> starts = events(trace, "s"), ends = events(trace, "f");
  const std::size_t messages = GetParam() == plan::Origin::measured ? 16 : 8;
  ASSERT_EQ(starts.size(), messages);
  ASSERT_EQ(ends.size(), messages);
  for (std::size_t i = 0; i < messages; ++i) {
    EXPECT_EQ(starts[i]["id"], ends[i]["id"]);
    EXPECT_NE(starts[i]["pid"], ends[i]["pid"]);
    EXPECT_LE(starts[i]["ts"].get<double>(), ends[i]["ts"].get<double>());
    const std::vector<json> all = events(trace, "X");
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const json& e) {
      const double from = e["ts"], to = from + e["dur"].get<double>(), at = ends[i]["ts"];
      return e["pid"] == ends[i]["pid"] && e["tid"] == ends[i]["tid"] && from <= at && at <= to;
    }));
  }
}

TEST_P(TraceOf, IsTheSameEveryTime) {
  EXPECT_EQ(trace_json(timeline, schedule), trace_json(timeline, schedule));
  std::reverse(timeline.spans.begin(), timeline.spans.end());
  EXPECT_EQ(json::parse(trace_json(timeline, schedule, {.all_ranks = true})), trace)
      << "the order of spans is no matter";
}

INSTANTIATE_TEST_SUITE_P(Trace, TraceOf, testing::Values(plan::Origin::predicted, plan::Origin::measured),
                         [](const auto& it) { return it.param == plan::Origin::predicted ? "Predicted" : "Measured"; });

TEST(Trace, ShowsOneRankPerClassUnlessAskedForAll) {
  const plan::Schedule schedule = sample::schedule();
  const plan::Timeline timeline = sample::timeline(schedule, plan::Origin::measured);
  const auto ranks = [&](bool all) {
    std::set<int> pids;
    for (const json& e : events(json::parse(trace_json(timeline, schedule, {.all_ranks = all})), "X"))
      pids.insert(e["pid"].get<int>());
    return pids;
  };
  EXPECT_EQ(ranks(false), (std::set<int>{0, 2}));
  EXPECT_EQ(ranks(true), (std::set<int>{0, 1, 2, 3}));
}

TEST(Trace, MemoryRisesWithEachMicroBatchInFlightAndReturnsToTheWeights) {
  const plan::Schedule schedule = sample::schedule();
  const plan::Timeline timeline = sample::timeline(schedule, plan::Origin::predicted);
  const std::vector<MemoryPoint> points = memory_of(spans_of(timeline, schedule, 0, 0), schedule);
  const auto total = [](const MemoryPoint& p) {
    std::int64_t sum = 0;
    for (const auto& [purpose, bytes] : p.bytes) sum += bytes;
    return sum;
  };
  const std::int64_t persistent = 2 * (std::int64_t{4} << 20), saved = std::int64_t{4} << 19;
  EXPECT_EQ(total(points.front()), persistent + saved) << "the first micro-batch begins at once";
  EXPECT_EQ(total(points.back()), persistent) << "everything else was freed";
  std::int64_t peak = 0;
  for (const MemoryPoint& p : points) {
    const auto activations = p.bytes.find(plan::Purpose::activations);
    if (activations != p.bytes.end()) peak = std::max(peak, activations->second);
  }
  EXPECT_EQ(peak, 2 * saved) << "1F1B holds two micro-batches on the first of two stages";
}

TEST(Trace, MovesOverlappingMeasuredSpansApart) {
  const plan::Schedule schedule = sample::schedule();
  plan::Timeline timeline = sample::timeline(schedule, plan::Origin::predicted);
  for (plan::Span& s : timeline.spans) s.start = std::max(0.0, s.start - 2e-6);  // clock noise
  const json trace = json::parse(trace_json(timeline, schedule));
  std::map<std::pair<int, int>, double> last_end;
  for (const json& event : events(trace, "X")) {
    double& end = last_end[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>(), end - 1e-9);
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
}

TEST(Trace, MatchesItsGoldenFile) {
  const plan::Schedule schedule = sample::schedule();
  sample::expect_golden("trace.json", trace_json(sample::timeline(schedule, plan::Origin::predicted), schedule));
}

TEST(Spans, KnowsATimelineOfAnotherSchedule) {
  const plan::Schedule schedule = sample::schedule();
  plan::Timeline timeline = sample::timeline(schedule, plan::Origin::predicted);
  EXPECT_TRUE(belongs(timeline, schedule));
  timeline.spans.front().at.entry = 99;
  EXPECT_FALSE(belongs(timeline, schedule));
  timeline.spans.front().at = {0, 77};
  EXPECT_FALSE(belongs(timeline, schedule));
  timeline.spans.front().rank = 4;
  EXPECT_FALSE(belongs(timeline, schedule));
}

TEST(Spans, TakesTheIterationOfMedianLength) {
  const plan::Schedule schedule = sample::schedule();
  EXPECT_EQ(typical_iteration(sample::timeline(schedule, plan::Origin::measured)), 1);
  EXPECT_EQ(typical_iteration(plan::Timeline{}), 0);
}

}  // namespace trace_test
}  // namespace orrery::reports
