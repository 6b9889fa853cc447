/// Every algorithm's formula, worked by hand on machines with round numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "cost/network/collectives.h"

namespace orrery::cost {
namespace algorithms_test {

using base::Bytes;
using base::BytesPerSecond;
using clusters::GroupSpan;

/// Eight devices of 450 GB/s a node, and 50 GB/s of network for each: 360 GB/s of fabric, 400 GB/s of NICs.
Network hopper() {
  Network n;
  n.architecture = clusters::Architecture::hopper;
  n.cpu = clusters::CpuVendor::intel;
  n.multicast = true;
  n.intra_bandwidth = 450e9;
  n.intra_efficiency = 0.8;
  n.inter_efficiency = 1;
  n.inter_latency = 2e-6;
  n.all_to_all_efficiency = 1;
  n.send_channel = 1e12;
  return n;
}

GroupSpan over(int nodes, int per_node = 8) {
  GroupSpan s;
  s.nodes = nodes;
  s.per_node = per_node;
  s.within_node = nodes == 1;
  s.bandwidth = BytesPerSecond{nodes == 1 ? 450e9 : 50e9};
  s.latency = base::Seconds{2e-6};
  return s;
}

std::optional<Choice> find(const std::vector<Choice>& all, const std::string& algorithm,
                           const std::string& protocol = "Simple") {
  for (const Choice& c : all)
    if (c.algorithm == algorithm && c.protocol == protocol) return c;
  return std::nullopt;
}

Choice one(const Network& n, Operation operation, const GroupSpan& span, const std::string& algorithm,
           const std::string& protocol = "Simple", double bytes = 1e9) {
  const auto found = find(choices(n, operation, span, span.nodes * span.per_node, Bytes{bytes}), algorithm, protocol);
  EXPECT_TRUE(found.has_value()) << algorithm << " " << protocol;
  return found.value_or(Choice{});
}

TEST(Nvls, MovesEachByteOnceAndItsOwnShareTwice) {
  const Choice c = one(hopper(), Operation::all_reduce, over(1), "nvls");
  EXPECT_NEAR(c.latency, 25e-6, 1e-12);
  // Eight heads of 40 GB/s at 85 %, 7/8 of them busy, both ways; on the bus 14/8 of the message.
  EXPECT_NEAR(c.bandwidth, 320e9 * 0.85 * 7 / 8 * 2 * 8 / 14, 1);
  EXPECT_NEAR(c.wire, 360e9 * 0.85 / (1 + 1.0 / 8), 1);
  // A gather's switch writes everything but a GPU's own share to it.
  EXPECT_NEAR(one(hopper(), Operation::all_gather, over(1), "nvls").wire, 360e9 * 0.85 * 8 / 7, 1);
}

TEST(NvlsTree, CrossesTheNetworkTwicePerLevel) {
  const Choice two = one(hopper(), Operation::all_reduce, over(2), "nvls-tree");
  EXPECT_NEAR(two.latency, (25 + 2 * 20.9) * 1e-6, 1e-12);
  EXPECT_NEAR(two.wire, std::min(360e9 * 0.85 / 1.125, 400e9), 1);  // each NIC sends its half up and its half down
  const Choice eight = one(hopper(), Operation::all_reduce, over(8), "nvls-tree");
  EXPECT_NEAR(eight.latency, (25 + 2 * 3 * 20.9) * 1e-6, 1e-12);
  EXPECT_NEAR(eight.wire, 200e9, 1);
  EXPECT_NEAR(eight.bandwidth, std::min({320e9 * 0.85 * 0.875 * 2, 400e9, 8 * 45.5e9}) * 64 / 126, 1);
}

TEST(Tree, ReachesMoreOverTwoAndThreeNodes) {
  Network n = hopper();
  n.intra_bandwidth = 4500e9;  // the NICs are the limit
  EXPECT_NEAR(one(n, Operation::all_reduce, over(2), "tree").wire, 400e9, 1);
  EXPECT_NEAR(one(n, Operation::all_reduce, over(3), "tree").wire, 400e9 * 4 / 3 / 2, 1);
  EXPECT_NEAR(one(n, Operation::all_reduce, over(4), "tree").wire, 200e9, 1);
  const Choice four = one(n, Operation::all_reduce, over(4), "tree", "LL");
  EXPECT_NEAR(four.latency, (6.8 + 2 * (7 * 0.6 + 2 * 5.0)) * 1e-6, 1e-12);
  EXPECT_NEAR(four.bandwidth, 20.4e9 / 2, 1);  // Intel's cap over three nodes and more; at 1 GB no correction
  EXPECT_EQ(four.wire, four.bandwidth);
}

TEST(Tree, IsCorrectedBetweenPowersOfTwo) {
  // 512 KiB is entry 13 of LL, 0.4; 1 MiB is 0.5; the geometric middle lies half way.
  const double at = 512.0 * 1024;
  const auto ll = [&](double bytes) { return one(hopper(), Operation::all_reduce, over(4), "tree", "LL", bytes); };
  EXPECT_NEAR(ll(at).bandwidth, 20.4e9 * 0.4 / 2, 1);
  EXPECT_NEAR(ll(2 * at).bandwidth, 20.4e9 * 0.5 / 2, 1);
  EXPECT_NEAR(ll(at * std::sqrt(2)).bandwidth, 20.4e9 * 0.45 / 2, 1);
}

TEST(Protocols, AreCappedByArchitectureAndByCpu) {
  Network n = hopper();
  EXPECT_NEAR(one(n, Operation::all_gather, over(1), "ring", "LL").bandwidth, 141e9 * 8 / 7, 1);
  EXPECT_NEAR(one(n, Operation::all_gather, over(1), "ring", "LL128").bandwidth, 0.92 * 360e9 * 8 / 7, 1);
  EXPECT_NEAR(one(n, Operation::all_gather, over(2), "ring", "LL").bandwidth, 39e9 * 16 / 15, 1);
  n.cpu = clusters::CpuVendor::amd;
  EXPECT_NEAR(one(n, Operation::all_gather, over(2), "ring", "LL").bandwidth, 22.5e9 * 16 / 15, 1);
  EXPECT_NEAR(one(n, Operation::all_gather, over(4), "ring", "LL").bandwidth, 19e9 * 32 / 31, 1);
  n.architecture = clusters::Architecture::volta;
  EXPECT_NEAR(one(n, Operation::all_gather, over(1), "ring", "LL").bandwidth, 39e9 * 8 / 7, 1);
  // Blackwell's LL128 over two nodes: 360 GB/s are 12 channels of 30, at most 34.6 each; 0.92 x 360 is less.
  n.architecture = clusters::Architecture::blackwell;
  EXPECT_NEAR(one(n, Operation::all_gather, over(2), "ring", "LL128").bandwidth, 0.92 * 360e9 * 16 / 15, 1);
}

TEST(Protocols, LeaveLl128OutWhereItsBytesMayCross) {
  Network n = hopper();
  n.ll128 = false;
  EXPECT_FALSE(find(choices(n, Operation::all_reduce, over(2), 16, Bytes{1e6}), "ring", "LL128").has_value());
  EXPECT_TRUE(find(choices(n, Operation::all_reduce, over(1), 8, Bytes{1e6}), "ring", "LL128").has_value());
  n.ll128 = true;
  n.nvlink = false;  // over PCIe it is not allowed at all, and a hop costs PCIe's latency
  const auto pcie = choices(n, Operation::all_gather, over(1), 8, Bytes{1e6});
  EXPECT_FALSE(find(pcie, "ring", "LL128").has_value());
  EXPECT_NEAR(find(pcie, "ring")->latency, (8.4 + 7 * 5.7) * 1e-6, 1e-12);
}

TEST(Hops, OfSlowNetworksCountOnceAndTwiceInSimple) {
  Network n = hopper();
  n.hop_latency = 49e-6;
  n.simple_hop_latency = 265e-6;
  const auto all = choices(n, Operation::all_reduce, over(2), 16, Bytes{1e6});
  EXPECT_NEAR(find(all, "tree", "LL")->latency, (6.8 + 2 * (7 * 0.6 + 5 + 49)) * 1e-6, 1e-12);
  EXPECT_NEAR(find(all, "nvls-tree")->latency, (25 + 2 * (20.9 + 2 * 49 + 265)) * 1e-6, 1e-12);
  GroupSpan far = over(2);
  far.latency = base::Seconds{3e-6};  // a microsecond beyond one leaf
  EXPECT_NEAR(find(choices(hopper(), Operation::all_gather, far, 16, Bytes{1e6}), "ring", "LL")->latency,
              (6.6 + 14 * 1.0 + 1 * (2.7 + 1)) * 1e-6, 1e-12);  // the host's 1 us a step hides NVLink's 0.6
}

TEST(TheLossAtMiddleSizes, IsThatOfTheNodesLinks) {
  Network n = hopper();
  n.size_half = 10e6;
  n.size_exponent = 0.5;
  GroupSpan slow = over(4);
  slow.bandwidth = BytesPerSecond{5e9};  // 40 GB/s of NICs
  const Choice c = one(n, Operation::all_reduce, slow, "ring");
  EXPECT_NEAR(c.ramp, 360e9 * 32 / 62, 1);
  // 1 GB: a tenth of what the fabric alone would take.
  EXPECT_NEAR(time_of(n, c, 1e9), c.latency + 1e9 / (40e9 * 32 / 62) + 0.1 * 1e9 / (360e9 * 32 / 62), 1e-9);
  EXPECT_EQ(one(n, Operation::all_gather, slow, "ring").ramp, 0);
  EXPECT_EQ(one(n, Operation::all_reduce, slow, "ring", "LL128").ramp, 0);
  n.ll128_ramps = true;
  EXPECT_GT(one(n, Operation::all_reduce, slow, "ring", "LL128").ramp, 0);
}

TEST(Broadcast, AndReduceAreOnePassOfTheRing) {
  for (const Operation operation : {Operation::broadcast, Operation::reduce}) {
    const Choice near = one(hopper(), operation, over(1), "ring"), far = one(hopper(), operation, over(2), "ring");
    EXPECT_NEAR(near.latency, (8.4 + 3.4) * 1e-6, 1e-12);
    EXPECT_NEAR(near.bandwidth, 360e9, 1);
    EXPECT_NEAR(far.latency, (8.4 + 14) * 1e-6, 1e-12);
    EXPECT_NEAR(far.bandwidth, 360e9, 1);
  }
}

TEST(Pat, IsLogarithmicWithOneDeviceANode) {
  const Choice c = one(hopper(), Operation::reduce_scatter, over(16, 1), "pat");
  EXPECT_NEAR(c.latency, (8 + 4 * 14 / 3.5 + 2.8 * 16) * 1e-6, 1e-12);
  EXPECT_NEAR(c.bandwidth, 0.75 * 50e9, 1);
  EXPECT_FALSE(find(choices(hopper(), Operation::all_gather, over(16, 2), 32, Bytes{1e6}), "pat").has_value());
}

TEST(CollNet, IsTriedWhereTheNetworkReduces) {
  EXPECT_FALSE(find(choices(hopper(), Operation::all_reduce, over(4), 32, Bytes{1e9}), "collnet-direct").has_value());
  Network n = hopper();
  n.collnet = true;
  const auto all = choices(n, Operation::all_reduce, over(4), 32, Bytes{1e9});
  EXPECT_NEAR(find(all, "collnet-direct")->latency, (2 * (3.7 + 0.4 * 7) + 31) * 1e-6, 1e-12);
  // 360 GB/s in 24 channels: f = 8/24.
  EXPECT_NEAR(find(all, "collnet-direct")->bandwidth, 360e9 / (1.0 / 3 + 1.0 / 3) * 0.85 / 2, 1e3);
  EXPECT_NEAR(find(all, "collnet-chain")->latency, (2 * 7 * 2.8 + 30) * 1e-6, 1e-12);
  EXPECT_NEAR(find(all, "collnet-chain")->bandwidth, 180e9, 1);
  EXPECT_NEAR(find(all, "nvls")->latency, (25 + 18) * 1e-6, 1e-12);
  EXPECT_NEAR(find(all, "nvls")->wire, 360e9 * 0.85 / 1.125, 1);  // 272 of the NICs' 400
}

TEST(Hierarchical, ReducesInTheNodeFirst) {
  Network n = hopper();
  n.hierarchical = true;
  const Choice c = one(n, Operation::all_reduce, over(16), "hierarchical");
  // Twice 7/8 of the message over the fabric; twice 15/16 of an eighth over each NIC. Intel's 3 us a step hide nothing.
  EXPECT_NEAR(1e9 / c.bandwidth, 2 * 0.875 / 360 + 2 * 15.0 / 16 / 400, 1e-9);
  EXPECT_NEAR(c.latency, (3 * 8.4 + 14 * 3.4 + 30 * 14) * 1e-6, 1e-12);
}

TEST(Exchange, IsBoundByTheBusierOfFabricAndNics) {
  const double bytes = 32 * 64e6;  // 64 MB to each of 32
  const Choice direct = one(hopper(), Operation::all_to_all, over(4), "direct", "Simple", bytes);
  const double first = 31 * 262144 / 50e9 / bytes;  // each of 31 messages waits for its first 256 KiB
  EXPECT_NEAR(1 / direct.bandwidth, 24.0 / 32 / 50e9 + first, 1e-18);
  EXPECT_NEAR(direct.latency, (8.4 + 14) * 1e-6, 1e-12);
  const Choice pairwise = one(hopper(), Operation::all_to_all, over(4), "pairwise", "Simple", bytes);
  EXPECT_NEAR(1 / pairwise.bandwidth, 24.0 / 32 / 50e9 + 7.0 / 32 / 360e9 + first, 1e-18);
  EXPECT_NEAR(pairwise.latency, (8.4 + 7 * 3.4 + 24 * 14) * 1e-6, 1e-12);
  EXPECT_EQ(choose(hopper(), Operation::all_to_all, over(4), 32, Bytes{bytes}).algorithm, "direct");
  EXPECT_EQ(choose(hopper(), Operation::all_to_all, over(4), 32, Bytes{bytes}, "pairwise").algorithm, "pairwise");
}

TEST(Exchange, OfSmallMessagesIsBetterInTwoLevels) {
  Network n = hopper();
  n.hierarchical = true;
  const Choice two = one(n, Operation::all_to_all, over(16), "two-level", "Simple", 1e5);
  EXPECT_NEAR(two.latency, (2 * 8.4 + 3.4 + 15 * 14) * 1e-6, 1e-12);
  EXPECT_NEAR(1 / two.bandwidth, 7.0 / 8 / 360e9 + 120.0 / 128 / 50e9, 1e-18);
}

TEST(Send, TakesChannelsAsItGrows) {
  Network n = hopper();
  n.send_channel = 10e9;
  n.send_efficiency = 0.6;  // 270 GB/s
  const double mib = 1024 * 1024, latency = (8.4 + 3.4) * 1e-6;
  const auto time = [&](double bytes) { return send_time(n, over(1, 2), Bytes{bytes}).value; };
  EXPECT_NEAR(time(32 * mib), latency + 32 * mib / 40e9, 1e-12);
  EXPECT_NEAR(time(64 * mib), latency + 64 * mib / 40e9, 1e-12);
  EXPECT_NEAR(time(256 * mib), latency + 256 * mib / 160e9, 1e-12);  // 16 channels: as long as 64 MiB
  EXPECT_NEAR(time(1024 * mib), latency + 1024 * mib / 270e9, 1e-12);
  EXPECT_NEAR(send_time(n, over(2, 1), Bytes{50e6}).value, (8.4 + 14) * 1e-6 + 1e-3, 1e-12);
}

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all, 16), 0.9375);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 16), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 16), 1);
}

}  // namespace algorithms_test
}  // namespace orrery::cost
