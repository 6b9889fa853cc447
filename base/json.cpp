// The strict JSON reader: RFC 8259, refusing whatever the RFC leaves to implementations.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/ensure.h"
#include "base/text.h"
#include "base/units.h"

namespace orrery::base {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostKeys = 1'000'000;  // open at a time; the largest vocabularies have a quarter of this

// parse_number also reads `.5`, which JSON does not.
bool parse_json_number(std::string_view word, double& out) {
  const bool bare_point = word.substr(0, 1) == "." || word.substr(0, 2) == "-.";
  return !bare_point && parse_number(word, out);
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' ||
         c == '-' || c == '.';
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto push = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {
  if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  Findings findings(file_, {});
  if (!is_text(text_, kMostBytes, findings, TextKind::json)) errors_ = findings.all();
}

void JsonReader::error_at(std::size_t offset, std::string message, std::string code) {
  if (failed()) return;
  offset = std::min(offset, text_.size());
  const std::string_view before = text_.substr(0, offset);
  const std::size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::size_t end = std::min(text_.find('\n', offset), text_.size());
  const int line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  // Split and keep only the line itself, whatever the size of the file.
  Findings findings(file_, text_.substr(begin, end - begin));
  Location where = findings.location(1, static_cast<int>(offset - begin), 1);
  findings.error(std::move(code), where, std::move(message));
  errors_ = findings.all();
  errors_.front().where.line = line;
}

void JsonReader::error(std::string message, std::string code) {
  error_at(value_, std::move(message), std::move(code));
}

char JsonReader::peek() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::take(char c) {
  if (failed() || peek() != c) return false;
  ++at_;
  return true;
}

void JsonReader::open(bool object) {
  if (failed()) return;
  (void)peek();
  value_ = at_;
  if (!take(object ? '{' : '['))
    return error_at(at_, object ? "an object `{...}` is expected here" : "an array `[...]` is expected here");
  if (levels_.size() >= kMostDepth)
    return error_at(value_, fmt::format("nested deeper than {} levels", kMostDepth), "E0108");
  levels_.push_back({object, true, {}});
}

void JsonReader::open_object() {
  open(true);
}
void JsonReader::open_array() {
  open(false);
}

// True when another element follows, past its comma.
bool JsonReader::next(char closing) {
  if (failed()) return false;
  ENSURE(!levels_.empty() && levels_.back().object == (closing == '}'),
         "the innermost open value needs the other closing bracket");
  if (take(closing)) {
    keys_ -= levels_.back().keys.size();
    levels_.pop_back();
    return false;
  }
  if (!levels_.back().first && !take(',')) {
    error_at(at_, fmt::format("`,` or `{}` is expected here", closing));
    return false;
  }
  levels_.back().first = false;
  return true;
}

bool JsonReader::key(std::string& key) {
  if (!next('}')) return false;
  (void)peek();
  const std::size_t begin = at_;
  if (!take('"')) {
    error_at(at_, "a key in double quotes is expected here");
    return false;
  }
  key = string_at(begin);
  if (!failed() && !levels_.back().keys.insert(key).second)
    error_at(begin, fmt::format("key {} is given twice", quoted(key)), "E0107");
  if (++keys_ > kMostKeys) error_at(begin, fmt::format("more than {} keys", kMostKeys), "E0108");
  if (!failed() && !take(':')) error_at(at_, "`:` is expected here");
  return !failed();
}

bool JsonReader::item() {
  return next(']');
}

std::uint32_t JsonReader::hex4() {
  std::uint32_t value = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (failure != std::errc{} || digits.size() != 4 || end != digits.data() + 4)
    error_at(at_, "four hexadecimal digits are expected here");
  at_ += digits.size();
  return value;
}

// The rest of a string, after its opening quote.
std::string JsonReader::string_at(std::size_t begin) {
  std::string out;
  while (at_ < text_.size() && !failed()) {
    const std::size_t plain = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20)
      ++at_;
    out.append(text_, plain, at_ - plain);
    if (at_ == text_.size()) break;
    const char c = text_[at_++];
    if (c == '"') return out;
    if (c != '\\') {
      error_at(at_ - 1, "a string ends on the line where it begins");
    } else {
      constexpr std::string_view kFrom = "\"\\/bfnrt";
      constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
      const char escape = at_ < text_.size() ? text_[at_++] : '\0';
      if (const std::size_t k = kFrom.find(escape); k != std::string_view::npos) {
        out += kTo[k];
      } else if (escape == 'u') {
        std::uint32_t code = hex4();
        if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
          at_ += 2;
          const std::uint32_t low = hex4();
          code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0xD800;
        }
        if (code >= 0xD800 && code < 0xE000) error_at(begin, "half of a surrogate pair");
        append_utf8(code, out);
      } else {
        error_at(at_ - 1, "unknown escape");
      }
    }
  }
  error_at(begin, "this string does not end");
  return {};
}

