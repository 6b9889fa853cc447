/// Steps replayed on graphs: by hand, against the closed forms of cost/network/algorithms.h over random graphs and
/// sizes, and the two ways of replaying against each other.
#include "sim/collectives/replay_transfers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "cost/network/algorithms.h"
#include "tests/sim/random_cluster.h"

namespace orrery::sim {
namespace replay_transfers_test {

using base::Bytes;
using clusters::Cluster;
using clusters::Paths;
using plan::Algorithm;
using plan::Goal;
using testing::Draw;
using testing::random_cluster;

constexpr double kTolerance = 0.01;

double seconds(const TransferReplay& replay) {
  return static_cast<double>(replay.ends.front()) * 1e-12;
}

/// `devices` devices on one switch: 1 us and 10 GB/s from device to switch.
Cluster star(int devices) {
  Cluster cluster;
  cluster.devices.emplace_back();
  cluster.devices_per_node = devices;
  clusters::Shape shape;
  shape.node.link_bandwidth = base::BytesPerSecond{10e9};
  shape.node.latency = base::Seconds{2e-6};
  shape.node.host_memory_bandwidth = base::BytesPerSecond{1e9};
  shape.node.pcie_bandwidth = base::BytesPerSecond{1e9};
  shape.node.pcie_latency = base::Seconds{10e-6};
  cluster.shape = shape;
  clusters::build(cluster);
  return cluster;
}

std::vector<int> first(int count, int stride = 1) {
  std::vector<int> devices;
  for (int i = 0; i < count; ++i) devices.push_back(i * stride);
  return devices;
}

// 4 devices, 4 MB: 6 rounds of 2 us + 1 MB / 10 GB/s.
TEST(ReplayTransfers, OfARingTakesEveryRoundsLatencyAndChunk) {
  const Cluster cluster = star(4);
  Paths paths(cluster);
  const plan::CollectiveSteps ring = plan::ring_all_reduce(4);
  const auto replay = replay_transfers({placed(ring, paths, first(4), Bytes{4e6})}, paths);
  EXPECT_EQ(replay.ends[0], 6 * (2'000'000 + 100'000'000));
  EXPECT_EQ(replay.transfers, 24);
  EXPECT_FALSE(replay.shared);
}

// Everybody's uplink carries three parts of 1 MB.
TEST(ReplayTransfers, OfADirectAllToAllSharesTheSendersLink) {
  const Cluster cluster = star(4);
  Paths paths(cluster);
  const plan::CollectiveSteps steps = plan::direct_all_to_all(4);
  const auto replay = replay_transfers({placed(steps, paths, first(4), Bytes{4e6})}, paths);
  EXPECT_EQ(replay.ends[0], 2'000'000 + 300'000'000);
  EXPECT_TRUE(replay.shared);
}

// Pipelined in 4 pieces along 3 hops: 6 rounds; the first and last hop of a device use two directions of its link.
TEST(ReplayTransfers, OfAChainOverlapsItsPieces) {
  const Cluster cluster = star(4);
  Paths paths(cluster);
  const plan::CollectiveSteps chain = plan::ring_broadcast(4, 4);
  const auto replay = replay_transfers({placed(chain, paths, first(4), Bytes{4e6})}, paths);
  EXPECT_EQ(replay.ends[0], 6 * (2'000'000 + 100'000'000));
}

// Up 1 + 1/2 of the message and down as much, in one piece: 1, 1/2, 1/2, 1 one after the other; the way is 1 us.
TEST(ReplayTransfers, OfNvlsGoUpAndDownTheSwitch) {
  const Cluster cluster = star(2);
  Paths paths(cluster);
  const plan::CollectiveSteps steps = plan::nvls_all_reduce(2, 1);
  const auto replay = replay_transfers({placed(steps, paths, first(2), Bytes{2e6}, {2})}, paths);
  EXPECT_EQ(replay.ends[0], 4 * 1'000'000 + 2 * 200'000'000 + 2 * 100'000'000);
}

// Two rings over the same four devices: each link has two connections all along. A third, elsewhere, does not care.
TEST(ReplayTransfers, CollectivesOnTheSameLinksShareThem) {
  const Cluster cluster = star(8);
  Paths paths(cluster);
  const plan::CollectiveSteps ring = plan::ring_all_reduce(4);
  const Placed here = placed(ring, paths, first(4), Bytes{4e6});
  Placed there = placed(ring, paths, {4, 5, 6, 7}, Bytes{4e6});
  there.start = 5'000'000;
  const auto replay = replay_transfers({here, here, there}, paths);
  EXPECT_EQ(replay.ends[0], 6 * (2'000'000 + 200'000'000));
  EXPECT_EQ(replay.ends[1], replay.ends[0]);
  EXPECT_EQ(replay.ends[2], 5'000'000 + 6 * (2'000'000 + 100'000'000));
}

TEST(ReplayTransfers, AsOneFluidActivityARingTakesAsLongAsItsSteps) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    const Cluster cluster = random_cluster(draw);
    if (cluster.size() < 2) continue;
    Paths paths(cluster);
    const plan::CollectiveSteps ring = plan::ring_all_reduce(cluster.size());
    const Bytes message{1e10};  // so that the latencies of unequal hops do not count
    const auto replay = replay_transfers({placed(ring, paths, first(cluster.size()), message)}, paths);
    const auto activity = cost::activity_of(ring, paths, cost::places_of(paths, first(cluster.size())), message);
    FlowNetwork network(paths.bandwidths());
    network.start(0, network.path(activity.loads), activity.bytes,
                  static_cast<Picoseconds>(activity.latency.value * 1e12));
    Picoseconds end = 0;
    while (const auto next = network.next()) end = network.advance(*next).empty() ? end : *next;
    EXPECT_NEAR(static_cast<double>(end) * 1e-12 / seconds(replay), 1, kTolerance) << "seed " << seed;
  }
}

