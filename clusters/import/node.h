#pragma once
/// Turns what was found of a node into a description: which GPU it has, which NICs count, its figures, its shape.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/known.h"

namespace orrery::clusters {

/// What the node's figures rest on besides the dump, for the cluster's sources.
using Assumptions = std::vector<std::string>;

/// The catalogue name of the node's GPUs; E0309 if they cannot be identified or differ.
[[nodiscard]] base::Result<std::string> identify(const FoundNode& node, const Known& known);

/// If some NICs share a PCIe switch with a GPU, removes those that do not: they serve storage and the front end.
/// Returns their names.
std::vector<std::string> drop_far_nics(FoundNode& node);

/// Bandwidths of the node's links, in bytes/s.
struct NodeFigures {
  double nvlink = 0;  ///< of one link
  double pcie = 0;    ///< of a GPU's slot if the dump does not say
  double socket = 0, memory = 0;
  CpuVendor vendor = CpuVendor::other;
  bool multicast = false;  ///< whether NVSwitches multicast
  int gpu_links = 0;       ///< NVLinks per GPU; 0: unknown
};
[[nodiscard]] base::Result<NodeFigures> figures_of(const FoundNode& node, const Device& device,
                                                   const std::string& device_name, const Known& known,
                                                   Assumptions& assumptions);

/// If every pair of GPUs shows more links than one GPU could have to each of the others separately, NVSwitches join
/// them: replaces the node's edges by links of its GPUs into switches.
void find_switches(FoundNode& node, const NodeFigures& figures);

/// The brief form, with NICs sorted by their PCIe switch; otherwise `why` says what is irregular.
[[nodiscard]] std::optional<NodeShape> regular_node(FoundNode& node, const NodeFigures& figures, const Known& known,
                                                    std::string& why);

/// Adds the node's vertices and links. Returns the vertices of its NICs. `far_switch`: where the GPUs' NVLinks lead if
/// the switches are outside the node.
std::vector<Graph::vertex_descriptor> add_node(Graph& graph, const FoundNode& node, const NodeFigures& figures,
                                               const Known& known, int index, const std::string& name,
                                               std::optional<Graph::vertex_descriptor> far_switch);

/// Rounds to four significant digits, as a datasheet prints.
[[nodiscard]] double rounded(double value);

}  // namespace orrery::clusters
