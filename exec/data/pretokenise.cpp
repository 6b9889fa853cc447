// Splits text with PCRE2.
#include "exec/data/pretokenise.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

// Unicode's white space. PCRE2's `\s` also takes U+180E, which has not been white space since Unicode 6.3.
#define BLANKS \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" BLANKS "\\p{L}\\p{N}]+|[" BLANKS
                              "]+(?![^" BLANKS "])|[" BLANKS "]+";
#undef BLANKS

}  // namespace

std::size_t sequence_at(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
      (first == 0xf4 && second > 0x8f))
    return 0;  // overlong, a surrogate, or beyond U+10FFFF
  return length;
}

struct Pretokeniser::Compiled {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_data, Free> match;
};

Pretokeniser::Pretokeniser(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Pretokeniser::Pretokeniser(Pretokeniser&&) noexcept = default;
Pretokeniser& Pretokeniser::operator=(Pretokeniser&&) noexcept = default;
Pretokeniser::~Pretokeniser() = default;

base::Result<Pretokeniser> Pretokeniser::of(const std::string& expression) {
  auto compiled = std::make_unique<Compiled>();
  int error = 0;
  PCRE2_SIZE at = 0;
  // \C could match part of a character, and the next match would begin inside it, which is undefined.
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), kOptions,
                                     &error, &at, nullptr));
  if (!compiled->code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return base::fail("E0616", fmt::format("the expression that splits text is not understood at character {}: {}", at,
                                           reinterpret_cast<const char*>(text.data())));
  }
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);  // interpreted where the machine has no JIT
  compiled->match.reset(pcre2_match_data_create_from_pattern(compiled->code.get(), nullptr));
  return Pretokeniser(std::move(compiled));
}

Pretokeniser Pretokeniser::gpt2() {
  auto made = of(kGpt2);
  ENSURE(made.has_value(), "GPT-2's expression does not compile");
  return std::move(*made);
}

void Pretokeniser::split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  while (!text.empty()) {
    std::size_t valid = 0;
    for (std::size_t n = 0; (n = sequence_at(text.substr(valid))) > 0;) valid += n;
    split_valid(text.substr(0, valid), piece);
    std::size_t end = valid;
    while (end < text.size() && sequence_at(text.substr(end)) == 0) ++end;
    if (end > valid) piece(text.substr(valid, end - valid));
    text.remove_prefix(end);
  }
}

void Pretokeniser::split_valid(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const int found =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK, compiled_->match.get(), nullptr);  // checked above, once for all matches
    if (found < 0) break;  // none, or beyond PCRE2's limits: the rest is one piece
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(compiled_->match.get());
    const std::size_t begin = range[0], end = range[1];
    if (end <= begin) {  // an empty match would not advance
      from = begin + std::max<std::size_t>(1, begin < text.size() ? sequence_at(text.substr(begin)) : 1);
      continue;
    }
    if (begin > done) piece(text.substr(done, begin - done));
    piece(text.substr(begin, end - begin));
    from = done = end;
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace orrery::exec
