#pragma once
/// A rank's PowerSGD states (plan/lower/compress.h): how Q begins, and how checkpoints store errors and Q.
///
/// An error belongs to one replica and, with a tied table, to one copy of the table; a checkpoint has each holder's.
/// Only the sum of the errors matters: it is what gradients still lack. If a run has as many holders as the checkpoint,
/// each reads its own again; otherwise each takes an equal part of the sum. A Q belongs to a tensor rank, for its part
/// of the matrix; with another number of tensor ranks, or another `rank` of PowerSGD, it starts over. A checkpoint of a
/// run without compression has neither.
#include <vector>

#include "exec/state/checkpoint.h"
#include "exec/state/checkpoint_files.h"

namespace orrery::exec {

/// Draws every Q from a standard normal distribution, as Vogels et al. 2019 begin; the same for every seed of the job.
void begin_low_rank(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend);

/// The parts of these states that `rank` writes.
[[nodiscard]] std::vector<OwnedPart> compression_parts(const plan::Schedule& schedule, int rank);

/// Reads what the checkpoint has; the rest starts as in a new run.
void load_compression(const CheckpointContext& context, const CheckpointReader& reader);

}  // namespace orrery::exec
