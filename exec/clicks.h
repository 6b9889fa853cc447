#pragma once
/// Samples that a recommendation model is trained on: clicks in Criteo's form, a line a sample, fields apart by tabs:
/// the label (0 or 1), dense features, categories in hexadecimal. Table t takes the next `multi_hot` fields; an index
/// is the field's value modulo the table's rows, an empty field is value 0. A dense x becomes log(x + 1), a missing or
/// negative one 0.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/checkpoint_manifest.h"
#include "models/recommender.h"

namespace orrery::exec {

/// Samples one behind the other: dense (n, features), labels (n), indices (n, all tables' bags).
struct ClickBatch {
  std::span<float> dense, labels;
  std::span<std::int32_t> indices;
};

/// One line into one sample. Diagnostics E0660 (too few fields, or too many) and E0661 (a field that does not read)
/// name `file`, line and column; empty: it is sound. Every bad field of the line is said.
[[nodiscard]] base::Diagnostics parse_click(std::string_view text, const std::string& file, int line,
                                            const models::Recommender& model, const ClickBatch& sample);

/// A file of samples, read at any place. Read with pread: nothing is mapped.
class ClickFile {
 public:
  /// Counts lines. Of a file of up to 64 MiB all are read and kept, so that every bad one is known before a step; of a
  /// larger one the first 1,000, and a bad line behind them is an InputFailure where training comes to it.
  [[nodiscard]] static base::Result<std::shared_ptr<const ClickFile>> open(const std::filesystem::path& path,
                                                                           const models::Recommender& model);
  ~ClickFile();
  ClickFile(const ClickFile&) = delete;
  ClickFile& operator=(const ClickFile&) = delete;

  [[nodiscard]] std::int64_t size() const { return size_; }  ///< samples
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Sample `index` % size(). Throws InputFailure.
  void read(std::int64_t index, const ClickBatch& sample) const;
  /// Samples, and a checksum over bytes that are spread over the file.
  [[nodiscard]] DataMark mark() const;

 private:
  ClickFile() = default;
  [[nodiscard]] base::Diagnostics scan();
  [[nodiscard]] std::string bytes(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] ClickBatch kept(std::int64_t index) const;
  std::string name_;
  int descriptor_ = -1;
  models::Recommender model_;
  std::int64_t size_ = 0, bytes_ = 0;
  std::vector<std::int64_t> starts_;           ///< of each kStride-th line
  mutable std::vector<float> dense_, labels_;  ///< of a small file, all samples
  mutable std::vector<std::int32_t> indices_;
  bool keeps_ = false;
};

/// Area under the ROC curve of scores, by ranks, ties halved (Fawcett 2006, "An introduction to ROC analysis", section
/// 7); 0.5 where all labels are alike.
[[nodiscard]] double area_under_curve(std::span<const float> scores, std::span<const float> labels);

}  // namespace orrery::exec
