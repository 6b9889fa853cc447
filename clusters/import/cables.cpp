/// The network of an irregular cluster, cable by cable.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "clusters/import/fabric.h"

namespace orrery::clusters {
namespace {

Graph::vertex_descriptor add_switch(Graph& graph, VertexKind kind, const std::string& name) {
  Vertex vertex;
  vertex.kind = kind;
  vertex.name = name;
  return boost::add_vertex(std::move(vertex), graph);
}
void add_cable(Graph& graph, Graph::vertex_descriptor a, Graph::vertex_descriptor b, double bandwidth,
               Seconds latency) {
  Link link;
  link.kind = LinkKind::network;
  link.bandwidth = BytesPerSecond{bandwidth};
  link.latency = latency;
  boost::add_edge(a, b, link, graph);
}

}  // namespace

void add_leaf(Graph& graph, const std::vector<FoundNode>& nodes, const NicVertices& nics, const Known& known) {
  const auto leaf = add_switch(graph, VertexKind::leaf, "leaf0");
  for (std::size_t n = 0; n < nics.size(); ++n)
    for (std::size_t i = 0; i < nics[n].size(); ++i)
      add_cable(graph, nics[n][i], leaf, nodes[std::min(n, nodes.size() - 1)].nics[i].speed, known.nic_latency);
}

void add_cables(Graph& graph, const FoundFabric& fabric, const std::vector<Host>& hosts, const NicVertices& nics,
                const Known& known) {
  const auto tiers = tiers_of(fabric, hosts);
  std::map<int, Graph::vertex_descriptor> switches;
  for (std::size_t s = 0; s < tiers.size(); ++s)
    if (tiers[s])
      switches[static_cast<int>(s)] =
          add_switch(graph, *tiers[s], fmt::format("{} {}", fabric.nodes[s].name, fabric.nodes[s].guid));
  for (std::size_t n = 0; n < nics.size(); ++n)
    for (std::size_t i = 0; i < nics[n].size(); ++i) {
      const HostPort& port = hosts[n].ports[i];
      add_cable(graph, nics[n][i], switches.at(port.leaf), port.bandwidth, known.nic_latency);
    }
  std::map<std::pair<int, int>, double> trunks;
  for (const FoundCable& cable : fabric.cables)
    if (switches.count(cable.a.node) != 0 && switches.count(cable.b.node) != 0)
      trunks[std::minmax(cable.a.node, cable.b.node)] += cable.bandwidth;
  for (const auto& [ends, bandwidth] : trunks)
    add_cable(graph, switches.at(ends.first), switches.at(ends.second), bandwidth, known.hop_latency);
}

}  // namespace orrery::clusters
