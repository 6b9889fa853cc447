/// The mesh's axes on the torus's dimensions.
#include "plan/spec/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "clusters/torus.h"

namespace orrery::plan {

MeshAxes axes_of(const clusters::Cluster& cluster, const PlanSpec& spec) {
  const Mesh& mesh = spec.mesh;
  const bool torus = cluster.shape && cluster.shape->node.fabric == clusters::NodeFabric::torus;
  if (!torus || mesh.ranks() != cluster.size() || mesh.ranks() < 2) return {};
  // A sub-group has whole replicas of `context` ranks, or is within one; the latter divides no axis of replicas.
  const int group = spec.states.zero_group, inner = group > 0 ? group / mesh.context : mesh.data;
  const int shards = inner > 0 && group % mesh.context == 0 && mesh.data % inner == 0 ? inner : mesh.data;
  return {{mesh.tensor, mesh.context, shards, mesh.data / shards, mesh.pipeline}};
}

std::vector<int> devices_of(const clusters::Cluster& cluster, const MeshAxes& axes) {
  if (!axes.placed()) return {};
  const clusters::Torus torus = clusters::torus_of(cluster);
  return clusters::place_on_torus(torus, axes.sizes).devices(torus);
}

std::string placement_text(const clusters::Cluster& cluster, const PlanSpec& spec) {
  static constexpr std::array<const char*, MeshAxes::kAxes> kNames = {"tensor", "context", "replicas", "their copies",
                                                                      "pipeline"};
  const MeshAxes axes = axes_of(cluster, spec);
  if (!axes.placed()) return {};
  const clusters::Torus torus = clusters::torus_of(cluster);
  const clusters::TorusPlaces places = clusters::place_on_torus(torus, axes.sizes);
  std::string text;
  for (std::size_t a = 0; a < MeshAxes::kAxes; ++a)
    if (axes.sizes[a] > 1)
      text += fmt::format("{} {} on {}, ", kNames[a], axes.sizes[a], fmt::join(places.parts[a], " x "));
  return text + fmt::format("of a torus of {}", fmt::join(torus.dims, " x "));
}

}  // namespace orrery::plan
