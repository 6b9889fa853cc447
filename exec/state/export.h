#pragma once
/// A checkpoint's weights as Hugging Face's transformers read them: model.safetensors and config.json.
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "models/model.h"

namespace orrery::exec {

struct Exported {
  std::int64_t step = 0;  ///< of the checkpoint
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
};

/// Writes into `folder`, which is made; each file under another name first. One tensor is in memory at a time. The
/// checkpoint's checksums are checked. E0604 where Hugging Face's class of that family cannot say the model; throws
/// Failure on damage, a missing part or a full disk.
[[nodiscard]] base::Result<Exported> export_checkpoint(const models::Model& model,
                                                       const std::filesystem::path& checkpoint,
                                                       const std::filesystem::path& folder);

}  // namespace orrery::exec
