#pragma once
/// What goes wrong on one rank, known to all: a rank that succeeded must not wait for one that did not.
#include <functional>
#include <string>

#include "base/result.h"
#include "exec/engine/transport.h"

namespace orrery::exec {

/// Collective. Runs `body`, which has no collective in it. Where it throws on some rank, every rank throws the Failure
/// of the lowest such rank: its sentence, its kind, and as DamagedCheckpoint or InputFailure where it is one.
void together(Transport& transport, const std::function<void()>& body);

/// Collective. What was wrong on some rank, on all of them. Rank 0, which speaks for all, has the first failing rank's
/// diagnostics.
[[nodiscard]] base::Result<bool> agreed(Transport& transport, base::Result<bool> mine);

}  // namespace orrery::exec
