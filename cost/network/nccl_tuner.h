#pragma once
/// NCCL's tuner: the time that it predicts for each algorithm and protocol, and the bandwidth that each really reaches.
/// For cost/network/collectives.cpp.
#include <vector>

#include "cost/network/collectives.h"
#include "cost/network/nccl_tables.h"

namespace orrery::cost::nccl {

/// A group as the tuner sees it; bandwidths in GB/s over the group's share of one node.
struct Group {
  int ranks = 2, nodes = 1, per_node = 1;
  int hops = 1;              ///< messages one after another until all members have all
  double exchange = 0;       ///< of a member within a node, when all send to all
  double intra = 0;          ///< of a ring within a node
  double inter = 0;          ///< of all NICs that the group uses in one node; 0 if it is within a node
  double extra_latency = 0;  ///< us between nodes beyond one leaf
  [[nodiscard]] double ring() const;
  /// Bandwidth of all NICs in a double binary tree, relative to a ring: n/(n-1) times theirs over two and three nodes.
  [[nodiscard]] double tree_inter() const;
};

[[nodiscard]] Group group_of(const Network& network, const clusters::GroupSpan& span, int ranks);

/// us that a message between nodes takes in a protocol; `table`: its value in NCCL's hwLatencies.
[[nodiscard]] double hop(const Network& network, const Group& group, double table, Protocol protocol);

/// Rings, trees, NVLS, PAT, CollNet and the hierarchical all-reduce, if enabled.
[[nodiscard]] std::vector<Choice> reductions(const Network& network, const Group& group, Operation operation,
                                             double bytes);
/// All-to-all of `bytes` per rank: direct (all pairs at once), pairwise (one partner per round), two-level.
[[nodiscard]] std::vector<Choice> exchanges(const Network& network, const Group& group, double bytes);

}  // namespace orrery::cost::nccl
