#pragma once
/// Tables as values: made once from records (reports/tables/tables.h), then shown as aligned text for a terminal or as
/// HTML.
#include <string>
#include <string_view>
#include <vector>

namespace orrery::reports {

/// How text is laid out. `unicode` false gives plain ASCII ("x", "us", "-", "#"); `colour` adds ANSI codes.
struct TableStyle {
  bool unicode = true;
  bool colour = false;
  std::size_t width = 0;  ///< columns of the terminal; 0: unlimited
};

enum class Align { left, right, bar };  ///< bar: the cell is a fraction of 1 as text, drawn as a bar

struct Column {
  std::string head;
  Align align = Align::right;
  std::size_t limit = 0;  ///< widest text shown, the rest becomes "…"; 0: all. HTML shows all
  int drop = 0;           ///< in a narrow terminal, columns with the highest number are left out first; 0: always shown
};

struct Table {
  std::string title;  ///< empty: no title line
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< each as long as `columns`
  std::vector<std::string> notes;              ///< lines below the table
};

/// Columns a terminal needs for a UTF-8 text: combining marks count 0, East Asian wide characters and emoji 2.
[[nodiscard]] std::size_t display_width(std::string_view utf8);
/// The nearest ASCII for the few other characters that tables use; any character left over becomes '?'.
[[nodiscard]] std::string to_ascii(std::string_view utf8);
/// Breaks text at blanks, but not between a number and its unit, into lines of at most `width` columns (0: one line);
/// later lines begin with `indent` blanks. Sequences that set a colour take no columns.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);
/// The same text with blanks and dashes that no line breaks at, where a number stands before its unit or in a range.
[[nodiscard]] std::string unbroken(std::string_view text);
/// Title, head, rule, rows, notes; every line ends in a newline, none in blanks. Where a terminal is too narrow,
/// bars are left out, then columns that may be, named below with what they say if all rows say the same; then texts go
/// over several lines, and in the end the last columns are left out. No figure is ever broken.
[[nodiscard]] std::string text_of(const Table& table, const TableStyle& style);
/// base::human of seconds.
[[nodiscard]] std::string time_text(double seconds);
/// "43.2 %" for a fraction; "—" if it is not finite.
[[nodiscard]] std::string percent(double fraction);
/// "12.3 kWh", "4.56 Wh" of joules: energy is paid in these; of less than 0.1 Wh "1.35 J", "10.6 mJ".
[[nodiscard]] std::string energy_text(double joules);
/// "1,234 $", "0.0123 $"; below a tenth of a cent in millionths, "374 µ$".
[[nodiscard]] std::string money_text(double usd);
/// Four significant digits, also where they are zeros, so that figures beside each other have as many; whole numbers
/// without a point, and from 1,000 to 1e12 thousands separated.
[[nodiscard]] std::string number(double value);
/// What is only estimated, such as days, money or failures: three significant digits (or as many as given) say all that
/// is known. "74.0", "819,000", "0.0019".
[[nodiscard]] std::string estimate_text(double value, int digits = 3);
/// A number as somebody gave it, without zeros that say nothing: "0.01".
[[nodiscard]] std::string given_text(double value);
/// "16,396"; "16,396 devices".
[[nodiscard]] std::string count_text(std::int64_t n);
[[nodiscard]] std::string count_text(std::int64_t n, std::string_view word);

}  // namespace orrery::reports
