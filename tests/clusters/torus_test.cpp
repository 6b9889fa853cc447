/// Groups on a torus and the places of a mesh's axes, by hand.
#include "clusters/torus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "clusters/routes.h"
#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace torus_test {

using testing::catalog;
using ::testing::ElementsAre;

Torus torus(std::vector<int> dims, std::vector<int> block = {}) {
  if (block.empty()) block.assign(dims.size(), 1);
  return {std::move(dims), std::move(block)};
}

/// Devices at these coordinates.
std::vector<int> box(const Torus& of, const std::vector<std::vector<int>>& places) {
  std::vector<int> out;
  for (const int x : places[0])
    for (const int y : places[1])
      for (const int z : places[2]) out.push_back(of.device({x, y, z}));
  return out;
}

TEST(Torus, FindsTheCoordinatesOfEachDevice) {
  const Torus of = torus({4, 6, 2}, {2, 2, 1});
  for (int device = 0; device < 4 * 6 * 2; ++device) EXPECT_EQ(of.device(of.place(device)), device);
}

TEST(TorusGroup, IsABoxOrEveryFewDevicesOfADimension) {
  const Torus of = torus({8, 8, 4}, {2, 2, 1});
  const auto group = torus_group(of, box(of, {{1, 2}, {0, 4}, {0, 1, 2, 3}}));
  ASSERT_TRUE(group);
  EXPECT_THAT(group->sides, ElementsAre(TorusSide{0, 8, 1, 2, 1}, TorusSide{1, 8, 0, 2, 4}, TorusSide{2, 4, 0, 4, 1}));
  // A line of two, a ring through the devices of three other groups, a ring.
  EXPECT_DOUBLE_EQ(group->links(false), 1 + 2 + 2);
  EXPECT_DOUBLE_EQ(group->links(true), 1 + 2.0 / 4 + 2);
  EXPECT_EQ(group->hops(), 1 + 4 + 2);
}

TEST(TorusGroup, IsNoCornerAndNoUnevenDistances) {
  const Torus of = torus({8, 8, 4});
  EXPECT_FALSE(torus_group(of, std::vector<int>{of.device({0, 0, 0}), of.device({1, 0, 0}), of.device({0, 1, 0})}));
  EXPECT_FALSE(torus_group(of, box(of, {{0, 1, 3}, {0}, {0}})));
}

TEST(TorusGroup, SendsToAllAtWhatTheFullestLinkLetsThrough) {
  const Torus of = torus({8, 8, 4});
  // On a ring of eight a member sends 1/8 to each; over a link pass those to the next four, 1 + 2 + 3 + 4/2 eighths: a
  // message, of which a member sends 7/8.
  EXPECT_DOUBLE_EQ(torus_group(of, box(of, {{0, 1, 2, 3, 4, 5, 6, 7}, {0}, {0}}))->exchange_links(false), 7.0 / 8);
  // In a line of four, two send half of theirs over the middle: a message again.
  EXPECT_DOUBLE_EQ(torus_group(of, box(of, {{0, 1, 2, 3}, {0}, {0}}))->exchange_links(false), 3.0 / 4);
}

/// Messages' worth on the fullest link when members 0..n-1 of a ring, or of a line, each send 1/n to every member the
/// shorter way, and half each way round where both are as long.
double fullest(int n, bool ring) {
  std::vector<double> up(static_cast<std::size_t>(n)), down(up);
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      const int ahead = ring ? (to - from + n) % n : to - from, back = ring ? n - ahead : -ahead;
      const bool tie = ring && ahead == back;
      for (int k = 0; k < ahead && (tie || !ring || ahead < back); ++k)
        up[static_cast<std::size_t>((from + k) % n)] += (tie ? 0.5 : 1) / n;
      for (int k = 0; k < back && ahead != 0 && (tie || !ring || back < ahead); ++k)
        down[static_cast<std::size_t>((from - k + n) % n)] += (tie ? 0.5 : 1) / n;
    }
  return std::max(*std::max_element(up.begin(), up.end()), *std::max_element(down.begin(), down.end()));
}

TEST(TorusGroup, SendsToAllAsFastAsCountedLinkByLink) {
  for (const int n : {3, 4, 5, 6, 7, 8, 9, 16}) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    const double sent = (n - 1.0) / n;
    EXPECT_NEAR(sent / torus_group(torus({n}), all)->exchange_links(false), fullest(n, true), 1e-12) << "ring of " << n;
    EXPECT_NEAR(sent / torus_group(torus({n + 1}), all)->exchange_links(false), fullest(n, false), 1e-12)
        << "line of " << n;
  }
}

