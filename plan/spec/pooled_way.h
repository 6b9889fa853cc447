#pragma once
/// How sums of rows travel from those who have a table's parts to those whose samples they are of, and gradients back.
/// As torchrec does it (torchrec/distributed/sharding: tw, cw, rw, twrw and grid shardings).
#include <cstddef>
#include <cstdint>

#include "plan/spec/table_placement.h"

namespace orrery::plan {

enum class PooledWay : std::uint8_t {
  exchange,  ///< all-to-all over all ranks; partial sums are added up where they arrive. Gradients the same way
  ranks,     ///< of rows over all ranks: their partial sums are reduce-scattered, gradients all-gathered
  node       ///< of rows over a node: reduce-scattered within it, the sums then all-to-all between the ranks that have
             ///< the same place in their nodes. Gradients: all-to-all, then all-gathered within the node
};
inline constexpr std::size_t kPooledWays = 3;
inline constexpr PooledWay kEveryWay[kPooledWays] = {PooledWay::exchange, PooledWay::ranks, PooledWay::node};

/// `ranks` of all, `per_node` of each node. Vectors of int8 have scales of their own, which no collective can add up:
/// where they are sent forward, everything is exchanged; so it is with a parameter server, which takes each worker's
/// gradients by themselves. Of one node's rows, `ranks`.
[[nodiscard]] PooledWay way_of(const TablePlace& place, int ranks, int per_node, PooledType forward, bool server);

/// What a rank with a part sends of pooled vectors, or receives of gradients, over those of the whole batch: on the
/// links between nodes (of a single node: on its links), and on links within a node besides. Rings (nccl-tests,
/// doc/PERFORMANCE.md) enter and leave each node once, whatever its number of ranks.
struct PooledShares {
  double between = 0, within = 0;
};
[[nodiscard]] PooledShares shares_of(PooledWay way, int ranks, int per_node);

}  // namespace orrery::plan
