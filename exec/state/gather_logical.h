#pragma once
/// Gathers sharded values into whole logical tensors on rank 0: reduced gradients for comparison with another run, and
/// weights for export. For models that fit one host's memory.
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

/// Collective over all ranks; the tensors are on rank 0, empty elsewhere. Gradients only from Executor's
/// before_optimizer. Every element of every parameter is filled, else it is our bug.
[[nodiscard]] LogicalTensors gather_logical(const plan::Schedule& schedule, Gathered what, Arena& arena,
                                            Backend& backend, Transport& transport);

/// As one safetensors file, written under another name and renamed.
void write_tensors(const std::string& path, const LogicalTensors& tensors);

}  // namespace orrery::exec
