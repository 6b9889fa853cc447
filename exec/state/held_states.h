#pragma once
/// What a rank holds from step to step, tensor by tensor: weights, masters, moments and so on, as laid out in its
/// memory. Guards hash it, and tests plant faults in it.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// A run of elements of a persistent buffer.
struct HeldPart {
  std::string state;   ///< "weight", "master", "stashed", "first_moment", "second_moment", "first_scale",
                       ///< "second_scale", "compression_error", "low_rank_q", "factors", "loss_scaling"
  std::string tensor;  ///< logical name; if several tensors share it, the bucket's or the state's
  plan::BufferId buffer;
  int version = 0;  ///< of a buffer with several versions
  std::int64_t first = 0, elements = 0;
  /// If two ranks have equal keys, both hold the same values, bit by bit, between two steps. Empty: no other rank does.
  std::string key;
};

/// In the same order on all ranks of a class. Leaves out padding, except in scales.
[[nodiscard]] std::vector<HeldPart> held_parts(const plan::Schedule& schedule, int rank);

}  // namespace orrery::exec
