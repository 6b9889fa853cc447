/// Lays tables out as text.
#include "reports/tables/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/ensure.h"
#include "base/units.h"

namespace orrery::reports {
namespace {

constexpr int kBarWidth = 24;             // columns of a full bar
constexpr std::size_t kComfortable = 24;  // columns of text in a table that is too wide
constexpr std::size_t kPartOfWord = 12;   // columns; longer words (paths, names) are broken where nothing else helps

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

/// Whether a word is what a number is counted in: never apart from it.
bool is_unit(std::string_view word) {
  static constexpr std::array<std::string_view, 19> kUnits{
      "%", "s", "ms", "µs", "us", "ns", "ps", "min", "h", "day", "days", "k", "M", "B", "T", "$", "µ$", "u$", "FLOPs"};
  static constexpr std::array<std::string_view, 7> kEnds{"iB", "B/s", "FLOP/s", "Wh", "/GPU", "/chip", "/rank"};
  word = word.substr(0, word.find_last_not_of(".,;:)") + 1);
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end() ||
         std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) {
           return word.size() > end.size() && word.substr(word.size() - end.size()) == end;
         });
}

/// Where the word that begins here ends: behind its unit if it is a number, behind the number if it is a sign.
std::size_t end_of_word(std::string_view text, std::size_t begins) {
  std::size_t end = std::min(text.find(' ', begins), text.size());
  const std::string_view word = text.substr(begins, end - begins);
  const auto next = [&] {
    const std::size_t last = end == text.size() ? end : std::min(text.find(' ', end + 1), text.size());
    return std::pair{end == text.size() ? std::string_view{} : text.substr(end + 1, last - end - 1), last};
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (const auto [number, last] = next(); (word == "×" || word == "x") && !number.empty() && digit(number.front()))
    return last;
  if (const auto [unit, last] = next(); !word.empty() && digit(word.back()) && is_unit(unit)) end = last;
  return end;
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

/// Those of the kept columns that fit on a line of `most` columns, if so many may be left out.
std::vector<bool> columns_for(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                              std::vector<bool> kept, std::size_t most) {
  std::size_t wide = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) wide += kept[i] ? widths[i] + 2 : 0;
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

/// " yes": what a column says in each row; empty if they differ.
std::string common_cell(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
  if (rows.size() < 2) return {};  // the head alone
  const bool same = std::all_of(rows.begin() + 2, rows.end(),
                                [&](const std::vector<std::string>& row) { return row[column] == rows[1][column]; });
  return same && !rows[1][column].empty() ? " " + rows[1][column] : std::string();
}

/// Columns of the longest word; `parts`: or of the longest part, where long words may be broken.
std::size_t longest_word(std::string_view text, bool parts) {
  std::size_t most = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at), wide = display_width(text.substr(at, end - at));
    most = std::max(most, parts ? std::min(wide, kPartOfWord) : wide);
    at = end + 1;
  }
  return most;
}

/// How much of a word stands on a line of this width: up to a sign in it if there is one, else as much as fits.
std::size_t part_of_word(const std::string& word, std::size_t width) {
  std::size_t end = 0, next = 0, sign = 0;
  while (display_width(std::string_view(word).substr(0, next)) <= width) {
    end = next;
    if (end > 0 && std::string_view("/-_.").find(word[end - 1]) != std::string_view::npos) sign = end;
    (void)next_code_point(word, next);
  }
  return sign > 0 ? sign : end > 0 ? end : next;  // next: a character wider than the column
}

/// The lines of a cell in a column of this width: broken at blanks, and within a word that is wider.
std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  if (display_width(text) <= width) return {text};
  std::vector<std::string> out;
  std::string line;
  const auto add = [&](std::string word) {
    while (display_width(word) > width) {
      if (!line.empty()) out.push_back(std::exchange(line, ""));
      const std::size_t end = part_of_word(word, width);
      out.push_back(word.substr(0, end));
      word.erase(0, end);
    }
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) out.push_back(std::exchange(line, ""));
    line += (line.empty() ? "" : " ") + word;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    if (end > at) add(text.substr(at, end - at));
    at = end + 1;
  }
  if (!line.empty()) out.push_back(std::move(line));
  return out;
}

