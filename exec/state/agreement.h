#pragma once
/// Makes one rank's failure known to all: a rank that succeeded must not wait for one that did not.
#include <functional>
#include <string>

#include "base/result.h"
#include "exec/engine/transport.h"

namespace orrery::exec {

/// Collective. Runs `body`, which must contain nothing collective. If it throws on some rank, every rank throws the
/// Failure of the lowest such rank, with its sentence and kind, as a DamagedCheckpoint or InputFailure if it was one.
void together(Transport& transport, const std::function<void()>& body);

/// Collective. Tells all ranks whether one of them found something wrong. Rank 0, which reports for all, gets the first
/// failing rank's diagnostics.
[[nodiscard]] base::Result<bool> agreed(Transport& transport, base::Result<bool> mine);

}  // namespace orrery::exec
