/// Tiers of a cluster's graph.
#include "reports/topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/units.h"
#include "clusters/link_names.h"

namespace orrery::reports {
namespace {

using clusters::LinkKind;
using clusters::VertexKind;

/// The replay's name for traffic on links of a kind.
std::string link_name(const clusters::Cluster& cluster, LinkKind kind, VertexKind upper) {
  if (kind != LinkKind::network) return clusters::name_on(cluster, kind);
  if (upper == VertexKind::spine) return "leaf-spine";
  return upper == VertexKind::core ? "spine-core" : cluster.inter.name;
}

/// Messages of a step end at devices: memory, drives and the CPUs' own network carry none of them.
bool is_shown(LinkKind kind, VertexKind a, VertexKind b) {
  const auto aside = [](VertexKind v) { return v == VertexKind::host_memory || v == VertexKind::nvme; };
  return kind != LinkKind::memory && kind != LinkKind::frontend && !aside(a) && !aside(b);
}

}  // namespace

Topology topology_of(const clusters::Cluster& cluster, const std::vector<cost::LinkRow>& loads) {
  Topology out;
  std::map<VertexKind, std::int64_t> vertices;
  std::map<std::tuple<VertexKind, VertexKind, std::string>, TierLinks> links;
  const auto edges = boost::edges(*cluster.graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const clusters::Link& link = (*cluster.graph)[*e];
    const VertexKind a = (*cluster.graph)[boost::source(*e, *cluster.graph)].kind;
    const VertexKind b = (*cluster.graph)[boost::target(*e, *cluster.graph)].kind;
    if (!is_shown(link.kind, a, b)) continue;
    const auto [lower, upper] = std::minmax(a, b);
    const std::string name = link_name(cluster, link.kind, upper);
    TierLinks& one = links[{lower, upper, name}];
    one.from = lower, one.to = upper, one.name = name;
    ++one.count;
    one.bandwidth += link.bandwidth.value;
  }
  const auto all = boost::vertices(*cluster.graph);
  for (auto v = all.first; v != all.second; ++v) ++vertices[(*cluster.graph)[*v].kind];
  for (auto& [key, one] : links) {
    one.bandwidth /= static_cast<double>(one.count);
    for (const cost::LinkRow& load : loads)
      if (load.name == one.name) one.load = load;
    out.links.push_back(one);
  }
  for (const auto& [kind, count] : vertices)
    if (std::any_of(out.links.begin(), out.links.end(),
                    [k = kind](const TierLinks& one) { return one.from == k || one.to == k; }))
      out.tiers.emplace_back(kind, count);
  return out;
}

Table topology_table(const Topology& topology) {
  Table table{"Links by tier",
              {{"between", Align::left}, {"links", Align::left}, {"count"}, {"each"}, {"mean use"}, {"peak use"}},
              {},
              {}};
  for (const TierLinks& one : topology.links)
    table.rows.push_back({fmt::format("{} – {}", clusters::name_of(one.from), clusters::name_of(one.to)), one.name,
                          number(static_cast<double>(one.count)), base::human(base::BytesPerSecond{one.bandwidth}),
                          one.load ? percent(one.load->mean_utilisation) : "—",
                          one.load ? percent(one.load->peak_utilisation) : "—"});
  return table;
}

}  // namespace orrery::reports
