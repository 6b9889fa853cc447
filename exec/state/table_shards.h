#pragma once
/// What a rank holds of a recommendation model's embedding tables, in the terms of logical tensors: for initial values,
/// checkpoints and gathered weights, which do not depend on where tables are placed.
#include <cstdint>
#include <vector>

#include "exec/engine/logical.h"
#include "exec/state/checkpoint_parts.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// A run of a table's values or of its rows' states in a buffer of the rank.
struct HeldShard {
  State state = State::weight;      ///< or a moment: Adagrad's first one a row, Adam's two of each value
  plan::ParameterRange range;       ///< name and shapes
  int tensor_rank = 0;              ///< which part of the columns
  std::int64_t begin = 0, end = 0;  ///< elements, flat, of that part of the tensor
  int buffer = -1;
  std::int64_t offset = 0;
  bool writes = true;  ///< this rank writes it into checkpoints: of what several hold, one does
  [[nodiscard]] Holding holding() const { return {&range, offset, begin, end}; }
};

/// Sharded tables with their states, and the states of those that every rank has (whose values are in a bucket). Empty
/// of other models.
[[nodiscard]] std::vector<HeldShard> held_shards(const plan::Schedule& schedule, int rank);

/// Every table of the model, whole, that no bucket has: names and logical shapes.
[[nodiscard]] std::vector<plan::ParameterRange> sharded_tables(const plan::Schedule& schedule);

}  // namespace orrery::exec
