#pragma once
/// The lines of a text under import, with the place of every word. What terminals leave in captured output (colour
/// codes, carriage returns, a byte-order mark) is taken out without moving anything.
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
  /// Copies the text. `sound()` is false, with E0100 reported, when it is empty, no text, longer than 32 MiB or than a
  /// million lines, or holds what steers a terminal (base/printable.h): names of a dump are shown.
  Lines(std::string_view text, const std::string& file);
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  [[nodiscard]] bool sound() const { return sound_; }
  [[nodiscard]] int count() const { return static_cast<int>(lines_.size()); }
  /// Line `n` from 1, without its end.
  [[nodiscard]] std::string_view line(int n) const { return lines_[static_cast<std::size_t>(n - 1)]; }
  /// The words of line `n`, parted by blanks; at most 100,000.
  [[nodiscard]] std::vector<Word> words(int n) const;

  [[nodiscard]] base::Findings& findings() { return findings_; }
  [[nodiscard]] base::Location place(const Word& word) const;
  [[nodiscard]] base::Location place(int line, std::size_t byte, std::size_t length) const;
  /// Just behind the last line that says anything: where a text was cut.
  [[nodiscard]] base::Location end() const { return end_; }
  /// From a byte of the text to its place.
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

/// A whole number of decimal digits (or, with `base` 16, hexadecimal ones) that fits; nothing else around it.
[[nodiscard]] bool whole_number(std::string_view text, long long& value, int base = 10);

/// a < b as people sort names: "node2" before "node10".
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

}  // namespace orrery::clusters
