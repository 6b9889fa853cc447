// Which characters are unsafe to print, and how they are shown instead.
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/text.h"

namespace orrery::base {
namespace {

/// The code point of a character that is known to be valid UTF-8.
std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  std::uint32_t out = character.size() == 1 ? byte(0) : byte(0) & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) out = out << 6 | (byte(i) & 0x3FU);
  return out;
}

bool steers(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

void append_escaped(std::uint32_t c, std::string& out) {
  if (c == '\n')
    out += "\\n";
  else if (c == '\t')
    out += "\\t";
  else if (c < 0x80)
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
  else
    fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", c);
}

/// Length in bytes of `ESC [ digits and semicolons m` at `i`; 0 if there is none.
std::size_t colour_length(std::string_view text, std::size_t i) {
  if (text.substr(i, 2) != "\033[") return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", i + 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 - i : 0;
}

template <class Stays>
std::string shown(std::string_view text, Stays stays) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t kept = stays(i); kept > 0) {
      out.append(text, i, kept);
      i += kept;
      continue;
    }
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[i]));
      ++i;
      continue;
    }
    if (const std::uint32_t c = code_point(text.substr(i, length)); steers(c))
      append_escaped(c, out);
    else
      out.append(text, i, length);
    i += length;
  }
  return out;
}

}  // namespace

bool is_one_line(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0 || steers(code_point(text.substr(i, length)))) return false;
    i += length;
  }
  return true;
}

std::string printable(std::string_view text) {
  return shown(text, [](std::size_t) { return std::size_t{0}; });
}

std::string blanked(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(line, i));
    const std::string_view one = line.substr(i, length);
    if (one == "\t" || is_one_line(one))
      out += one;
    else
      out += ' ';
    i += length;
  }
  return out;
}

std::string printable_lines(std::string_view text, bool colours) {
  return shown(text, [&](std::size_t i) {
    if (text[i] == '\n' || text[i] == '\t') return std::size_t{1};
    return colours ? colour_length(text, i) : std::size_t{0};
  });
}

}  // namespace orrery::base
