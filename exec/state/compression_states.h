#pragma once
/// PowerSGD's states of a rank (plan/lower/compress.h): where Q begins, and how checkpoints have errors and Q.
///
/// An error is one replica's own, and with a tied table one copy's: a checkpoint has each holder's. What matters of
/// them is their sum, which the gradients still lack: as many holders as wrote them read their own again; of another
/// number each takes an equal part of the sum. A Q is a tensor rank's, of its part of the matrix: with other tensor
/// ways, or another rank, it begins anew. A run that did not compress has neither.
#include <vector>

#include "exec/state/checkpoint.h"
#include "exec/state/checkpoint_files.h"

namespace orrery::exec {

/// Draws every Q from a standard normal distribution, as Vogels et al. 2019 begin; the same whatever the job's seed.
void begin_low_rank(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend);

/// What `rank` writes of them.
[[nodiscard]] std::vector<OwnedPart> compression_parts(const plan::Schedule& schedule, int rank);

/// Reads what the checkpoint has; the rest begins as in a new run.
void load_compression(const CheckpointContext& context, const CheckpointReader& reader);

}  // namespace orrery::exec
