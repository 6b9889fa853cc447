#pragma once
/// From what was found of a node to what a cluster says of it: which GPU it is, which NICs count, its figures, its
/// shape.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/known.h"

namespace orrery::clusters {

/// What a figure of the node rests on besides the dump, for the cluster's sources.
using Assumptions = std::vector<std::string>;

/// The catalogue's name of the node's GPUs; E0309 when they cannot be told or differ.
[[nodiscard]] base::Result<std::string> identify(const FoundNode& node, const Known& known);

/// Leaves out the NICs that share no PCIe switch with a GPU, where others do: they serve storage and the front end.
/// Their names.
std::vector<std::string> drop_far_nics(FoundNode& node);

/// What every link of the node needs, in bytes/s.
struct NodeFigures {
  double nvlink = 0;  ///< of one link
  double pcie = 0;    ///< of a GPU's slot where the dump does not say
  double socket = 0, memory = 0;
  CpuVendor vendor = CpuVendor::other;
  bool multicast = false;  ///< of NVSwitches
  int gpu_links = 0;       ///< NVLinks that the GPU has; 0: not known
};
[[nodiscard]] base::Result<NodeFigures> figures_of(const FoundNode& node, const Device& device,
                                                   const std::string& device_name, const Known& known,
                                                   Assumptions& assumptions);

/// Where every pair of GPUs shows as many links as no GPU could have one by one, NVSwitches join them: says so in the
/// node's GPUs instead of its edges.
void find_switches(FoundNode& node, const NodeFigures& figures);

/// The brief form; NICs are put into the order of their PCIe switches. Else `why` says what is irregular.
[[nodiscard]] std::optional<NodeShape> regular_node(FoundNode& node, const NodeFigures& figures, const Known& known,
                                                    std::string& why);

/// The node's vertices and links. Returns the vertices of its NICs. `far_switch`: where the GPUs' NVLinks lead when the
/// switches stand outside.
std::vector<Graph::vertex_descriptor> add_node(Graph& graph, const FoundNode& node, const NodeFigures& figures,
                                               const Known& known, int index, const std::string& name,
                                               std::optional<Graph::vertex_descriptor> far_switch);

/// To four significant digits: what a datasheet would print.
[[nodiscard]] double rounded(double value);

}  // namespace orrery::clusters
