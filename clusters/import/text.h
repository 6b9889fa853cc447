#pragma once
/// The lines of an imported text, with the place of every word. Terminal artefacts in captured output (colour codes,
/// carriage returns, a byte-order mark) are removed without shifting any place.
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"

namespace orrery::clusters {

/// A word and where it begins: line from 1, byte from 0.
struct Word {
  std::string_view text;
  int line = 0;
  int byte = 0;
};

class Lines {
 public:
  /// Copies the text. `sound()` is false, with E0100 reported, when the text is empty, not UTF-8, longer than 32 MiB or
  /// a million lines, or could steer a terminal (base/printable.h), since names from a dump are shown.
  Lines(std::string_view text, const std::string& file);
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  [[nodiscard]] bool sound() const { return sound_; }
  [[nodiscard]] int count() const { return static_cast<int>(lines_.size()); }
  /// Line `n` from 1, without its line end.
  [[nodiscard]] std::string_view line(int n) const { return lines_[static_cast<std::size_t>(n - 1)]; }
  /// The words of line `n`, separated by blanks; at most 100,000.
  [[nodiscard]] std::vector<Word> words(int n) const;

  [[nodiscard]] base::Findings& findings() { return findings_; }
  [[nodiscard]] base::Location place(const Word& word) const;
  [[nodiscard]] base::Location place(int line, std::size_t byte, std::size_t length) const;
  /// Directly after the last line with content: where a truncated text ends.
  [[nodiscard]] base::Location end() const { return end_; }
  /// Converts a byte offset of the text to its place.
  [[nodiscard]] base::Location at_byte(std::size_t offset, std::size_t length) const;
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  void find_end();
  std::string text_;
  std::vector<std::string_view> lines_;
  base::Findings findings_;
  base::Location end_;
  bool sound_ = false;
};

/// Parses a whole number in decimal (or, with `base` 16, hexadecimal) digits, nothing around it; false if too large.
[[nodiscard]] bool whole_number(std::string_view text, long long& value, int base = 10);

/// a < b in natural order: "node2" before "node10".
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

}  // namespace orrery::clusters
