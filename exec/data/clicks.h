#pragma once
/// Samples that a recommendation model is trained on: clicks in Criteo's form, a line a sample, fields apart by tabs:
/// the label (0 or 1), dense features, categories in hexadecimal. Table t takes the next `multi_hot` fields; an index
/// is the field's value modulo the table's rows, an empty field is value 0. A dense x becomes log(x + 1), a missing or
/// negative one 0. A file called *.bin holds the same fields as int32, a record a sample: the form of the public DLRM's
/// CriteoBinDataset (facebookresearch/dlrm, data_loader_terabyte.py), 160 bytes of Criteo's 40 fields.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/data/mark.h"
#include "models/recommender.h"
#include "plan/spec/job.h"

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

/// The same of a record of int32: the line is its number from 1, the column that of the field.
[[nodiscard]] base::Diagnostics parse_click_record(std::span<const std::int32_t> fields, const std::string& file,
                                                   int record, const models::Recommender& model,
                                                   const ClickBatch& sample);
/// int32 of a record.
[[nodiscard]] std::int64_t record_fields(const models::Recommender& model);

/// A file of samples, read at any place. Read with pread: nothing is mapped.
class ClickFile {
 public:
  /// Counts lines. Of a file of up to 64 MiB all are read and kept, so that every bad one is known before a step; of a
  /// larger one the first 1,000, and a bad line behind them is an InputFailure where training comes to it. Where bad
  /// ones are skipped all are read, whatever the size: the samples are those that remain, in their order.
  [[nodiscard]] static base::Result<std::shared_ptr<const ClickFile>> open(const std::filesystem::path& path,
                                                                           const models::Recommender& model,
                                                                           plan::BadLines bad = plan::BadLines::refuse);
  ~ClickFile();
  ClickFile(const ClickFile&) = delete;
  ClickFile& operator=(const ClickFile&) = delete;

  [[nodiscard]] std::int64_t size() const { return size_; }  ///< samples
  [[nodiscard]] bool skips() const { return skips_; }        ///< it was opened so
  /// Lines that are skipped, and what is wrong with the first of them.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }
  [[nodiscard]] const base::Diagnostics& first_skipped() const { return first_skipped_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const models::Recommender& model() const { return model_; }
  /// Samples `first` % size() and those behind it, as many as there are labels; behind the last comes the first. Throws
  /// InputFailure.
  void read(std::int64_t first, const ClickBatch& samples) const;
  /// Samples, and a checksum over bytes that are spread over the file.
  [[nodiscard]] DataMark mark() const;

 private:
  ClickFile() = default;
  [[nodiscard]] base::Diagnostics scan();
  void scan_lines(base::Diagnostics& found);
  void scan_records(base::Diagnostics& found);
  template <class Parse>
  void look_at(base::Diagnostics& found, const ClickBatch& sample, const Parse& parse);
  [[nodiscard]] std::string bytes(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] std::int64_t line_of(std::int64_t sample) const;
  void read_run(std::int64_t first, std::int64_t count, const ClickBatch& samples) const;
  void read_lines(std::int64_t first, std::int64_t count, const ClickBatch& samples) const;
  void read_records(std::int64_t first, std::int64_t count, const ClickBatch& samples) const;
  /// Samples [at, at + count) of several.
  [[nodiscard]] ClickBatch part_of(const ClickBatch& samples, std::int64_t at, std::int64_t count) const;
  std::string name_;
  int descriptor_ = -1;
  models::Recommender model_;
  bool binary_ = false, skips_ = false;
  std::int64_t size_ = 0, lines_ = 0, bytes_ = 0, skipped_ = 0;
  base::Diagnostics first_skipped_;
  std::vector<std::int64_t> bad_;      ///< numbers of lines that are skipped, from 0, ascending
  std::vector<std::int64_t> starts_;   ///< of each kStride-th line
  std::vector<float> dense_, labels_;  ///< of a small file, all samples
  std::vector<std::int32_t> indices_;
  bool keeps_ = false;
};

/// Area under the ROC curve of scores, by ranks, ties halved (Fawcett 2006, "An introduction to ROC analysis", section
/// 7); 0.5 where all labels are alike.
[[nodiscard]] double area_under_curve(std::span<const float> scores, std::span<const float> labels);

}  // namespace orrery::exec
