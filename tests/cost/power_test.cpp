/// What a step takes from the grid, worked by hand, and beside what meters read at nodes that train.
#include "cost/estimate/power.h"

#include <gtest/gtest.h>

#include "tests/plan/samples.h"

namespace orrery::cost {
namespace power_test {

/// `nodes` nodes of eight devices.
clusters::Cluster cluster_of(int nodes, double rated, double idle, double host = 0, double network = 0,
                             double pue = 1) {
  clusters::Cluster out = samples::cpu_cluster(8);
  out.nodes = nodes;
  out.devices[0].power = base::Watts{rated};
  out.devices[0].idle_power = base::Watts{idle};
  out.power = {base::Watts{host}, base::Watts{network}, pue};
  return out;
}

TEST(Power, IsRatedWhileADeviceComputesAndLessWhileItMovesOrWaits) {
  Breakdown b;
  b.forward = 1, b.backward = 2, b.tensor_communication = 0.5, b.data_communication = 0.25, b.copies = 0.25;
  b.bubble = 0.7, b.imbalance = 0.2, b.overhead = 0.1;
  const Energy e = energy_of(b, 5, cluster_of(1, 700, 70));
  EXPECT_DOUBLE_EQ(e.devices, 8 * (70 * 5 + 630 * (3 + kMovingShare * 1 + kWaitingShare * 1)));
  EXPECT_EQ(e.hosts + e.network + e.facility, 0) << "the cluster gives none of them";
  Breakdown busy;
  busy.forward = 5;
  EXPECT_DOUBLE_EQ(energy_of(busy, 5, cluster_of(1, 700, 70)).total(), 8 * 700 * 5);
  EXPECT_GT(energy_of(busy, 5, cluster_of(1, 700, 70)).devices, e.devices);
}

TEST(Power, OfHostsNetworkAndSiteIsAddedForEachNode) {
  const Energy e = energy_of({}, 10, cluster_of(4, 700, 70, 2000, 250, 1.2));
  EXPECT_DOUBLE_EQ(e.devices, 32 * 700 * 10) << "what no breakdown explains counts as computing";
  EXPECT_DOUBLE_EQ(e.hosts, 4 * 2000 * 10);
  EXPECT_DOUBLE_EQ(e.network, 4 * 250 * 10);
  EXPECT_NEAR(e.facility, 0.2 * (e.devices + e.hosts + e.network), 1e-6);
  EXPECT_EQ(energy_of({}, 10, cluster_of(1, 700, 70, 2000, 250)).network, 0) << "a single node needs no switch";
}

TEST(Power, WithoutARatingIsNothing) {
  EXPECT_EQ(energy_of({}, 10, cluster_of(1, 0, 0, 2000)).total(), 0);
  Breakdown waits;
  waits.bubble = 1;
  EXPECT_DOUBLE_EQ(energy_of(waits, 1, cluster_of(1, 100, 12)).devices, 8 * (12 + 88 * kWaitingShare));
}

/// Nodes that compute all the time: their reading without work gives the host, their rating the rest. MLPerf
/// Training's power logs: v4.0, Sustainable Metal Cloud, Llama 2 70B LoRA and BERT on eight H100; v5.0, Lenovo, the
/// same on eight B200.
TEST(Power, OfABusyNodeIsWhatMetersRead) {
  const auto busy = [](double rated, double idle, double node_idle) {
    return energy_of({}, 1, cluster_of(1, rated, idle, node_idle - 8 * idle)).total();
  };
  constexpr double kWithin = 0.05;
  for (const double read : {7260.0, 6950.0}) EXPECT_NEAR(busy(700, 70, 2090) / read, 1, kWithin) << read;
  for (const double read : {9610.0, 9970.0}) EXPECT_NEAR(busy(1000, 140, 2780) / read, 1, kWithin) << read;
}

}  // namespace power_test
}  // namespace orrery::cost
