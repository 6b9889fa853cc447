#pragma once
/// Samples that a recommendation model is trained on: clicks in Criteo's form, one line per sample with tabs between
/// fields: the label (0 or 1), dense features, categories in hexadecimal. Table t takes the next `multi_hot` fields; an
/// index is the field's value modulo the table's rows, and an empty field is value 0. A dense x becomes log(x + 1), a
/// missing or negative one 0. Of a table whose bags differ in length (`fewest`) one field holds the bag, with commas
/// between its categories; of a weighted table a category may end in its weight, 1f:0.5. A file named *.bin holds the
/// same fields as int32, one record per sample, as in the DLRM benchmark's CriteoBinDataset (facebookresearch/dlrm,
/// data_loader_terabyte.py): 160 bytes for Criteo's 40 fields. There a bag that may be short has `multi_hot` fields, -1
/// behind its last one, and the weights of a bag follow it as fp32.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/data/mark.h"
#include "models/recommender.h"
#include "plan/spec/job.h"

namespace orrery::exec {

/// Consecutive samples: dense (n, features), labels (n), indices (n, lookups of all tables' bags, each of
/// models::Recommender::lookup_words). Behind the last lookup of a shorter bag stands index -1.
struct ClickBatch {
  std::span<float> dense, labels;
  std::span<std::int32_t> indices;
};

/// Parses one line into one sample. Diagnostics E0660 (too few or too many fields) and E0661 (an unreadable field)
/// name `file`, line and column; none: the line is sound. Every bad field of the line is reported. Where categories are
/// rows, one that its table does not have is a bad field.
[[nodiscard]] base::Diagnostics parse_click(std::string_view text, const std::string& file, int line,
                                            const models::Recommender& model, plan::Categories categories,
                                            const ClickBatch& sample);

/// The same for a record of int32: the line is its number from 1, the column the field's number.
[[nodiscard]] base::Diagnostics parse_click_record(std::span<const std::int32_t> fields, const std::string& file,
                                                   int record, const models::Recommender& model,
                                                   plan::Categories categories, const ClickBatch& sample);
/// Number of int32 of a sample's lookups.
[[nodiscard]] std::int64_t words_of_sample(const models::Recommender& model);
/// Writes lookups of a sample one after the other. A mean over bags of several lengths becomes weights.
class LookupWriter {
 public:
  LookupWriter(const models::Recommender& model, std::span<std::int32_t> to)
      : words_(static_cast<std::size_t>(model.lookup_words())), to_(to) {}
  void add(std::int32_t index, float weight = 1);
  /// Ends the bag of a table, whatever room it has left.
  void end(const models::Table& table);

 private:
  std::size_t words_;
  std::span<std::int32_t> to_;
  std::size_t begun_ = 0, at_ = 0;  ///< words: of the bag's first lookup, of the next one
};

/// Number of int32 in a record.
[[nodiscard]] std::int64_t record_fields(const models::Recommender& model);

/// Samples that can be read at any position.
class ClickSource {
 public:
  ClickSource() = default;
  virtual ~ClickSource() = default;
  ClickSource(const ClickSource&) = delete;
  ClickSource& operator=(const ClickSource&) = delete;
  [[nodiscard]] virtual std::int64_t size() const = 0;  ///< samples
  [[nodiscard]] virtual DataFormat format() const = 0;
  [[nodiscard]] virtual const models::Recommender& model() const = 0;
  /// Reads samples from `first` % size() on, as many as there are labels; the first follows the last. Throws
  /// InputFailure.
  virtual void read(std::int64_t first, const ClickBatch& samples) const = 0;
  /// Number of samples, and a checksum over some of what they are made from.
  [[nodiscard]] virtual DataMark mark() const = 0;
  /// Number of unreadable samples that are left out, if any may be, and what is wrong with the first of them.
  [[nodiscard]] virtual std::optional<std::int64_t> bad_lines() const { return std::nullopt; }
  [[nodiscard]] virtual base::Diagnostics first_bad() const { return {}; }
  /// Whether the source knows with which probability each sample was to be clicked.
  [[nodiscard]] virtual bool knows_chances() const { return false; }
  /// If so: these probabilities, and the labels, of samples from `first` % size() on; spans of equal size.
  virtual void read_chances(std::int64_t first, std::span<float> chances, std::span<float> labels) const;
};

/// A file of samples. Uses pread: nothing is mapped.
class ClickFile final : public ClickSource {
 public:
  /// Counts lines. A file of up to 64 MiB is read and kept as a whole, so that every bad line is known before the first
  /// step; of a larger one the first 1,000 lines are checked, and a later bad line is an InputFailure when training
  /// reaches it. If bad lines are skipped, the whole file is read, whatever its size: the other lines are the samples.
  [[nodiscard]] static base::Result<std::shared_ptr<const ClickFile>> open(const std::filesystem::path& path,
                                                                           const models::Recommender& model,
                                                                           plan::BadLines bad = plan::BadLines::refuse,
                                                                           std::optional<plan::Categories> = {});
  ~ClickFile() override;
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::optional<std::int64_t> bad_lines() const override {
    return skips_ ? std::optional(skipped_) : std::nullopt;
  }
  [[nodiscard]] base::Diagnostics first_bad() const override { return first_skipped_; }
  [[nodiscard]] const models::Recommender& model() const override { return model_; }
  void read(std::int64_t first, const ClickBatch& samples) const override;
  /// The checksum is over bytes spread over the file.
  [[nodiscard]] DataFormat format() const override { return binary_ ? DataFormat::criteo_binary : DataFormat::criteo; }
  [[nodiscard]] DataMark mark() const override;

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
  /// Samples [at, at + count) of `samples`.
  [[nodiscard]] ClickBatch part_of(const ClickBatch& samples, std::int64_t at, std::int64_t count) const;
  std::string name_;
  int descriptor_ = -1;
  models::Recommender model_;
  bool binary_ = false, skips_ = false;
  plan::Categories categories_ = plan::Categories::hashed;
  std::int64_t size_ = 0, lines_ = 0, bytes_ = 0, skipped_ = 0;
  base::Diagnostics first_skipped_;
  std::vector<std::int64_t> bad_;      ///< numbers of skipped lines, from 0, ascending
  std::vector<std::int64_t> starts_;   ///< offset of every kStride-th line
  std::vector<float> dense_, labels_;  ///< all samples, if the file is small
  std::vector<std::int32_t> indices_;
  bool keeps_ = false;
};

/// Area under the ROC curve of scores, by ranks, ties counting half (Fawcett 2006, "An introduction to ROC analysis",
/// section 7); 0.5 if all labels are equal.
[[nodiscard]] double area_under_curve(std::span<const float> scores, std::span<const float> labels);

}  // namespace orrery::exec
