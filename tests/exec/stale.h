#pragma once
/// The serial program of an asynchronous pipeline: one rank that remembers all weights so far, gives each layer those
/// that are as old as its stage's delay, and applies the gradients to the newest.
#include "tests/exec/training.h"

namespace orrery::exec::testing {

/// What `trial`, whose order is asynchronous, must come to: losses, gradients before clipping, norms and last weights.
/// Where both ends of the pipeline share a token table but not its age, the serial model has two, kept equal.
[[nodiscard]] Outcome train_stale(const Trial& trial);

/// A pipeline of eight thin layers, seeded, without clipping.
[[nodiscard]] Trial asynchronous_trial(plan::Order order, int stages);

}  // namespace orrery::exec::testing
