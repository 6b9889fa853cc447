/// Max-min sharing by hand-worked cases, and against a plain progressive filling over random networks.
#include "sim/links/flow_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"

namespace orrery::sim {
namespace flow_network_test {

constexpr Picoseconds kSecond = 1'000'000'000'000;

std::vector<Load> over(const std::vector<int>& links) {
  std::vector<Load> loads;
  for (const int link : links) loads.push_back({link, 1});
  return loads;
}

/// Runs to the end; completion time by flow.
std::map<int, Picoseconds> run(FlowNetwork& network) {
  std::map<int, Picoseconds> ends;
  while (const auto time = network.next()) {
    for (const auto& done : network.advance(*time)) ends[done.flow] = done.time;
  }
  return ends;
}

TEST(FlowNetwork, AFlowAloneTakesLatencyAndBytesOverItsSlowestLink) {
  FlowNetwork network({100, 40, 80});
  network.start(0, network.path(over({0, 1, 2})), 200, 3 * kSecond);
  EXPECT_EQ(network.next(), 3 * kSecond);
  EXPECT_EQ(run(network)[0], 8 * kSecond);
  EXPECT_DOUBLE_EQ(network.carried(0), 200);
  EXPECT_EQ(network.active(), 0);
  EXPECT_EQ(network.next(), std::nullopt);
}

// Bertsekas and Gallager's parking lot: one flow over all links, one over each.
TEST(FlowNetwork, OnAParkingLotTheLongFlowGetsTheShareOfTheFullestLink) {
  FlowNetwork network({90, 60, 120});
  const int everywhere = network.start(0, network.path(over({0, 1, 2})), 1000);
  const int first = network.start(0, network.path(over({0})), 1000);
  const int second = network.start(0, network.path(over({1})), 1000);
  const int third = network.start(0, network.path(over({2})), 1000);
  EXPECT_DOUBLE_EQ(network.rate(everywhere), 30);
  EXPECT_DOUBLE_EQ(network.rate(first), 60);
  EXPECT_DOUBLE_EQ(network.rate(second), 30);
  EXPECT_DOUBLE_EQ(network.rate(third), 90);
  // third ends at 100/9 s, first at 50/3 s: nobody gains but on their own links; at 100/3 s second and everywhere end.
  const auto ends = run(network);
  EXPECT_EQ(ends.at(third), 11'111'111'111'111);
  EXPECT_EQ(ends.at(first), 16'666'666'666'667);
  EXPECT_EQ(ends.at(second), 33'333'333'333'333);
  EXPECT_EQ(ends.at(everywhere), 33'333'333'333'333);
}

// Three links, three flows over two links each: every link is full at half of it, until the shortest ends.
TEST(FlowNetwork, OnATriangleWhoeverRemainsTakesWhatOthersLeave) {
  FlowNetwork network({10, 10, 10});
  const int a = network.start(0, network.path(over({0, 1})), 50);
  const int b = network.start(0, network.path(over({1, 2})), 75);
  const int c = network.start(0, network.path(over({2, 0})), 75);
  EXPECT_DOUBLE_EQ(network.rate(a), 5);
  EXPECT_DOUBLE_EQ(network.rate(c), 5);
  const auto ends = run(network);
  EXPECT_EQ(ends.at(a), 10 * kSecond);
  EXPECT_EQ(ends.at(b), 15 * kSecond);  // b and c still share link 2
  EXPECT_EQ(ends.at(c), 15 * kSecond);
}

// Four hosts of 10 a leaf, an uplink of 20: between leaves each gets 5, within a leaf what the host's link leaves.
TEST(FlowNetwork, AnOversubscribedSpineHoldsOnlyWhatCrossesIt) {
  std::vector<double> capacities(8, 10);  // 0-3: up from hosts; 4-7: down to hosts
  const int uplink = 8;
  capacities.push_back(20);
  FlowNetwork network(capacities);
  std::vector<int> across;
  for (int host = 0; host < 4; ++host) {
    across.push_back(network.start(0, network.path(over({host, uplink, 4 + host})), 50));
  }
  const int within = network.start(0, network.path(over({0})), 50);
  for (const int flow : across) EXPECT_DOUBLE_EQ(network.rate(flow), 5);
  EXPECT_DOUBLE_EQ(network.rate(within), 5);
  for (const auto& [flow, end] : run(network)) EXPECT_EQ(end, 10 * kSecond) << flow;
}

TEST(FlowNetwork, TheTwoDirectionsOfALinkDoNotShare) {
  FlowNetwork network({10, 10});
  const int forth = network.start(0, network.path(over({0})), 100);
  const int back = network.start(0, network.path(over({1})), 100);
  const auto ends = run(network);
  EXPECT_EQ(ends.at(forth), 10 * kSecond);
  EXPECT_EQ(ends.at(back), 10 * kSecond);
}

TEST(FlowNetwork, AFlowWithTwoConnectionsOnALinkTakesTwoSharesOfIt) {
  FlowNetwork network({30, 30});
  const int ring = network.start(0, network.path({{0, 2}, {1, 1}}), 100);
  const int message = network.start(0, network.path(over({0})), 100);
  EXPECT_DOUBLE_EQ(network.rate(ring), 10);
  EXPECT_DOUBLE_EQ(network.rate(message), 10);
  run(network);
  EXPECT_DOUBLE_EQ(network.carried(0), 300);
  EXPECT_DOUBLE_EQ(network.carried(1), 100);
}

TEST(FlowNetwork, ALimitedFlowLeavesTheRestToTheOthers) {
  FlowNetwork network({100});
  const int limited = network.start(0, network.path(over({0}), 10), 100);
  const int first = network.start(0, network.path(over({0})), 450);
  const int second = network.start(0, network.path(over({0})), 450);
  EXPECT_DOUBLE_EQ(network.rate(limited), 10);
  EXPECT_DOUBLE_EQ(network.rate(first), 45);
  const auto ends = run(network);
  EXPECT_EQ(ends.at(limited), 10 * kSecond);
  EXPECT_EQ(ends.at(second), 10 * kSecond);
}

TEST(FlowNetwork, ALateFlowSlowsWhatIsUnderWayFromThenOn) {
  FlowNetwork network({10});
  const int path = network.path(over({0}));
  const int first = network.start(0, path, 100);
  const int second = network.start(4 * kSecond, path, 20, kSecond);  // moves from 5 s on, at 5, until 9 s
  const auto ends = run(network);
  EXPECT_EQ(ends.at(second), 9 * kSecond);
  EXPECT_EQ(ends.at(first), 12 * kSecond);
}

TEST(FlowNetwork, ManyEqualFlowsCountAsOneEntryAndTakeAsLongAsEachAlone) {
  FlowNetwork folded({7e9}), plain({7e9});
  folded.start(0, folded.path(over({0})), 1e6, 0, 1000);
  for (int i = 0; i < 1000; ++i) plain.start(0, plain.path(over({0})), 1e6);
  const auto one = run(folded);
  const auto all = run(plain);
  ASSERT_EQ(all.size(), 1000U);
  for (const auto& [flow, end] : all) EXPECT_EQ(end, one.at(0));
  EXPECT_LE(plain.solved_paths(), 2);
}

TEST(FlowNetwork, CancellingGivesTheShareBack) {
  FlowNetwork network({10});
  const int path = network.path(over({0}));
  const int kept = network.start(0, path, 100);
  const int gone = network.start(0, path, 100);
  const int waiting = network.start(0, path, 100, 30 * kSecond);
  network.cancel(4 * kSecond, gone);
  network.cancel(5 * kSecond, waiting);
  EXPECT_EQ(network.active(), 1);
  const auto ends = run(network);
  EXPECT_EQ(ends, (std::map<int, Picoseconds>{{kept, 12 * kSecond}}));
  EXPECT_DOUBLE_EQ(network.carried(0), 120);
}

TEST(FlowNetwork, WhatHasNothingToMoveEndsWithItsLatency) {
  FlowNetwork network({10});
  const int empty = network.start(0, network.path(over({0})), 0, 2 * kSecond);
  const int local = network.start(0, network.path({}), 1e9, kSecond);
  const auto& done = network.advance(5 * kSecond);
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0], (FlowNetwork::Completion{kSecond, local}));
  EXPECT_EQ(done[1], (FlowNetwork::Completion{2 * kSecond, empty}));
  EXPECT_EQ(network.now(), 5 * kSecond);
}

