// Splits words, then their pieces. The order of steps is that of the paper's own code: clean, space out ideographs,
// split at spaces, lower and strip, split at punctuation, longest match first.
#include "exec/data/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kLongestWord = 100;  // characters; longer ones are unknown
constexpr char32_t kReplacement = 0xfffd;
constexpr int kMostParts = 8;  // into which a character decomposes; at most 4 in Unicode 15

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_space(char32_t c, utf8proc_category_t category) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS;
}
bool is_unseen(char32_t c, utf8proc_category_t category) {
  return c == kReplacement || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}
/// In ASCII all signs, some of which Unicode counts as symbols.
bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}
/// The blocks of CJK ideographs, which are written without spaces.
bool is_ideograph(char32_t c) {
  constexpr std::array<std::array<char32_t, 2>, 8> kBlocks = {{{0x3400, 0x4dbf},
                                                               {0x4e00, 0x9fff},
                                                               {0xf900, 0xfaff},
                                                               {0x20000, 0x2a6df},
                                                               {0x2a700, 0x2b73f},
                                                               {0x2b740, 0x2b81f},
                                                               {0x2b820, 0x2ceaf},
                                                               {0x2f800, 0x2fa1f}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(), [c](const auto& block) { return c >= block[0] && c <= block[1]; });
}

/// Appends the character in lower case, decomposed, without marks.
void append_plain(char32_t c, std::u32string& out) {
  if (c < 0x80) {
    out += c >= 'A' && c <= 'Z' ? c + 0x20 : c;
    return;
  }
  std::array<utf8proc_int32_t, kMostParts> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)),
                                                         parts.data(), kMostParts, UTF8PROC_DECOMPOSE, &boundary);
  ENSURE(count >= 0 && count <= kMostParts, "U+{:04X} in {} parts", static_cast<std::uint32_t>(c), count);
  for (const utf8proc_int32_t part : std::span(parts).first(static_cast<std::size_t>(count)))
    if (utf8proc_category(part) != UTF8PROC_CATEGORY_MN) out += static_cast<char32_t>(part);
}

/// Removes the first character of the text; an invalid byte becomes the replacement character.
char32_t take(std::string_view& text) {
  utf8proc_int32_t c = 0;
  const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                   static_cast<utf8proc_ssize_t>(text.size()), &c);
  text.remove_prefix(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(1, length)));
  return length > 0 ? static_cast<char32_t>(c) : kReplacement;
}

void encode_to(char32_t c, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  for (utf8proc_ssize_t i = 0; i < length; ++i) out += static_cast<char>(bytes[static_cast<std::size_t>(i)]);
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& words, std::int32_t unknown, bool lower)
    : unknown_(unknown), lower_(lower) {
  for (std::size_t i = 0; i < words.size(); ++i) ids_.try_emplace(words[i], static_cast<std::int32_t>(i));
}

void WordPiece::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::u32string current;
  const auto end_word = [&] {
    if (!current.empty()) word(current, out);
    current.clear();
  };
  while (!text.empty()) {
    const char32_t c = take(text);
    const utf8proc_category_t category = category_of(c);
    if (is_space(c, category)) {
      end_word();
    } else if (is_unseen(c, category)) {
      continue;
    } else if (is_ideograph(c)) {
      end_word();
      current = c;
      end_word();
    } else {
      std::u32string plain;
      lower_ ? append_plain(c, plain) : plain.push_back(c);
      for (const char32_t p : plain) {
        if (is_punctuation(p)) {
          end_word();
          current = p;
          end_word();
        } else {
          current += p;
        }
      }
    }
  }
  end_word();
}

void WordPiece::word(const std::u32string& word, std::vector<std::int32_t>& out) const {
  const std::size_t before = out.size();
  std::size_t from = 0;
  while (from < word.size() && word.size() <= kLongestWord) {
    std::string piece = from > 0 ? "##" : "";
    std::vector<std::size_t> ends;  // length of the piece in bytes after each character
    for (std::size_t i = from; i < word.size(); ++i) {
      encode_to(word[i], piece);
      ends.push_back(piece.size());
    }
    std::size_t taken = ends.size();
    while (taken > 0) {
      piece.resize(ends[taken - 1]);
      if (const auto found = ids_.find(piece); found != ids_.end()) {
        out.push_back(found->second);
        break;
      }
      --taken;
    }
    if (taken == 0) break;
    from += taken;
  }
  if (from == word.size()) return;
  out.resize(before);
  out.push_back(unknown_);
}

}  // namespace orrery::exec
