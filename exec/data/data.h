#pragma once
/// Training data: a stream of token ids in files, readable at any position, and which of its tokens each step reads.
/// Formats: llm.c .bin, Megatron .bin/.idx, and any text file or folder of files as bytes.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/data/clicks.h"
#include "exec/data/masked_data.h"
#include "plan/spec/job.h"

namespace orrery::exec {

/// A stream of token ids. Read with pread: nothing is mapped, so a file that shrinks is an error and not a signal.
class TokenStream {
 public:
  /// A run of tokens of equal width in one file.
  struct Segment {
    int file = 0;            ///< index into `files`
    std::int64_t first = 0;  ///< token number in the stream
    std::int64_t tokens = 0;
    std::int64_t offset = 0;  ///< bytes from the start of the file
    int width = 1;            ///< bytes per token
    bool is_signed = false;
  };

  /// Opens `path`: a folder (all regular files below it, sorted by path, as bytes), an llm.c or Megatron .bin, or any
  /// other file as bytes. Errors in the files are in the result (codes E0611 …).
  [[nodiscard]] static base::Result<TokenStream> open(const std::filesystem::path& path);

  TokenStream() = default;  ///< without tokens
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] DataFormat format() const { return format_; }
  /// Tokens [first, first + out.size()), wrapping at the end of the stream. Throws Failure if an id is not below
  /// `vocab` (naming file and position) or a file cannot be read.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const;

 private:
  void read_run(const Segment& segment, std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const;
  struct File {
    std::string name;
    int descriptor = -1;
  };
  friend struct TokenStreamBuilder;
  std::vector<File> files_;
  std::vector<Segment> segments_;
  std::int64_t size_ = 0;
  DataFormat format_ = DataFormat::bytes;
};

/// Which tokens a training step reads. Sequence g of a step (0 <= g < batch) is, in sequential order, the tokens
/// [(step * batch + g) * T, ...) of the stream (but see go_on_at); in shuffled order the windows of T tokens are
/// visited in a permutation that depends only on (seed, epoch). Targets are the next tokens.
class Batches {
 public:
  Batches(TokenStream stream, plan::DataOrder order, std::uint64_t seed, std::int64_t batch, std::int64_t sequence,
          std::int64_t vocab);
  /// For a recommendation model: samples instead of sequences, read by load_clicks.
  Batches(std::shared_ptr<const ClickSource> clicks, plan::DataOrder order, std::uint64_t seed, std::int64_t batch);
  [[nodiscard]] const ClickSource* clicks() const { return clicks_.get(); }
  /// Number of skipped lines, if lines may be skipped.
  [[nodiscard]] std::optional<std::int64_t> bad_lines() const { return clicks_ ? clicks_->bad_lines() : std::nullopt; }
  /// Samples [first, first + count) of a step.
  /// Each bag's lookups are in the order of their blocks of rows (exec/data/row_blocks.h).
  void load_clicks(std::int64_t step, std::int64_t first, std::int64_t count, const ClickBatch& out) const;
  /// Sequences [first, first + count) of a step; both spans hold count * T ids.
  void load(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;
  /// Before step `step` the run has read this many sequences; the step begins with the next one. If earlier steps had
  /// another batch size, this is not `step` times this batch.
  void go_on_at(std::int64_t step, std::int64_t sequences) { origin_ = sequences - step * batch_; }
  /// Sequences that the run reads before a step.
  [[nodiscard]] std::int64_t sequences_before(std::int64_t step) const { return origin_ + step * batch_; }
  /// From now on, sequences are masked: `load_masked` makes each from a window with as many tokens as its text has.
  void mask(const Masking& masking);
  [[nodiscard]] bool masked() const { return masking_.has_value(); }
  void load_masked(std::int64_t step, std::int64_t first, std::int64_t count, const MaskedBatch& out) const;
  /// First token of a sequence in the stream.
  [[nodiscard]] std::int64_t position(std::int64_t step, std::int64_t sequence_index) const;
  [[nodiscard]] const TokenStream& stream() const { return stream_; }
  [[nodiscard]] DataFormat format() const { return clicks_ ? clicks_->format() : stream_.format(); }
  /// Tokens or samples, as the format counts.
  [[nodiscard]] std::int64_t size() const { return clicks_ ? clicks_->size() : stream_.size(); }

 private:
  TokenStream stream_;
  std::shared_ptr<const ClickSource> clicks_;
  plan::DataOrder order_;
  std::uint64_t seed_;
  std::int64_t batch_, sequence_, vocab_;
  std::int64_t origin_ = 0;          ///< number of the sequence with which step 0 would begin
  std::int64_t stride_ = sequence_;  ///< tokens of the stream per sequence
  std::optional<Masking> masking_;
};

/// Element `index` of a permutation of [0, count) that depends on (seed, epoch): a Feistel network over the next power
/// of four, walked until it lands inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
[[nodiscard]] std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

}  // namespace orrery::exec