TEST(FlowNetwork, EqualPathsHaveOneNumberInWhateverOrderTheyAreGiven) {
  FlowNetwork network({10, 10});
  const int path = network.path({{0, 1}, {1, 2}});
  EXPECT_EQ(network.path({{1, 2}, {0, 1}}), path);
  EXPECT_EQ(network.path({{1, 1}, {0, 1}, {1, 1}}), path);
  EXPECT_NE(network.path({{0, 1}, {1, 1}}), path);
  EXPECT_NE(network.path({{0, 1}, {1, 2}}, 5), path);
}

TEST(FlowNetwork, TrafficElsewhereIsNotComputedAgain) {
  FlowNetwork network(std::vector<double>(1000, 10.0));
  for (int pair = 0; pair < 500; ++pair) {
    network.start(0, network.path(over({2 * pair, 2 * pair + 1})), 1e6 + pair);
    network.start(0, network.path(over({2 * pair})), 1e6 + pair);
  }
  ASSERT_TRUE(network.next());
  const std::int64_t before = network.solved_paths();
  network.start(0, network.path(over({7})), 10);
  ASSERT_TRUE(network.next());
  EXPECT_LE(network.solved_paths() - before, 3);
}

TEST(FlowNetworkDeathTest, TheClockNeverGoesBackNorOverAnEnd) {
  FlowNetwork network({10});
  const int path = network.path(over({0}));
  network.start(5 * kSecond, path, 10);
  EXPECT_DEATH(network.start(4 * kSecond, path, 10), "clock stands at");
  EXPECT_DEATH(network.start(7 * kSecond, path, 10), "advance\\(\\) first");
  EXPECT_DEATH(network.path({{3, 1}}), "resource 3 of 1");
}

