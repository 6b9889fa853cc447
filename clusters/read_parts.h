#pragma once
/// Reads the parts of a regular cluster, one by one; each replaces what `like` gave. For read.cpp.
#include "clusters/limits.h"
#include "clusters/read.h"

namespace orrery::clusters {

/// Reads `node`: each part that is given replaces that part. `fresh`: there is no `like`, so what every node needs must
/// be given.
void read_node(const base::Cursor& at, bool fresh, int& devices, NodeShape& node);
/// Reads `fabric`, which replaces the whole network.
[[nodiscard]] NetworkShape read_network(const base::Cursor& at);

/// Checks the parts against each other: edges and boards against devices, pods against leaves, a torus against nodes;
/// that devices and nodes are connected and that the graph can be built. Errors point at the wrong key, or at `like`.
void check_shape(const base::Cursor& at, Cluster& cluster);

[[nodiscard]] BytesPerSecond read_rate(const base::Cursor& at);
[[nodiscard]] Seconds read_delay(const base::Cursor& at);  ///< 0 when missing
[[nodiscard]] int read_count(const base::Cursor& at, int low, int fallback, int high = kMostSwitches);

}  // namespace orrery::clusters
