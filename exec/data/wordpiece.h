#pragma once
/// BERT's tokenizer (Devlin et al. 2019; WordPiece of Wu et al. 2016): splits text into words and punctuation, in lower
/// case and without accents unless told otherwise, and each word from its beginning into the longest known pieces.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::exec {

class WordPiece {
 public:
  /// `words`: vocab.txt's lines in order; pieces that continue a word begin with "##". `unknown`: the id of [UNK].
  WordPiece(const std::vector<std::string>& words, std::int32_t unknown, bool lower);
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;

 private:
  void word(const std::u32string& word, std::vector<std::int32_t>& out) const;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::int32_t unknown_;
  bool lower_;
};

}  // namespace orrery::exec