/// Progressive filling as the textbook has it, from nothing, over all flows.
struct Plain {
  struct Flow {
    std::vector<Load> loads;
    double most = 0, left = 0, rate = 0;
    bool done = false;
  };
  std::vector<double> capacities;
  std::vector<Flow> flows;

  void fill() {
    std::vector<double> left = capacities;
    std::vector<bool> open(flows.size());
    for (std::size_t f = 0; f < flows.size(); ++f) {
      open[f] = !flows[f].done;
      flows[f].rate = 0;
    }
    while (std::find(open.begin(), open.end(), true) != open.end()) {
      std::vector<double> share(left.size(), 0);
      double rise = 1e300;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        if (!open[f]) continue;
        rise = std::min(rise, flows[f].most - flows[f].rate);
        for (const Load& load : flows[f].loads) share[static_cast<std::size_t>(load.link)] += load.share;
      }
      for (std::size_t l = 0; l < left.size(); ++l) {
        if (share[l] > 0) rise = std::min(rise, left[l] / share[l]);
      }
      for (std::size_t l = 0; l < left.size(); ++l) left[l] -= rise * share[l];
      for (std::size_t f = 0; f < flows.size(); ++f) {
        if (!open[f]) continue;
        flows[f].rate += rise;
        bool full = flows[f].rate >= flows[f].most * (1 - 1e-12);
        for (const Load& load : flows[f].loads) {
          const auto l = static_cast<std::size_t>(load.link);
          full |= left[l] <= capacities[l] * 1e-12;
        }
        if (full) open[f] = false;
      }
    }
  }
};

// Flows come and go at random; after every event all rates are those of the textbook.
TEST(FlowNetwork, RatesAreThoseOfPlainProgressiveFillingOnRandomNetworks) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::uint64_t drawn = 0;
    const auto draw = [&](std::uint64_t bound) { return static_cast<int>(base::below(bound, seed, 1, drawn++)); };
    Plain plain;
    const int links = 1 + draw(25);
    for (int l = 0; l < links; ++l) plain.capacities.push_back(1 + draw(100));
    FlowNetwork network(plain.capacities);
    std::map<int, std::size_t> under_way;
    Picoseconds now = 0;
    for (int event = 0; event < 60; ++event) {
      if (draw(3) > 0 || under_way.empty()) {
        Plain::Flow flow;
        std::map<int, double> loads;
        for (int crossing = 1 + draw(6); crossing > 0; --crossing) loads[draw(links)] = 1 + draw(3);
        for (const auto& [link, share] : loads) flow.loads.push_back({link, share});
        flow.most = draw(3) == 0 ? 1 + draw(40) : 1e9;
        flow.left = 1 + draw(1000);
        under_way[network.start(now, network.path(flow.loads, flow.most), flow.left)] = plain.flows.size();
        plain.flows.push_back(flow);
      } else {
        now = *network.next();
        for (const auto& done : network.advance(now)) {
          plain.flows[under_way.at(done.flow)].done = true;
          under_way.erase(done.flow);
        }
      }
      plain.fill();
      for (const auto& [flow, index] : under_way) {
        ASSERT_NEAR(network.rate(flow) / plain.flows[index].rate, 1, 1e-9) << "seed " << seed << " event " << event;
      }
    }
  }
}

}  // namespace flow_network_test
}  // namespace orrery::sim
