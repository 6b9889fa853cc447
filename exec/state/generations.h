#pragma once
/// A run's checkpoints, newest first, and resuming from the newest that is whole.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/state/checkpoint.h"

namespace orrery::exec {

/// Everything below `folder` with a checkpoint's name, whole or not, newest first; none if the folder does not exist.
/// Throws Failure if it cannot be listed: a dangling link, another kind of file, no permission.
[[nodiscard]] std::vector<std::filesystem::path> generations(const std::filesystem::path& folder);

/// A checkpoint that a run cannot resume from.
struct DamagedGeneration {
  std::filesystem::path path;
  std::string why;  ///< names the file, and if possible the bytes and the tensor
};

struct Resumed {
  std::optional<std::filesystem::path> from;  ///< nothing: no checkpoint is whole
  Manifest manifest;                          ///< of `from`, without its lists
  std::vector<DamagedGeneration> damaged;     ///< those newer than `from`
};

/// Collective. Loads the newest whole checkpoint of `folder`; rank 0's list of them decides. Changes nothing on the
/// disk. Throws Failure as generations() and load_checkpoint() do.
[[nodiscard]] Resumed load_newest(const CheckpointContext& context, const std::filesystem::path& folder);

/// The same for a single process that reads a run: the newest checkpoint whose files are what was saved. Throws Failure
/// as generations() does.
[[nodiscard]] Resumed newest_whole(const std::filesystem::path& folder);
/// A warning E0642 for each damaged checkpoint that newest_whole() passed over.
[[nodiscard]] base::Diagnostics passed_over(const Resumed& found);

/// Renames a damaged checkpoint so that it no longer counts as one: step-000020.damaged, or .damaged-2 if that exists.
/// Returns the new name. Throws Failure.
std::filesystem::path keep_aside(const std::filesystem::path& checkpoint);

}  // namespace orrery::exec
