#pragma once
/// Gathers sharded values as whole logical tensors on rank 0: reduced gradients to compare with another run, and
/// weights to export. For models that fit in one host's memory.
#include <map>
#include <string>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "exec/engine/transport.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

struct LogicalTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using LogicalTensors = std::map<std::string, LogicalTensor>;

enum class Gathered { gradients, weights };

/// Collective over all ranks. The tensors are on rank 0; other ranks get none. Gradients only from Executor's
/// before_optimizer. Every element of every parameter is filled; anything else is our bug.
[[nodiscard]] LogicalTensors gather_logical(const plan::Schedule& schedule, Gathered what, Arena& arena,
                                            Backend& backend, Transport& transport);

/// Writes one safetensors file, under a temporary name that is then replaced.
void write_tensors(const std::string& path, const LogicalTensors& tensors);

}  // namespace orrery::exec
