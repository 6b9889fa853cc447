#pragma once
/// Result<T>: a value, or everything that is wrong with the input. A Diagnostic points at file, line and column and
/// says what was found, what was expected and what to do. Input errors travel as values; nothing here prints.
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace orrery::base {

enum class Severity { error, warning, note };

/// A place in a text. `line` and `column` count from 1; 0 means "the file as a whole".
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  int length = 1;  ///< columns underlined by the caret line
  bool operator==(const Location&) const = default;
};

/// One finding. `code` is stable (E0103 …) and documented in docs/errors.md.
struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;
  Location where;
  std::string message;      ///< what was found and what was expected
  std::string help;         ///< what to do; may be empty
  std::string source_line;  ///< the text of the line, for the caret; may be empty
  bool operator==(const Diagnostic&) const = default;
};

using Diagnostics = std::vector<Diagnostic>;

template <class T>
using Result = tl::expected<T, Diagnostics>;

/// One error that has no place in a file.
[[nodiscard]] inline tl::unexpected<Diagnostics> fail(std::string code, std::string message, std::string help = {}) {
  return tl::make_unexpected(
      Diagnostics{Diagnostic{Severity::error, std::move(code), {}, std::move(message), std::move(help), {}}});
}
[[nodiscard]] inline tl::unexpected<Diagnostics> fail(Diagnostics all) {
  return tl::make_unexpected(std::move(all));
}

/// rustc-style text: `error[E0103]: …`, ` --> file:3:5`, the line, a caret, `= help: …`. `colour` adds ANSI codes.
[[nodiscard]] std::string render(const Diagnostic& diagnostic, bool colour);
[[nodiscard]] std::string render(const Diagnostics& diagnostics, bool colour);

/// The candidate one letter away, else made of parts of `word` (num_heads: heads), else nearest, within 1/3; or empty.
[[nodiscard]] std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// `text` in backticks for a message: control characters escaped, cut after 60 bytes.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace orrery::base