/// A tree of switches with a device or none at each, and unequal links; groups in the order of a walk around the tree,
/// where no two hops of a ring share a direction of a link.
Cluster random_tree(Draw& draw) {
  Cluster cluster;
  cluster.devices.emplace_back();
  const int switches = 1 + draw(12);
  const auto cable = [&] {
    return clusters::Link{clusters::LinkKind::network, base::BytesPerSecond{draw.between(1e9, 50e9)},
                          base::Seconds{draw.between(0.1e-6, 20e-6)}};
  };
  clusters::Graph& graph = cluster.graph.edit();
  for (int s = 0; s < switches; ++s) {
    const auto at = boost::add_vertex(clusters::Vertex{clusters::VertexKind::leaf, "", -1, -1, {}}, graph);
    // Under the newest of some switches: depth first, so that devices come in the order of the walk.
    if (s > 0) boost::add_edge(at, static_cast<std::size_t>(s - 1 - draw(std::min(s, 2))), cable(), graph);
  }
  // The walk: below a switch first its own devices, then those of its children.
  std::vector<std::vector<std::size_t>> children(static_cast<std::size_t>(switches));
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const auto a = boost::source(*e, graph), b = boost::target(*e, graph);
    children[std::min(a, b)].push_back(std::max(a, b));
  }
  std::vector<std::size_t> stack{0};
  while (!stack.empty()) {
    const std::size_t s = stack.back();
    stack.pop_back();
    for (int d = s == 0 ? 2 : draw(3); d > 0; --d) {
      const auto device = boost::add_vertex(clusters::Vertex{}, graph);
      cluster.device_vertices.push_back(device);
      boost::add_edge(device, s, cable(), graph);
    }
    stack.insert(stack.end(), children[s].begin(), children[s].end());
  }
  cluster.devices_per_node = static_cast<int>(cluster.device_vertices.size());
  return cluster;
}

struct Case {
  Cluster cluster;
  std::vector<int> devices;
  plan::GroupShape shape;
  Bytes message;
  int switch_vertex = -1;
};

Case random_case(std::uint64_t seed) {
  Draw draw(seed);
  Case c;
  c.cluster = seed % 4 == 3 ? random_tree(draw) : random_cluster(draw);
  int stride = draw.of({1, 1, 2, c.cluster.devices_per_node});
  int count = std::max(2, c.cluster.size() / stride);
  if (stride * (count - 1) >= c.cluster.size()) stride = 1, count = c.cluster.size();
  if (draw(3) == 0 && count > 2) count = 2 + draw(count - 1);
  c.devices = first(count, stride);
  std::map<int, int> in_node;
  for (const int d : c.devices) ++in_node[c.cluster.node_of(d)];
  int per_node = in_node.begin()->second;
  for (const auto& [node, inside] : in_node) per_node = inside == per_node ? per_node : 1;
  if (count % per_node != 0) per_node = 1;
  c.shape = {count, per_node, 1 + draw(8)};
  c.message = Bytes{std::pow(10.0, draw.between(0, 9.5))};
  for (std::size_t v = 0; v < boost::num_vertices(*c.cluster.graph) && per_node == count; ++v) {
    if ((*c.cluster.graph)[v].kind == clusters::VertexKind::nvswitch && (*c.cluster.graph)[v].node == 0)
      c.switch_vertex = static_cast<int>(v);
  }
  return c;
}

// Every algorithm, on links that are full and on links that are not, with messages in step and with members that run
// apart.
TEST(ReplayTransfers, AgreeWithTheClosedFormsOverRandomGraphsAndSizes) {
  int judged = 0, shared = 0;
  double worst = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = random_case(seed);
    if (c.cluster.size() < 2) continue;
    Paths paths(c.cluster);
    for (int a = 0; a <= static_cast<int>(Algorithm::hierarchical); ++a) {
      for (int g = 0; g <= static_cast<int>(Goal::all_to_all); ++g) {
        const auto algorithm = static_cast<Algorithm>(a);
        const auto goal = static_cast<Goal>(g);
        if (!plan::can(algorithm, goal, c.shape)) continue;
        std::vector<int> switches;
        if (algorithm == Algorithm::nvls) {
          if (c.switch_vertex < 0) continue;
          switches = {c.switch_vertex};
        }
        const plan::CollectiveSteps steps = plan::steps_of(algorithm, goal, c.shape);
        const Placed where = placed(steps, paths, c.devices, c.message, switches);
        const TransferReplay replay = replay_transfers({where}, paths);
        const double closed = cost::time_alone(algorithm, goal, c.shape, paths,
                                               cost::places_of(paths, c.devices, c.switch_vertex), c.message)
                                  .value;
        const double error = std::abs(closed / seconds(replay) - 1);
        ++judged;
        shared += replay.shared;
        worst = std::max(worst, error);
        EXPECT_LT(error, kTolerance) << plan::name_of(goal) << " by " << plan::name_of(algorithm) << ", seed " << seed;
        // Where no link can be full a recurrence, elsewhere only the links that matter: to the tick the simulation of
        // all.
        if (replay.shared || seed % 5 == 0) {
          EXPECT_EQ(replay_transfers({where}, paths, ReplayBy::simulation).ends, replay.ends) << "seed " << seed;
        }
      }
    }
  }
  EXPECT_GT(shared, 1500);
  EXPECT_GT(judged - shared, 1500);
  std::printf("%d cases, %d with links that can be full, worst %.1e\n", judged, shared, worst);
}

}  // namespace replay_transfers_test
}  // namespace orrery::sim
