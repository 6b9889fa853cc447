#pragma once
/// Names and orientations of weights in Hugging Face's safetensors files, for GPT-2, Llama and BERT, beside the logical
/// names of checkpoints.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/safetensors.h"
#include "models/model.h"

namespace orrery::exec {

/// Where a logical tensor stands in such a file.
struct FilePlace {
  std::string name;                 ///< of the tensor in the file, with its family's prefix
  std::string prefix;               ///< which some files leave out: "transformer.", "model.", "bert."
  std::vector<std::int64_t> shape;  ///< of the tensor in the file
  bool transposed = false;          ///< GPT-2's Conv1D matrices are (in, out)
  std::int64_t first = 0;  ///< where the logical tensor's axis 0 begins in the file's: q, k and v of one c_attn
};

/// Of a family's file; the logical name itself where the family has none for it.
[[nodiscard]] FilePlace place_in_file(models::Family family, const std::string& logical_name,
                                      const std::vector<std::int64_t>& logical_shape);

/// A file, an index of files (model.safetensors.index.json), or a folder that holds one of these. Codes E0601, E0603.
[[nodiscard]] base::Result<std::vector<SafetensorsFile>> open_weights(const std::filesystem::path& path);

}  // namespace orrery::exec