/// Cells of a table as shown, a head above them, and how wide each column is.
struct Layout {
  const std::vector<Column>& columns;
  std::vector<std::vector<std::string>> rows;  ///< the first is the head
  std::vector<std::size_t> widths;
};

/// What may go over several lines, in the order in which it does: heads and texts down to a comfortable width, which
/// costs less than leaving out columns; all texts; long words. Figures never do: who reads 3 for 37.3 errs.
enum class Breaks { long_texts, texts, words };

/// Narrows the widest columns until a line takes at most `most` columns, as far as that goes; whether it does.
bool narrow(Layout& table, const std::vector<bool>& kept, std::size_t most, Breaks breaks) {
  std::vector<std::size_t> least(table.widths.size());
  for (std::size_t i = 0; i < least.size(); ++i) {
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      const bool text = row == 0 || table.columns[i].align == Align::left;
      const std::string& cell = table.rows[row][i];
      const std::size_t floor =
          breaks == Breaks::long_texts && row > 0 ? std::min(kComfortable, display_width(cell)) : 0;
      least[i] =
          std::max(least[i], text ? std::max(floor, longest_word(cell, breaks == Breaks::words)) : display_width(cell));
    }
  }
  for (;;) {
    std::size_t wide = 0, widest = least.size();
    for (std::size_t i = 0; i < least.size(); ++i) {
      if (!kept[i]) continue;
      wide += table.widths[i] + 2;
      if (table.widths[i] > least[i] && (widest == least.size() || table.widths[i] > table.widths[widest])) widest = i;
    }
    if (wide <= most + 2) return true;
    if (widest == least.size()) return false;
    --table.widths[widest];
  }
}

/// The columns that a terminal of `most` columns shows, and how wide each is: bars go first, then what may be left
/// out, and in the end the last columns.
std::vector<bool> fitted(Layout& table, std::size_t most) {
  std::vector<bool> kept(table.widths.size(), true);
  if (most == 0 || narrow(table, kept, most, Breaks::long_texts)) return kept;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (table.columns[i].align == Align::bar) kept[i] = false;
  kept = columns_for(table.columns, table.widths, std::move(kept), most);
  const std::vector<std::size_t> widths = table.widths;
  for (std::size_t last = kept.size();; table.widths = widths) {
    if (narrow(table, kept, most, Breaks::texts) || narrow(table, kept, most, Breaks::words) || last <= 1) return kept;
    kept[--last] = false;
  }
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
    const std::size_t end = word == text.size() ? word : end_of_word(text, word);
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

std::string unbroken(std::string_view text) {
  constexpr std::string_view kBlank = "\u00a0", kDash = "–", kJoiner = "\u2060";
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = end_of_word(text, at);
    for (const char c : text.substr(at, end - at)) c == ' ' ? out += kBlank : out += c;
    if (end < text.size()) out += ' ';
    at = end + 1;
  }
  const auto digit = [&](std::size_t i) { return i < out.size() && out[i] >= '0' && out[i] <= '9'; };
  for (std::size_t at = out.find(kDash); at != out.npos; at = out.find(kDash, at + kDash.size()))
    if (at > 0 && digit(at - 1) && digit(at + kDash.size())) out.insert(at + kDash.size(), kJoiner);
  return out;
}

