#pragma once
/// Pipeline orders: in which order a stage runs the forward and backward passes of its micro-batches.
#include <cstdint>
#include <vector>

#include "plan/job.h"

namespace orrery::plan {

struct Turn {
  bool forward = true;
  std::int32_t micro_batch = 0;
  bool operator==(const Turn&) const = default;
};

/// gpipe: all forwards, then all backwards (Huang et al. 2019, section 2.2).
/// one_f_one_b: min(stages - 1 - stage, micro_batches) forwards, then one forward and one backward in turn, then the
/// remaining backwards; one synchronous update (PipeDream-Flush, Narayanan et al. 2021, figure 4).
[[nodiscard]] std::vector<Turn> turns(Order order, int stage, int stages, std::int64_t micro_batches);

/// The most micro-batches whose activations a stage holds at once under that order.
[[nodiscard]] std::int64_t in_flight(Order order, int stage, int stages, std::int64_t micro_batches);

}  // namespace orrery::plan
