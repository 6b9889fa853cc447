#pragma once
/// Copies rows of tables between their own memory and the device's cache of them (plan::RowMove).
#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/engine/arena.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Where a copy's views begin, and their element type.
struct RowMoveEnds {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  models::DType dtype = models::DType::fp32;
};

/// Copies the rows in a copy step's list on this rank. `file`: for rows on NVMe, else null.
void move_rows(const plan::Schedule& schedule, int rank, const plan::RowMove& rows, std::span<const std::int32_t> list,
               const RowMoveEnds& ends, StateFile* file);

/// Writes changed rows of the caches back, so that the tables themselves have all values, as readers outside a step
/// expect. Does nothing if no table has a cache. Call only between two steps.
void settle_tables(const plan::Schedule& schedule, int rank, Arena& arena);
/// Empties the caches, because the tables themselves have been written.
void forget_cached_rows(const plan::Schedule& schedule, int rank, Arena& arena);

}  // namespace orrery::exec
