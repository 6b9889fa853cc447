#pragma once
/// Checkpoints: weights and both moments as logical tensors. Each rank writes what it alone owns into one safetensors
/// file; manifest.json says which part of which logical tensor stands where, so that another plan can read it too.
///
///   checkpoints/step-000020/manifest.json, rank-00000.safetensors …
///
/// A checkpoint is written under a temporary name, synced and renamed: what has the name is whole. Every file's length
/// and CRC-32 are checked before a value reaches the model.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "exec/arena.h"
#include "exec/backend.h"
#include "exec/transport.h"
#include "plan/schedule.h"

namespace orrery::exec {

/// Everything that a checkpoint reads or writes of a run.
struct CheckpointContext {
  const plan::Schedule& schedule;
  Arena& arena;
  Backend& backend;
  Transport& transport;
};

/// Collective. `step`: how many training steps are done. Keeps the newest `keep` checkpoints (at least 1).
void save_checkpoint(const CheckpointContext& context, const std::filesystem::path& folder, std::int64_t step,
                     int keep = 2);

/// Collective. Loads a checkpoint folder; returns its step. Throws Failure when a file is damaged, when a parameter is
/// missing or has another shape, or when some element is covered by no file.
std::int64_t load_checkpoint(const CheckpointContext& context, const std::filesystem::path& checkpoint);

/// The newest whole checkpoint below `folder`, if any.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace orrery::exec