TEST(PlacesOnATorus, AreWholeDimensionsAndRatherSeveral) {
  // mesh_utils.py's example: of [16, 16] on 4 x 4 x 16 the axis that communicates most has the plane.
  EXPECT_THAT(place_on_torus(torus({4, 4, 16}), std::vector<int>{16, 16}).parts,
              ElementsAre(ElementsAre(4, 4, 1), ElementsAre(1, 1, 16)));
  EXPECT_THAT(place_on_torus(torus({16, 4, 4}), std::vector<int>{16, 16}).parts,
              ElementsAre(ElementsAre(1, 4, 4), ElementsAre(16, 1, 1)));
  EXPECT_THAT(place_on_torus(torus({4, 4, 4}), std::vector<int>{4, 1, 16}).parts,
              ElementsAre(ElementsAre(4, 1, 1), ElementsAre(1, 1, 1), ElementsAre(1, 4, 4)));
}

TEST(PlacesOnATorus, DivideDimensionsWhereNoWholeOnesFit) {
  // Its own example: 2 x 2 x 4 of 4 x 4.
  EXPECT_THAT(place_on_torus(torus({4, 4}), std::vector<int>{4, 2, 2}).parts,
              ElementsAre(ElementsAre(4, 1), ElementsAre(1, 2), ElementsAre(1, 2)));
  EXPECT_THAT(place_on_torus(torus({16, 16, 24}), std::vector<int>{12, 512}).parts,
              ElementsAre(ElementsAre(4, 1, 3), ElementsAre(4, 16, 8)));
}

TEST(PlacesOnATorus, GiveEachDeviceOneRankAndEachGroupItsBox) {
  const Torus of = torus({16, 16, 24}, {2, 2, 1});
  const TorusPlaces places = place_on_torus(of, std::vector<int>{12, 512});
  const std::vector<int> devices = places.devices(of);
  std::vector<int> sorted = devices, all(6144);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const auto tensor = torus_group(of, std::span(devices).subspan(12, 12));
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->links(true), 2);  // lines of four and three
  std::vector<int> replicas;
  for (std::size_t r = 5; r < devices.size(); r += 12) replicas.push_back(devices[r]);
  const auto data = torus_group(of, replicas);
  ASSERT_TRUE(data);
  EXPECT_DOUBLE_EQ(data->links(true), 2.0 / 4 + 2 + 2.0 / 3);
}

TEST(GroupSpanOnATorus, HasTheLinksOfItsDimensionsAcrossHosts) {
  const Cluster pod = catalog("tpu-v5e");  // 16 x 16, 2 x 2 to a host
  const Torus of = torus_of(pod);
  std::vector<int> row, few, all(256);
  for (int x = 0; x < 16; ++x) row.push_back(of.device({x, 5}));
  for (int x = 0; x < 16; x += 4) few.push_back(of.device({x, 5}));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(span_of(pod, row).within_node);
  EXPECT_DOUBLE_EQ(span_of(pod, row).bandwidth.value, 2 * 50e9);
  EXPECT_EQ(span_of(pod, row).hops, 8);
  EXPECT_DOUBLE_EQ(span_of(pod, all).bandwidth.value, 4 * 50e9);
  EXPECT_DOUBLE_EQ(span_of(pod, few).bandwidth.value, 2 * 50e9);
  EXPECT_DOUBLE_EQ(span_of(pod, few, 2).bandwidth.value, 2 * 50e9 / 4);  // with the three groups between them
}

TEST(GroupSpanOnATorus, OfAnotherFormIsARingOverOtherDevices) {
  const Cluster pod = catalog("tpu-v5e");
  const Torus of = torus_of(pod);
  const std::vector<int> members = {of.device({0, 0}), of.device({3, 3}), of.device({0, 6})};
  EXPECT_DOUBLE_EQ(span_of(pod, members).bandwidth.value, 50e9);
  EXPECT_DOUBLE_EQ(span_of(pod, members).latency.value, 6e-6);  // the farthest two are six hops apart
  EXPECT_EQ(span_of(pod, members).hops, 0);
}

}  // namespace torus_test
}  // namespace orrery::clusters
