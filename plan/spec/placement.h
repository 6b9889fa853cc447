#pragma once
/// Which device runs which rank. Where a node's devices reach each other alike and nodes do too, rank r runs on device
/// r. On a torus it matters which ranks are neighbours: there the axes of the mesh are assigned to the dimensions of
/// the torus, as a compiler of whole programs does (clusters/torus.h).
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Sizes of a mesh's axes in the order of ranks, which is that of their traffic, the most first: tensor, context, the
/// replicas among which ZeRO shards, the other replicas, pipeline.
struct MeshAxes {
  static constexpr std::size_t kAxes = 5;
  std::array<int, kAxes> sizes{};  ///< zeros: ranks run in the order of devices
  [[nodiscard]] bool placed() const { return sizes.front() > 0; }
  auto operator<=>(const MeshAxes&) const = default;
};

/// The axes of a plan on a torus that it fills; not placed on other clusters.
[[nodiscard]] MeshAxes axes_of(const clusters::Cluster& cluster, const PlanSpec& spec);
/// Devices by rank; empty where ranks run in the order of devices.
[[nodiscard]] std::vector<int> devices_of(const clusters::Cluster& cluster, const MeshAxes& axes);
/// "tensor 12 on 4 x 1 x 3, replicas 512 on 4 x 16 x 8, of a torus of 16 x 16 x 24"; empty where not placed.
[[nodiscard]] std::string placement_text(const clusters::Cluster& cluster, const PlanSpec& spec);

}  // namespace orrery::plan