// The characters of a number or a word.
std::string_view JsonReader::scalar() {
  (void)peek();
  value_ = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(value_, at_ - value_);
}

char JsonReader::kind() {
  const char c = failed() ? '\0' : peek();
  if (c == '{' || c == '[' || c == '"' || c == 'n') return c;
  if (c == 't' || c == 'f') return 'b';
  return c == '-' || (c >= '0' && c <= '9') ? '0' : '\0';
}

std::string_view JsonReader::number_word() {
  constexpr std::string_view kNothing = "0";
  if (failed()) return kNothing;
  const std::string_view word = scalar();
  double ignored = 0;
  if (parse_json_number(word, ignored)) return word;
  error_at(value_, "a number is expected here");
  return kNothing;
}

double JsonReader::number(double low, double high) {
  if (failed()) return low;
  const std::string_view word = scalar();
  double out = 0;
  if (!parse_json_number(word, out)) {
    error_at(value_, word.empty() ? "a number is expected here"
                                  : fmt::format("a number is expected, found {}", quoted(std::string(word))));
    return low;
  }
  if (out >= low && out <= high) return out;
  error_at(value_, fmt::format("must be from {:g} to {:g}, found {}", low, high, quoted(std::string(word))));
  return low;
}

std::int64_t JsonReader::integer(std::int64_t low, std::int64_t high) {
  if (failed()) return low;
  const std::string_view word = scalar();
  double shape = 0;
  std::int64_t out = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), out);
  if (!parse_json_number(word, shape) || end != word.data() + word.size()) {
    error_at(value_, fmt::format("a whole number is expected{}{}", word.empty() ? " here" : ", found ",
                                 word.empty() ? "" : quoted(std::string(word))));
    return low;
  }
  if (failure == std::errc{} && out >= low && out <= high) return out;
  error_at(value_, fmt::format("must be from {} to {}, found {}", low, high, quoted(std::string(word))));
  return low;
}

std::string JsonReader::text() {
  if (failed()) return {};
  (void)peek();
  value_ = at_;
  if (take('"')) return string_at(value_);
  error_at(at_, "a string is expected here");
  return {};
}

bool JsonReader::boolean() {
  if (failed()) return false;
  const std::string_view word = scalar();
  if (word != "true" && word != "false") error_at(value_, "true or false is expected here");
  return word == "true";
}

void JsonReader::skip() {
  if (failed()) return;
  const char c = peek();
  if (c == '{') {
    open_object();
    for (std::string ignored; key(ignored);) skip();
  } else if (c == '[') {
    open_array();
    while (item()) skip();
  } else if (c == '"') {
    (void)text();
  } else {
    const std::string_view word = scalar();
    double ignored = 0;
    const bool known = word == "null" || word == "true" || word == "false" || parse_json_number(word, ignored);
    if (!known) error_at(value_, "a value is expected here");
  }
}

void JsonReader::finish() {
  if (failed()) return;
  ENSURE(levels_.empty(), "{} values are still open", levels_.size());
  (void)peek();
  if (at_ < text_.size()) error_at(at_, "text follows the end of the value");
}

std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace orrery::base
