#pragma once
/// Chooses the table of kernels for this CPU.
#include <vector>

#include "exec/cpu/kernels.h"

namespace orrery::exec {

/// The table for this CPU.
[[nodiscard]] const Kernels& best_kernels();
/// All tables that this CPU can run, best last; for tests.
[[nodiscard]] std::vector<const Kernels*> runnable_kernels();

}  // namespace orrery::exec
