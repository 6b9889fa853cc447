#pragma once
/// What a rank holds of a recommendation model's embedding tables, as parts of logical tensors: for initial values,
/// checkpoints and gathered weights, none of which depends on where tables are placed.
#include <cstdint>
#include <vector>

#include "exec/engine/logical.h"
#include "exec/state/checkpoint_parts.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// A run of a table's values, or of its rows' states, in a buffer of the rank.
struct HeldShard {
  State state = State::weight;      ///< or a moment: Adagrad's first, one per row; Adam's two, per value
  plan::ParameterRange range;       ///< name and shapes
  int tensor_rank = 0;              ///< which part of the columns
  std::int64_t begin = 0, end = 0;  ///< elements, flat, of that part
  plan::BufferId buffer;
  std::int64_t offset = 0;
  bool writes = true;  ///< this rank writes it into checkpoints; of several holders, one does
  [[nodiscard]] Holding holding() const { return {&range, offset, begin, end}; }
};

/// Sharded tables with their states, and the states of the tables that every rank has (whose values are in a bucket).
/// Empty for other models.
[[nodiscard]] std::vector<HeldShard> held_shards(const plan::Schedule& schedule, int rank);

/// The model's tables that are in no bucket, as whole tensors: names and logical shapes.
[[nodiscard]] std::vector<plan::ParameterRange> sharded_tables(const plan::Schedule& schedule);

}  // namespace orrery::exec
