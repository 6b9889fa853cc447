// Which steps go into one graph: never a message that outlives it, never a step that waits for one outside.
#include "exec/engine/graph_runs.h"

#include <gtest/gtest.h>

namespace orrery::exec {
namespace graph_runs_test {

TracedStep compute(std::vector<std::int64_t> ordered = {}) {
  TracedStep step;
  step.capturable = true;
  step.ordered = std::move(ordered);
  step.operators = 2;
  return step;
}
TracedStep of_the_host() {
  return {};
}
TracedStep message(std::int64_t number, std::vector<std::int64_t> behind = {}) {
  TracedStep step;
  step.capturable = true;
  step.message = number;
  step.behind = std::move(behind);
  step.operators = 1;
  return step;
}
using Runs = std::vector<GraphRun>;

TEST(GraphRuns, AreAsLongAsTheHostIsNotNeeded) {
  EXPECT_EQ(graph_runs({compute(), compute(), compute()}), (Runs{{0, 3}}));
  EXPECT_EQ(graph_runs({of_the_host(), compute(), compute(), of_the_host(), compute()}), (Runs{{1, 3}, {4, 5}}));
  EXPECT_EQ(graph_runs({of_the_host()}), Runs{});
  EXPECT_EQ(graph_runs({}), Runs{});
}

TEST(GraphRuns, OfASingleOperatorAreNotWorthAGraph) {
  TracedStep one = compute();
  one.operators = 1;
  EXPECT_EQ(graph_runs({one}), Runs{});
  EXPECT_EQ(graph_runs({one, one}), (Runs{{0, 2}}));
}

TEST(GraphRuns, HoldMessagesThatComputeInThemWaitsFor) {
  EXPECT_EQ(graph_runs({compute(), message(7), compute(), compute({7})}), (Runs{{0, 4}}));
  // Two on one stream: the second begins behind the first.
  EXPECT_EQ(graph_runs({compute(), message(1), compute(), message(2, {1}), compute({1, 2})}), (Runs{{0, 5}}));
}

// A send is waited for in a later micro-batch: in a graph it would hold back the next one.
TEST(GraphRuns, LeaveOutMessagesThatOutliveThem) {
  EXPECT_EQ(graph_runs({compute(), message(1), of_the_host(), compute(), compute({1})}),
            (Runs{{0, 1}, {3, 4}, {4, 5}}));
  EXPECT_EQ(graph_runs({compute(), message(1), of_the_host(), compute()}), (Runs{{0, 1}, {3, 4}}))
      << "nobody waits for it before the end of the step, but another graph follows";
}

// Behind the last step all is waited for, and no graph comes that could be held back.
TEST(GraphRuns, HoldMessagesThatNobodyWaitsForWhereTheyEndTheStep) {
  EXPECT_EQ(graph_runs({compute(), message(1)}), (Runs{{0, 2}}));
  EXPECT_EQ(graph_runs({compute(), message(1), compute(), message(2, {1}), compute()}), (Runs{{0, 5}}));
  EXPECT_EQ(graph_runs({of_the_host(), compute(), message(1), compute(), message(2, {1})}), (Runs{{1, 5}}));
  EXPECT_EQ(graph_runs({compute(), message(1), compute(), of_the_host()}), (Runs{{0, 1}, {2, 3}}));
}

TEST(GraphRuns, BeginAnewWhereAStepWaitsForAMessageOutside) {
  const Runs runs = graph_runs({message(1), of_the_host(), compute(), compute({1}), compute()});
  EXPECT_EQ(runs, (Runs{{2, 3}, {3, 5}}));
}

// What stays outside may take others with it: message 2 begins behind message 1, which nobody waits for here.
TEST(GraphRuns, LeaveOutMessagesThatBeginBehindOnesOutside) {
  EXPECT_EQ(graph_runs({compute(), message(1), compute(), message(2, {1}), compute({2}), of_the_host(), compute({1})}),
            (Runs{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(GraphRuns, BeginWhereTheHostHasToWait) {
  TracedStep waits = compute();
  waits.begins = true;
  EXPECT_EQ(graph_runs({compute(), waits, compute()}), (Runs{{0, 1}, {1, 3}}));
}

TEST(GraphRuns, LeaveOutMessagesThatTheHostMoves) {
  TracedStep copy = message(3);
  copy.capturable = false;
  EXPECT_EQ(graph_runs({compute(), copy, compute()}), (Runs{{0, 1}, {2, 3}}));
}

}  // namespace graph_runs_test
}  // namespace orrery::exec