std::string text_of(const Table& table, const TableStyle& style) {
  const auto shown = [&](const std::string& text) { return style.unicode ? text : to_ascii(text); };
  Layout laid{table.columns, {{}}, {}};
  for (const Column& column : table.columns) laid.rows.front().push_back(shown(column.head));
  for (const auto& row : table.rows) {
    ENSURE(row.size() == table.columns.size(), "row of {} cells in table '{}' of {} columns", row.size(), table.title,
           table.columns.size());
    auto& line = laid.rows.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Column& column = table.columns[i];
      line.push_back(shown(column.align == Align::bar ? bar(row[i]) : limited(row[i], column.limit)));
    }
  }
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    laid.widths.push_back(0);
    for (const auto& row : laid.rows) laid.widths[i] = std::max(laid.widths[i], display_width(row[i]));
  }
  const std::vector<bool> kept = fitted(laid, style.width);
  std::string out;
  if (!table.title.empty()) out += coloured(wrapped(shown(table.title), style.width), "1", style) + "\n";
  std::string left_out;
  std::vector<std::string> rule;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i])
      rule.push_back(repeat(style.unicode ? "─" : "-", laid.widths[i]));
    else if (table.columns[i].align != Align::bar)
      left_out += (left_out.empty() ? "" : ", ") + table.columns[i].head + common_cell(laid.rows, i);
  }
  const auto put = [&](const std::vector<std::string>& row, bool head) {
    std::vector<std::vector<std::string>> cells(row.size());
    std::size_t high = 1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!kept[i]) continue;
      cells[i] = table.columns[i].align == Align::bar ? std::vector{row[i]} : lines_of(row[i], laid.widths[i]);
      high = std::max(high, cells[i].size());
    }
    for (auto& lines : cells)  // heads stand on the rule
      if (head) lines.insert(lines.begin(), high - std::min(high, lines.size()), "");
    for (std::size_t at = 0; at < high; ++at) {
      std::vector<std::string> line;
      for (std::size_t i = 0; i < row.size(); ++i)
        if (kept[i])
          line.push_back(padded(at < cells[i].size() ? cells[i][at] : "", laid.widths[i], table.columns[i].align));
      out += joined(line) + "\n";
    }
  };
  if (!table.columns.empty()) {
    put(laid.rows.front(), true);
    out += coloured(joined(rule), "2", style) + "\n";
  }
  for (std::size_t row = 1; row < laid.rows.size(); ++row) put(laid.rows[row], false);
  const auto note = [&](const std::string& text) {
    out += coloured(wrapped(shown(text), style.width), "2", style) + "\n";
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

std::string energy_text(double joules) {
  constexpr double kJoulesPerWh = 3600;
  const double wh = joules / kJoulesPerWh;
  if (wh >= 100) return estimate_text(wh / 1000) + " kWh";
  if (wh >= 0.1 || wh == 0) return estimate_text(wh) + " Wh";
  return joules >= 0.1 ? estimate_text(joules) + " J" : estimate_text(1000 * joules) + " mJ";
}

std::string money_text(double usd) {
  constexpr double kLeast = 1e-3, kNothing = 1e-10;  // less would be 0.0001 µ$
  if (std::abs(usd) < kNothing) return "0 $";
  return usd < kLeast && usd > 0 ? estimate_text(1e6 * usd) + " µ$" : estimate_text(usd) + " $";
}

std::string number(double value) {
  if (!std::isfinite(value)) return "—";
  const double size = std::abs(value);
  const bool whole = size == std::floor(size);
  if (size >= 1e12 || (size < 1000 && whole)) return fmt::format("{:.4g}", value);
  if (size < 999.95) return fmt::format("{:#.4g}", value);
  return count_text(std::llround(value));
}

std::string estimate_text(double value, int digits) {
  if (!std::isfinite(value)) return "—";
  if (value == 0) return "0";
  const std::string rounded = fmt::format("{:.{}e}", value, digits - 1);
  const double nearest = std::strtod(rounded.c_str(), nullptr);
  const int power = std::atoi(rounded.c_str() + rounded.find('e') + 1);
  if (power >= digits - 1 && power < 12) return count_text(std::llround(nearest));
  return power < -4 || power >= 12 ? rounded : fmt::format("{:.{}f}", nearest, digits - 1 - power);
}

std::string given_text(double value) {
  return fmt::format("{:.4g}", value);
}

std::string count_text(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  for (std::size_t at = digits.size(), first = n < 0 ? 4 : 3; at > first;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string count_text(std::int64_t n, std::string_view word) {
  return fmt::format("{} {}", count_text(n), base::plural(n, word));
}

}  // namespace orrery::reports
