/// Lines and words of an imported text.
#include "clusters/import/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "base/text.h"

namespace orrery::clusters {
namespace {

constexpr std::size_t kMostText = std::size_t{32} << 20;  // a fabric of 10,000 nodes takes a fifth of it
constexpr std::size_t kMostLines = 1'000'000;
constexpr std::size_t kMostWords = 100'000;  // per line

/// The part that is read: one line over the limit, so that the excess is noticed.
std::string_view beginning(std::string_view text) {
  text = text.substr(0, kMostText + 1);
  std::size_t at = 0;
  for (std::size_t lines = 0; lines <= kMostLines && at != std::string_view::npos; ++lines)
    at = text.find('\n', at + 1);
  return text.substr(0, at);
}

/// Replaces terminal escape sequences (ECMA-48: ESC [ parameters final) by blanks of the same length.
std::string without_escapes(std::string_view text) {
  std::string out(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text);
  const auto in = [&](std::size_t i, char low, char high) { return i < out.size() && out[i] >= low && out[i] <= high; };
  for (std::size_t i = out.find('\x1b'); i != std::string::npos; i = out.find('\x1b', i + 1)) {
    if (i + 1 >= out.size() || out[i + 1] != '[') continue;  // other escapes are refused as control characters
    std::size_t end = i + 2;
    while (in(end, '\x20', '\x3f')) ++end;
    if (!in(end, '\x40', '\x7e')) continue;
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(i), out.begin() + static_cast<std::ptrdiff_t>(end) + 1, ' ');
  }
  return out;
}

/// Tabs and carriage returns count as blanks here.
bool may_be_shown(std::string_view line) {
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of("\t\r"), line.size());
    if (!base::is_one_line(line.substr(0, end))) return false;
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return true;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Lines::Lines(std::string_view text, const std::string& file)
    : text_(without_escapes(beginning(text))), findings_(file, text_), end_{file, 1, 1, 1} {
  for (std::size_t begin = 0; begin < text_.size();) {
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    std::string_view line = std::string_view(text_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines_.push_back(line);
    begin = end + 1;
  }
  find_end();
  if (!base::is_text(text_, kMostText, findings_)) return;
  if (lines_.size() > kMostLines) {
    findings_.error("E0100", {file}, fmt::format("the file has more than {} lines", kMostLines));
    return;
  }
  for (int n = 1; n <= count(); ++n) {
    if (may_be_shown(line(n))) continue;
    findings_.error("E0100", {file, n, 1, 1}, "the line holds characters that steer a terminal",
                    "write the command's output into the file again");
    return;
  }
  if (text_.find_first_not_of(" \t\r\n") == std::string::npos) {
    findings_.error("E0100", {file, 1, 1, 1}, "the file is empty", "write the command's output into it again");
    return;
  }
  sound_ = true;
}

std::vector<Word> Lines::words(int n) const {
  std::vector<Word> out;
  const std::string_view text = line(n);
  for (std::size_t i = 0; i < text.size() && out.size() < kMostWords;) {
    if (is_blank(text[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && !is_blank(text[end])) ++end;
    out.push_back({text.substr(i, end - i), n, static_cast<int>(i)});
    i = end;
  }
  return out;
}

base::Location Lines::place(const Word& word) const {
  return findings_.location(word.line, word.byte, static_cast<int>(word.text.size()));
}

base::Location Lines::place(int line, std::size_t byte, std::size_t length) const {
  return findings_.location(line, static_cast<int>(byte), static_cast<int>(std::max<std::size_t>(1, length)));
}

void Lines::find_end() {
  for (int n = count(); n >= 1; --n) {
    const std::size_t last = line(n).find_last_not_of(" \t");
    if (last == std::string_view::npos) continue;
    end_ = place(n, last + 1, 1);
    return;
  }
}

base::Location Lines::at_byte(std::size_t offset, std::size_t length) const {
  const char* const at = text_.data() + std::min(offset, text_.size());
  const auto after = std::upper_bound(lines_.begin(), lines_.end(), at,
                                      [](const char* p, std::string_view line) { return p < line.data(); });
  if (after == lines_.begin()) return {findings_.file(), 1, 1, 1};
  const auto found = after - 1;
  return place(static_cast<int>(found - lines_.begin()) + 1, static_cast<std::size_t>(at - found->data()), length);
}

bool whole_number(std::string_view text, long long& value, int base) {
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  if (text.empty() || text[0] == '-' || text[0] == '+') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto run = [](std::string_view text, std::size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const std::size_t begin = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = run(a, i), y = run(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // so that "node01" and "node1" still differ
}

}  // namespace orrery::clusters
