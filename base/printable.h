#pragma once
/// Makes text from outside safe to show: nothing in it steers a terminal, ends a line or a comment, or changes the
/// direction of the text after it.
#include <string>
#include <string_view>

namespace orrery::base {

/// One line of UTF-8: no control characters (C0, DEL, C1), no line or paragraph separators, no marks that change the
/// direction of text (U+202A to U+202E, U+2066 to U+2069).
[[nodiscard]] bool is_one_line(std::string_view text);

/// The text with all of these escaped (`\n`, `\x1b`, `\u{2028}`; a byte that is not UTF-8 as `\xff`). Text that is one
/// line already is unchanged.
[[nodiscard]] std::string printable(std::string_view text);

/// Replaces each of these characters by one blank and keeps tabs: for a line with carets under it.
[[nodiscard]] std::string blanked(std::string_view line);

/// As printable(), for many lines: keeps line feeds, tabs and, with `colours`, colour sequences (`ESC [ … m`).
[[nodiscard]] std::string printable_lines(std::string_view text, bool colours);

}  // namespace orrery::base
