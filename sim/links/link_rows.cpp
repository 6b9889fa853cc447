// Sums the bytes of directions by class.
#include "sim/links/link_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "clusters/link_names.h"

namespace orrery::sim {
namespace {

using KindAndTier = std::pair<clusters::LinkKind, int>;

std::string class_of(const KindAndTier& kind, const clusters::Cluster& cluster) {
  if (kind.first != clusters::LinkKind::network) return clusters::name_on(cluster, kind.first);
  if (kind.second == 0) return cluster.inter.name;
  return kind.second == 1 ? "leaf-spine" : "spine-core";
}

}  // namespace

std::vector<cost::LinkRow> link_rows(const Fabric& fabric, const clusters::Cluster& cluster,
                                     const std::vector<Carried>& carried, double seconds) {
  struct Row {
    double bytes = 0, capacity = 0, peak = 0;
  };
  std::map<KindAndTier, Row> rows;
  for (const Carried& one : carried) {
    if (one.bytes == 0) continue;
    const Direction& d = fabric.direction(one.link);
    Row& row = rows[{d.kind, d.tier}];
    row.bytes += one.bytes;
    row.peak = std::max(row.peak, one.bytes / (d.bandwidth * seconds));
  }
  for (int i = 0; i < fabric.directions(); ++i) {
    const Direction& d = fabric.direction(i);
    if (const auto row = rows.find({d.kind, d.tier}); row != rows.end()) row->second.capacity += d.bandwidth;
  }
  std::map<std::string, Row> named;
  for (const auto& [kind, row] : rows) named[class_of(kind, cluster)] = row;
  std::vector<cost::LinkRow> result;
  for (const auto& [name, row] : named)
    result.push_back({name, row.bytes, row.bytes / (row.capacity * seconds), row.peak});
  return result;
}

}  // namespace orrery::sim
