#pragma once
/// The serial program of compressed gradients: one rank that computes each replica's gradients by themselves, makes of
/// them what the replicas would together, and updates with that.
#include "tests/exec/training.h"

namespace orrery::exec::testing {

struct Compressed {
  Outcome outcome;
  std::vector<LogicalTensors> errors;  ///< PowerSGD: of each replica, after the last step
};

/// What `trial`, whose gradients travel in fewer bits over its data ways, must come to. Data in sequential order.
[[nodiscard]] Compressed train_compressed(const Trial& trial);

}  // namespace orrery::exec::testing
