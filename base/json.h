#pragma once
/// Strict JSON reading for large machine-written files: one pass, no tree, every value checked against its range.
/// Refused: duplicate keys, numbers that do not fit, invalid UTF-8, nesting over 64, more than a million keys open at a
/// time. The first error ends the reading (with file, line and column); after it, every reader returns its fallback and
/// every loop ends.
///
///     reader.open_object();
///     for (std::string key; reader.key(key);) { if (key == "n") n = reader.integer(0, 9); else reader.skip(); }
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::base {

class JsonReader {
 public:
  /// `text` must outlive the reader. At most 1 GiB.
  JsonReader(std::string_view text, std::string file);

  /// The kind of the next value: `{`, `[`, `"`, `0` for a number, `b` for true and false, `n` for null; NUL for
  /// anything else, or after an error.
  [[nodiscard]] char kind();
  void open_object();
  /// Moves to the next key and stores it; false at the end of the object, which is then closed.
  [[nodiscard]] bool key(std::string& key);
  void open_array();
  /// Moves to the next element; false at the end of the array, which is then closed.
  [[nodiscard]] bool item();

  [[nodiscard]] double number(double low, double high);
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high);
  /// A number as written; "0" after an error.
  [[nodiscard]] std::string_view number_word();
  [[nodiscard]] std::string text();
  [[nodiscard]] bool boolean();
  void skip();
  /// Reports anything after the value; call it last.
  void finish();

  /// An error at the value that was read last (E0130, or `code`).
  void error(std::string message, std::string code = "E0130");
  [[nodiscard]] bool failed() const { return !errors_.empty(); }
  [[nodiscard]] const Diagnostics& errors() const { return errors_; }

 private:
  struct Level {
    bool object = false;
    bool first = true;
    std::set<std::string, std::less<>> keys;
  };
  [[nodiscard]] char peek();
  [[nodiscard]] bool take(char c);
  void open(bool object);
  [[nodiscard]] bool next(char closing);
  [[nodiscard]] std::string string_at(std::size_t begin);
  [[nodiscard]] std::uint32_t hex4();
  [[nodiscard]] std::string_view scalar();
  void error_at(std::size_t offset, std::string message, std::string code = "E0130");

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  std::size_t value_ = 0;  ///< where the value read last begins
  std::vector<Level> levels_;
  std::size_t keys_ = 0;  ///< open keys at all levels
  Diagnostics errors_;
};

/// Text as a JSON string, quotes included.
[[nodiscard]] std::string json_quoted(const std::string& text);

}  // namespace orrery::base
