#pragma once
/// The checkpoints of a run, newest first, and going on from the newest that is whole.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/state/checkpoint.h"

namespace orrery::exec {

/// Below `folder`, everything that is named as a checkpoint, whole or not, newest first; none where the folder does not
/// exist. Throws Failure where it cannot be listed: a link to nothing, another kind of file, no permission.
[[nodiscard]] std::vector<std::filesystem::path> generations(const std::filesystem::path& folder);

/// A checkpoint that cannot be gone on from.
struct DamagedGeneration {
  std::filesystem::path path;
  std::string why;  ///< names the file, and where it can be told the bytes and the tensor
};

struct Resumed {
  std::optional<std::filesystem::path> from;  ///< nothing: none is whole
  Manifest manifest;                          ///< of that one, without its lists
  std::vector<DamagedGeneration> damaged;     ///< newer than that one
};

/// Collective. Loads the newest checkpoint of `folder` that is whole; rank 0's list of them counts. Changes nothing on
/// the disk. Throws Failure as generations() and load_checkpoint() do.
[[nodiscard]] Resumed load_newest(const CheckpointContext& context, const std::filesystem::path& folder);

/// The same for one process that reads a run: the newest checkpoint whose files are what was saved. Throws Failure as
/// generations() does.
[[nodiscard]] Resumed newest_whole(const std::filesystem::path& folder);
/// Of each damaged checkpoint that newest_whole() passed over: a warning of code E0642.
[[nodiscard]] base::Diagnostics passed_over(const Resumed& found);

/// Renames a damaged checkpoint to a name that is none: step-000020.damaged, or .damaged-2 where there is one already.
/// Returns the new name. Throws Failure.
std::filesystem::path keep_aside(const std::filesystem::path& checkpoint);

}  // namespace orrery::exec
