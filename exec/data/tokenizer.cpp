// Merges within a piece, and decodes.
#include "exec/data/tokenizer.h"

#include <queue>
#include <tuple>

namespace orrery::exec {
namespace {

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Tokenizer Tokenizer::bytes() {
  Tokenizer tokenizer(Pretokeniser::gpt2());
  tokenizer.bytes_ = true;
  for (int byte = 0; byte < 256; ++byte) tokenizer.pieces_.emplace_back(1, static_cast<char>(byte));
  return tokenizer;
}

std::optional<SpecialTokens> Tokenizer::special() const {
  SpecialTokens out;
  for (const auto& [word, id] : {std::pair{"[CLS]", &out.begin}, {"[SEP]", &out.separator}, {"[MASK]", &out.mask}}) {
    const auto found = ids_.find(word);
    if (found == ids_.end()) return std::nullopt;
    *id = found->second;
  }
  return out;
}

const Tokenizer::Merge* Tokenizer::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  if (bytes_) {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return;
  }
  if (word_pieces_) return word_pieces_->encode(text, out);
  pretokeniser_.split(text, [&](std::string_view piece) {
    if (whole_pieces_)
      if (const auto whole = ids_.find(std::string(piece)); whole != ids_.end()) return out.push_back(whole->second);
    merge(piece, out);
  });
}

// Merges the pair of lowest rank, the leftmost of equal ones, until no neighbours form a pair. The heap makes a piece
// of n bytes take n log n: a megabyte of one letter is one piece.
void Tokenizer::merge(std::string_view piece, std::vector<std::int32_t>& out) const {
  struct Symbol {
    std::int32_t id;
    int previous, next;  ///< -1: none
  };
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const int at = static_cast<int>(i);
    symbols.push_back({of_byte_[static_cast<unsigned char>(piece[i])], at - 1, i + 1 < piece.size() ? at + 1 : -1});
  }
  using Candidate = std::tuple<std::int32_t, int, std::int32_t, std::int32_t>;  // rank, left's index, left, right
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto propose = [&](int left) {
    if (left < 0) return;
    const Symbol& symbol = symbols[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return;
    const std::int32_t right = symbols[static_cast<std::size_t>(symbol.next)].id;
    if (const Merge* found = merge_of(symbol.id, right)) candidates.push({found->rank, left, symbol.id, right});
  };
  for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) propose(i);
  while (!candidates.empty()) {
    const auto [rank, at, left_id, right_id] = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.id != left_id || left.next < 0) continue;  // already merged
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != right_id) continue;
    left.id = merge_of(left_id, right_id)->id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = at;
    propose(left.previous);
    propose(at);
  }
  for (int i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next)
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
}

const std::string& Tokenizer::piece(std::int32_t id) const {
  static const std::string kNothing;
  return id >= 0 && id < vocab() ? pieces_[static_cast<std::size_t>(id)] : kNothing;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += piece(id);
  return text;
}

}  // namespace orrery::exec
