#pragma once
/// What a rank holds from step to step, tensor by tensor: weights, masters, moments and their like, as they lie in its
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
  std::string tensor;  ///< logical name; of what belongs to several tensors, the bucket's or the state's
  int buffer = -1;
  int version = 0;  ///< of a buffer that has several
  std::int64_t first = 0, elements = 0;
  /// Equal keys of two ranks: both hold the same values, bit by bit, between two steps. Empty: nobody else has these.
  std::string key;
};

/// In an order that is the same on all ranks of a class. Padding is left out, but of scales.
[[nodiscard]] std::vector<HeldPart> held_parts(const plan::Schedule& schedule, int rank);

}  // namespace orrery::exec
