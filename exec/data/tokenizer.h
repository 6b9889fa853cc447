#pragma once
/// Tokenizers: bytes, or byte-level byte-pair encoding (Sennrich et al. 2016; over bytes, Radford et al. 2019) with
/// the vocabulary files of GPT-2 or a Hugging Face tokenizer.json of that kind, or BERT's word pieces.
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "exec/data/masked_data.h"
#include "exec/data/pretokenise.h"
#include "exec/data/wordpiece.h"

namespace orrery::exec {

class Tokenizer {
 public:
  /// Every byte is a token, and there are no special ones.
  [[nodiscard]] static Tokenizer bytes();
  /// `path`: a tokenizer.json, a vocab.json (or encoder.json) with merges.txt (or vocab.bpe) beside it, or a folder
  /// with either; or BERT's vocab.txt, lower case unless a tokenizer_config.json beside it says otherwise. Codes
  /// E0615 to E0617.
  [[nodiscard]] static base::Result<Tokenizer> open(const std::filesystem::path& path);

  /// All ids are below this; some may be unused.
  [[nodiscard]] std::int64_t vocab() const { return static_cast<std::int64_t>(pieces_.size()); }
  /// The token between documents: <|endoftext|>, or <|end_of_text|>.
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  /// How that token is written in text; empty without one.
  [[nodiscard]] const std::string& end_of_text_word() const { return end_of_text_word_; }
  /// [CLS], [SEP] and [MASK], if the vocabulary has them.
  [[nodiscard]] std::optional<SpecialTokens> special() const;
  /// Appends the ids of `text`. Special tokens are not recognised: their words are ordinary text.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  /// The bytes of a token; empty for an unused id.
  [[nodiscard]] const std::string& piece(std::int32_t id) const;
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  explicit Tokenizer(Pretokeniser pretokeniser) : pretokeniser_(std::move(pretokeniser)) {}
  friend class TokenizerReader;
  struct Merge {
    std::int32_t rank = 0, id = 0;
  };
  [[nodiscard]] const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  void merge(std::string_view piece, std::vector<std::int32_t>& out) const;

  Pretokeniser pretokeniser_;
  bool whole_pieces_ = false;  ///< a piece that is itself a token becomes that token, whatever the merges say
  bool bytes_ = false;
  std::shared_ptr<const WordPiece> word_pieces_;
  std::array<std::int32_t, 256> of_byte_{};
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by left and right id
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> pieces_;
  std::optional<std::int32_t> end_of_text_;
  std::string end_of_text_word_;
};

}  // namespace orrery::exec
