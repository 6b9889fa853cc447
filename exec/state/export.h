#pragma once
/// Writes a checkpoint's weights as Hugging Face's transformers read them: model.safetensors and config.json.
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "models/model.h"

namespace orrery::exec {

struct Exported {
  std::int64_t step = 0;  ///< of the checkpoint
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
};

/// Creates `folder` and writes into it; each file has a temporary name first. Holds one tensor in memory at a time.
/// Checks the checkpoint's checksums. E0604 if Hugging Face's class of that family cannot express the model; throws
/// Failure on damage, a missing part or a full disk.
[[nodiscard]] base::Result<Exported> export_checkpoint(const models::Model& model,
                                                       const std::filesystem::path& checkpoint,
                                                       const std::filesystem::path& folder);

}  // namespace orrery::exec
