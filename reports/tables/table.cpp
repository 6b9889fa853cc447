/// Lays tables out as text.
#include "reports/tables/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/ensure.h"
#include "base/units.h"

namespace orrery::reports {
namespace {

constexpr int kBarWidth = 24;            // columns of a full bar
constexpr std::size_t kNoteWidth = 240;  // columns; a terminal wraps it into two or three lines

struct Range {
  char32_t first, last;
};
constexpr std::array<Range, 5> kZeroWidth{
    {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}}};
constexpr std::array<Range, 9> kWide{{{0x1100, 0x115F},
                                      {0x2E80, 0xA4CF},
                                      {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF},
                                      {0xFE30, 0xFE6F},
                                      {0xFF00, 0xFF60},
                                      {0xFFE0, 0xFFE6},
                                      {0x1F300, 0x1FAFF},
                                      {0x20000, 0x3FFFD}}};

template <std::size_t N>
bool within(char32_t c, const std::array<Range, N>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [c](Range r) { return c >= r.first && c <= r.last; });
}

/// Reads one code point and moves `at` past it; a malformed byte is taken as one character.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length == 1 || at + length > text.size()) {
    ++at;
    return lead < 0x80 ? lead : 0xFFFD;
  }
  char32_t c = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) c = (c << 6U) | (byte(at + i) & 0x3FU);
  at += length;
  return c;
}

const char* ascii_for(char32_t c) {
  switch (c) {
    case 0x00D7: return "x";    // ×
    case 0x00B5:                // micro sign
    case 0x03BC: return "u";    // Greek mu
    case 0x2013:                // –
    case 0x2014:                // —
    case 0x2212:                // minus
    case 0x2500: return "-";    // ─
    case 0x2192: return "->";   // →
    case 0x00B7: return "*";    // ·
    case 0x2265: return ">=";   // ≥
    case 0x2264: return "<=";   // ≤
    case 0x00B1: return "+/-";  // ±
    case 0x2026: return "...";  // …
    case 0x00A0:                // no-break space
    case 0x202F: return " ";
    case 0x2588: return "#";                                // █
    default: return c >= 0x2589 && c <= 0x258F ? "" : "?";  // partial blocks vanish
  }
}

std::string repeat(std::string_view unit, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += unit;
  return out;
}

/// A bar, drawn in eighths of a column.
std::string bar(const std::string& fraction) {
  const double value = std::clamp(std::strtod(fraction.c_str(), nullptr), 0.0, 1.0);
  const int eighths = static_cast<int>(std::lround(value * kBarWidth * 8));
  static constexpr std::array<const char*, 8> kPartial{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  return repeat("█", static_cast<std::size_t>(eighths / 8)) + kPartial[static_cast<std::size_t>(eighths % 8)];
}

/// The first columns of a text, with "…" for the rest if it is wider.
std::string limited(const std::string& text, std::size_t columns) {
  if (columns == 0 || display_width(text) <= columns) return text;
  std::size_t at = 0, before = 0;
  for (; display_width(std::string_view(text).substr(0, at)) < columns; next_code_point(text, at)) before = at;
  return text.substr(0, before) + "…";
}

std::string padded(const std::string& cell, std::size_t width, Align align) {
  const std::size_t have = display_width(cell);
  const std::string blanks(width > have ? width - have : 0, ' ');
  return align == Align::right ? blanks + cell : cell + blanks;
}

std::string joined(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : "  ") + cells[i];
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// Columns of a word; colour codes take none.
std::size_t without_colours(std::string_view word) {
  std::string plain;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begins = std::min(word.find("\x1b[", at), word.size());
    plain += word.substr(at, begins - at);
    const std::size_t ends = word.find('m', begins);
    at = begins == word.size() || ends == word.npos ? word.size() : ends + 1;
  }
  return display_width(plain);
}

/// The columns that fit on a line of `most` columns.
std::vector<bool> columns_for(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                              std::size_t most) {
  std::vector<bool> kept(columns.size(), true);
  if (most == 0) return kept;
  std::size_t wide = 0;
  for (const std::size_t one : widths) wide += one + 2;
  while (wide > most + 2) {
    std::size_t least = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (kept[i] && columns[i].drop > 0 && (least == columns.size() || columns[i].drop >= columns[least].drop))
        least = i;
    if (least == columns.size()) break;
    kept[least] = false;
    wide -= widths[least] + 2;
  }
  return kept;
}

