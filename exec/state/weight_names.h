#pragma once
/// Where weights are in Hugging Face's safetensors files, by the names of models/read/families.h, beside checkpoints'
/// own logical names.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/files/safetensors.h"
#include "models/layers/expand.h"
#include "models/read/families.h"

namespace orrery::exec {

/// Where a logical tensor is in such a file.
struct FilePlace {
  std::string name;                 ///< the tensor's in the file, with its family's prefix
  std::string prefix;               ///< some files leave it out: "transformer.", "model.", "bert."
  std::vector<std::int64_t> shape;  ///< of the tensor in the file
  bool transposed = false;          ///< GPT-2's Conv1D matrices are (in, out)
  std::int64_t first = 0;           ///< where it begins on axis 0 of the file's tensor: q, k and v share one c_attn
  std::int64_t run = 0;  ///< consecutive rows, with the next such run `stride` further on; 0: all are consecutive
  std::int64_t stride = 0;
  std::int64_t base = 0;   ///< the element where it begins: in a tensor of all experts, or in each row
  double offset = 0;       ///< add this to the file's values
  std::int64_t width = 0;  ///< columns of the file's matrix, if the logical one is some of them, from `base` on; or 0
  /// In each run of `head` rows, `columns` rows from `first` on rotate. The file has the two rows of each pair side by
  /// side, or first the second rows; the logical tensor has the first of each pair, then the second. head 0: none.
  models::WeightNames::Rotated rotated = {};

  /// The file's index on that axis for the logical tensor's `row`.
  [[nodiscard]] std::int64_t row(std::int64_t row) const {
    if (rotated.head > 0) row = of_pair(row);
    return run > 0 ? first + row / run * stride + row % run : first + row;
  }
  /// The file's element for the logical (row, column), with `inner` columns.
  [[nodiscard]] std::int64_t element(std::int64_t row_of, std::int64_t column, std::int64_t inner) const {
    return base +
           (transposed ? column * shape.back() + row(row_of) : row(row_of) * (width > 0 ? width : inner) + column);
  }

 private:
  [[nodiscard]] std::int64_t of_pair(std::int64_t row) const {
    const std::int64_t at = row % rotated.head - rotated.first, half = rotated.columns / 2;
    if (at < 0 || at >= rotated.columns) return row;
    if (rotated.swapped) return at < half ? row + half : row - half;
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
  }
};

/// Elements of a row, of which the first axis says how many there are.
[[nodiscard]] std::int64_t row_elements(const std::vector<std::int64_t>& shape);

/// For a parameter or a piece of one; the logical name itself if the family has none for it.
[[nodiscard]] FilePlace place_in_file(const models::WeightNames& names, const models::Tensor& tensor);
/// The same for a family's usual file, with as many key heads as query heads.
[[nodiscard]] FilePlace place_in_file(models::Family family, const std::string& logical_name,
                                      const std::vector<std::int64_t>& logical_shape);

/// Opens a file, an index of files (model.safetensors.index.json), or a folder with one of these. Codes E0601, E0603.
[[nodiscard]] base::Result<std::vector<SafetensorsFile>> open_weights(const std::filesystem::path& path);

}  // namespace orrery::exec
