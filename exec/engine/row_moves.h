#pragma once
/// Copies of rows of tables between the memory that they live in and the device's cache of them (plan::RowMove).
#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/engine/arena.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Where the views of a copy begin, and the type of their elements.
struct RowMoveEnds {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  models::DType dtype = models::DType::fp32;
};

/// Does what a copy step says of the rows in its list, on the rank. `file`: what is on NVMe; else null.
void move_rows(const plan::Schedule& schedule, int rank, const plan::RowMove& rows, std::span<const std::int32_t> list,
               const RowMoveEnds& ends, StateFile* file);

/// Writes back what the caches have changed: then the tables themselves have all values, as whoever reads them outside
/// of a step expects. Nothing where no table has a cache. Between two steps alone.
void settle_tables(const plan::Schedule& schedule, int rank, Arena& arena);
/// The caches have nothing: somebody has written the tables themselves.
void forget_cached_rows(const plan::Schedule& schedule, int rank, Arena& arena);

}  // namespace orrery::exec
