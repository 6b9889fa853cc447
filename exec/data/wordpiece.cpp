// Words, then their pieces. The order of steps is that of the paper's own code: clean, space out ideographs, split at
// spaces, lower and strip, split at punctuation, longest match first.
#include "exec/data/wordpiece.h"

#include <algorithm>

#include "exec/data/pretokenise.h"
#include "exec/data/wordpiece_tables.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kLongestWord = 100;  // characters; longer ones are unknown
constexpr char32_t kReplacement = 0xfffd;

template <class Runs>
bool within(const Runs& runs, char32_t c) {
  const auto point = static_cast<std::int32_t>(c);
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), point, [](std::int32_t p, const auto& run) { return p < run[0]; });
  return after != runs.begin() && point <= (*(after - 1))[1];
}

bool is_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || within(kSpaces, c);
}
bool is_unseen(char32_t c) {
  return c < 0x20 || c == 0x7f || c == kReplacement || within(kUnseen, c);
}
bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
  return within(kPunctuation, c);
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

/// In lower case, decomposed, without marks.
void append_plain(char32_t c, std::u32string& out) {
  if (c < 0x80) {
    out += c >= 'A' && c <= 'Z' ? c + 0x20 : c;
    return;
  }
  // Hangul syllables by the standard's rule (Unicode, section 3.12).
  constexpr char32_t kFirst = 0xac00, kSyllables = 11172, kVowels = 21, kTails = 28;
  if (c >= kFirst && c < kFirst + kSyllables) {
    const char32_t at = c - kFirst;
    out += 0x1100 + at / (kVowels * kTails);
    out += 0x1161 + at % (kVowels * kTails) / kTails;
    if (at % kTails != 0) out += 0x11a7 + at % kTails;
    return;
  }
  const auto point = static_cast<std::int32_t>(c);
  const auto many = std::lower_bound(kLongLetters.begin(), kLongLetters.end(), point,
                                     [](const LongLetter& letter, std::int32_t p) { return letter.from < p; });
  if (many != kLongLetters.end() && many->from == point) {
    for (const std::int32_t part : many->to)
      if (part != 0) out += static_cast<char32_t>(part);
    return;
  }
  // Runs of every second letter interleave: one that begins before may reach beyond the next.
  auto run = std::upper_bound(kLetters.begin(), kLetters.end(), point,
                              [](std::int32_t p, const LetterRun& letters) { return p < letters.first; });
  for (int back = 0; back < 2 && run != kLetters.begin(); ++back) {
    --run;
    if (point > run->last || (point - run->first) % run->step != 0) continue;
    if (run->to != 0) out += static_cast<char32_t>(run->to + (point - run->first) / run->step * run->rise);
    return;
  }
  out += c;
}

char32_t decode(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  char32_t out = byte(0) & (0xffU >> (sequence.size() + 1));
  for (std::size_t i = 1; i < sequence.size(); ++i) out = out << 6 | (byte(i) & 0x3fU);
  return out;
}

void encode_to(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
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
    const std::size_t length = sequence_at(text);
    const char32_t c = length == 0 ? kReplacement : decode(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(1, length));
    if (is_space(c)) {
      end_word();
    } else if (is_unseen(c)) {
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
    std::vector<std::size_t> ends;  // bytes of the piece after each character
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