std::string coloured(const std::string& text, const char* code, const TableStyle& style) {
  return style.colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

}  // namespace

std::size_t display_width(std::string_view utf8) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < utf8.size();) {
    const char32_t c = next_code_point(utf8, at);
    width += within(c, kZeroWidth) ? 0 : within(c, kWide) ? 2 : 1;
  }
  return width;
}

std::string to_ascii(std::string_view utf8) {
  std::string out;
  for (std::size_t at = 0; at < utf8.size();) {
    const char32_t c = next_code_point(utf8, at);
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += ascii_for(c);
    }
  }
  return out;
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (width == 0) return std::string(text);
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const std::size_t end = std::min(text.find(' ', word), text.size());
    const std::size_t blanks = word - at, wide = without_colours(text.substr(word, end - word));
    if (wide > 0 && column > indent && column + blanks + wide > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent + wide;
    } else {
      out.append(blanks, ' ');
      column += blanks + wide;
    }
    out += text.substr(word, end - word);
    at = end;
  }
  return out;
}

std::string text_of(const Table& table, const TableStyle& style) {
  const auto shown = [&](const std::string& text) { return style.unicode ? text : to_ascii(text); };
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(display_width(shown(column.head)));
  for (const auto& row : table.rows) {
    ENSURE(row.size() == table.columns.size(), "row of {} cells in table '{}' of {} columns", row.size(), table.title,
           table.columns.size());
    auto& line = cells.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Column& column = table.columns[i];
      line.push_back(shown(column.align == Align::bar ? bar(row[i]) : limited(row[i], column.limit)));
      widths[i] = std::max(widths[i], display_width(line.back()));
    }
  }
  const std::vector<bool> kept = columns_for(table.columns, widths, style.width);
  std::string out;
  if (!table.title.empty()) out += coloured(shown(table.title), "1", style) + "\n";
  std::vector<std::string> head, rule;
  std::string left_out;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (!kept[i]) {
      left_out += (left_out.empty() ? "" : ", ") + table.columns[i].head;
      continue;
    }
    head.push_back(padded(shown(table.columns[i].head), widths[i], table.columns[i].align));
    rule.push_back(repeat(style.unicode ? "─" : "-", widths[i]));
  }
  if (!table.columns.empty()) out += joined(head) + "\n" + coloured(joined(rule), "2", style) + "\n";
  for (const auto& row : cells) {
    std::vector<std::string> line;
    for (std::size_t i = 0; i < row.size(); ++i)
      if (kept[i]) line.push_back(padded(row[i], widths[i], table.columns[i].align));
    out += joined(line) + "\n";
  }
  const auto note = [&](const std::string& text) {
    out += coloured(wrapped(shown(limited(text, kNoteWidth)), style.width), "2", style) + "\n";
  };
  for (const std::string& one : table.notes) note(one);
  if (!left_out.empty())
    note(fmt::format("Left out at {} columns: {}; a wider terminal, COLUMNS=200 or --json has them.", style.width,
                     left_out));
  return out;
}

std::string time_text(double seconds) {
  return base::human(base::Seconds{seconds});
}

std::string percent(double fraction) {
  if (!std::isfinite(fraction)) return "—";
  const double value = 100 * fraction;
  return fmt::format("{:.{}f} %", value, std::abs(value) >= 99.95 ? 0 : 1);
}

std::string number(double value) {
  if (!std::isfinite(value)) return "—";
  const double size = std::abs(value);
  if (size < 1e4 || size >= 1e12) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", size);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return value < 0 ? "-" + digits : digits;
}

}  // namespace orrery::reports
std::string energy_text(double joules) {
  constexpr double kJoulesPerWh = 3600;
  const double wh = joules / kJoulesPerWh;
  if (wh >= 100) return number(wh / 1000) + " kWh";
  return wh >= 0.1 || wh == 0 ? number(wh) + " Wh" : number(1000 * wh) + " mWh";
}

std::string money_text(double usd) {
  constexpr double kLeast = 1e-3;
  return usd < kLeast && usd > 0 ? number(1e6 * usd) + " µ$" : number(usd) + " $";
}

