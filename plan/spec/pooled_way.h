#pragma once
/// How sums of rows travel from the ranks that have a table's parts to the ranks whose samples they belong to, and
/// gradients back, as in torchrec (torchrec/distributed/sharding: tw, cw, rw, twrw and grid shardings).
#include <cstddef>
#include <cstdint>

#include "plan/spec/table_placement.h"

namespace orrery::plan {

enum class PooledWay : std::uint8_t {
  exchange,  ///< all-to-all over all ranks; partial sums are added where they arrive. Gradients take the same way
  ranks,     ///< tables split by rows over all ranks: partial sums are reduce-scattered, gradients all-gathered
  node       ///< tables split by rows over a node: reduce-scattered within it, then all-to-all of the sums between the
             ///< ranks with the same place in their nodes. Gradients: all-to-all, then all-gathered within the node
};
inline constexpr std::size_t kPooledWays = 3;
inline constexpr PooledWay kEveryWay[kPooledWays] = {PooledWay::exchange, PooledWay::ranks, PooledWay::node};

/// The way for a table at `place`, with `ranks` in all and `per_node` on each node. Vectors of int8 have scales of
/// their own, which no collective can add up: where they are sent forward, everything takes `exchange`. So does
/// everything with a parameter server, which takes each worker's gradients separately. Rows over one node take `ranks`
/// if it is the only one.
[[nodiscard]] PooledWay way_of(const TablePlace& place, int ranks, int per_node, PooledType forward, bool server);

/// How much a rank with a part sends of pooled vectors, or receives of gradients, over the size of the whole batch's:
/// on the links between nodes (with a single node: on its links), and in addition on links within a node. Rings
/// (nccl-tests, doc/PERFORMANCE.md) enter and leave each node once, whatever its number of ranks.
struct PooledShares {
  double between = 0, within = 0;
};
[[nodiscard]] PooledShares shares_of(PooledWay way, int ranks, int per_node);

}  // namespace orrery::plan
