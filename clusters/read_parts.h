#pragma once
/// Reading the parts of a regular cluster, one by one, over what is there already (`like`). For read.cpp.
#include "clusters/limits.h"
#include "clusters/read.h"

namespace orrery::clusters {

/// `node`: each of its parts that is given replaces that part. `fresh`: nothing is there yet, and what every node needs
/// must be given.
void read_node(const base::Cursor& at, bool fresh, int& devices, NodeShape& node);
/// `fabric`: replaces all of it.
[[nodiscard]] NetworkShape read_network(const base::Cursor& at);

/// What fits together only as a whole: edges and boards to devices, pods to leaves, a torus to its nodes, something
/// that joins devices and nodes, a graph that can be built. Points at the key that is wrong, or at `like`.
void check_shape(const base::Cursor& at, Cluster& cluster);

[[nodiscard]] BytesPerSecond read_rate(const base::Cursor& at);
[[nodiscard]] Seconds read_delay(const base::Cursor& at);  ///< 0 when missing
[[nodiscard]] int read_count(const base::Cursor& at, int low, int fallback, int high = kMostSwitches);

}  // namespace orrery::clusters
