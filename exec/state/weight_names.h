#pragma once
/// Places of weights in Hugging Face's safetensors files, by the names of models/families.h, beside the logical names
/// of checkpoints.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/files/safetensors.h"
#include "models/expand.h"
#include "models/families.h"

namespace orrery::exec {

/// Where a logical tensor stands in such a file.
struct FilePlace {
  std::string name;                 ///< of the tensor in the file, with its family's prefix
  std::string prefix;               ///< which some files leave out: "transformer.", "model.", "bert."
  std::vector<std::int64_t> shape;  ///< of the tensor in the file
  bool transposed = false;          ///< GPT-2's Conv1D matrices are (in, out)
  std::int64_t first = 0;  ///< where the logical tensor's axis 0 begins in the file's: q, k and v of one c_attn
  std::int64_t run = 0;    ///< of these so many rows stand together, each run `stride` behind the one before; 0: all
  std::int64_t stride = 0;
  std::int64_t base = 0;  ///< of a tensor of all experts: the element where this one's matrix begins
  double offset = 0;      ///< what the file's values are less by

  /// The file's index on that axis of the logical tensor's `row`.
  [[nodiscard]] std::int64_t row(std::int64_t row) const {
    return run > 0 ? first + row / run * stride + row % run : first + row;
  }
  /// The file's element of the logical (row, column), of `inner` columns.
  [[nodiscard]] std::int64_t element(std::int64_t row_of, std::int64_t column, std::int64_t inner) const {
    return base + (transposed ? column * shape.back() + row(row_of) : row(row_of) * inner + column);
  }
};

/// Of a parameter, or of a piece of one; the logical name itself where there is none for it.
[[nodiscard]] FilePlace place_in_file(const models::WeightNames& names, const models::Tensor& tensor);
/// The same of a family's usual file, with as many heads of keys as of queries.
[[nodiscard]] FilePlace place_in_file(models::Family family, const std::string& logical_name,
                                      const std::vector<std::int64_t>& logical_shape);

/// A file, an index of files (model.safetensors.index.json), or a folder that holds one of these. Codes E0601, E0603.
[[nodiscard]] base::Result<std::vector<SafetensorsFile>> open_weights(const std::filesystem::path& path);

}  // namespace orrery::exec
