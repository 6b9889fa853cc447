// UTF-8 and control characters. yaml-cpp reads byte 0x04 as the end of its input and NUL as an escape, and passes
// invalid UTF-8 on, so texts are checked before any parser sees them.
#include "base/text.h"

#include <fmt/format.h>

namespace orrery::base {

std::size_t utf8_length(std::string_view s, std::size_t i) {
  const auto byte = [&](std::size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0U; };
  const auto tail = [&](std::size_t k) { return (byte(k) & 0xC0U) == 0x80U; };
  const unsigned a = byte(i);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    const unsigned b = byte(i + 1);
    if ((a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return tail(i + 1) && tail(i + 2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    const unsigned b = byte(i + 1);
    if ((a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
    return tail(i + 1) && tail(i + 2) && tail(i + 3) ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

bool is_text(std::string_view text, std::size_t most_bytes, Findings& findings, TextKind kind) {
  if (text.size() > most_bytes) {
    findings.error("E0100", {findings.file()},
                   fmt::format("the file has {} bytes; at most {} are read", text.size(), most_bytes));
    return false;
  }
  int line = 1;
  int column = 1;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto c = static_cast<unsigned char>(text[i]);
    const bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c == 0x7f && kind == TextKind::plain);
    if (length == 0 || control) {
      findings.error("E0100", {findings.file(), line, column},
                     fmt::format("byte 0x{:02x} does not belong in a text file", c), "save the file as UTF-8 text");
      return false;
    }
    i += length;
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  return true;
}

}  // namespace orrery::base
