#pragma once
/// What may be shown of a text that somebody else wrote: nothing of it steers a terminal, ends a line or a comment, or
/// changes the direction of what stands behind it.
#include <string>
#include <string_view>

namespace orrery::base {

/// One line of UTF-8: no control characters (C0, DEL, C1), no line or paragraph separators, no marks that change the
/// direction of text (U+202A to U+202E, U+2066 to U+2069).
[[nodiscard]] bool is_one_line(std::string_view text);

/// The text with all of these escaped (`\n`, `\x1b`, `\u{2028}`; a byte that is no UTF-8 as `\xff`). Text that is one
/// line stays as it is.
[[nodiscard]] std::string printable(std::string_view text);

/// The same as blanks, each of these characters one; tabs stay. For a line that carets stand under.
[[nodiscard]] std::string blanked(std::string_view line);

/// The same for many lines: line feeds and tabs stay and, with `colours`, sequences that set a colour (`ESC [ … m`).
[[nodiscard]] std::string printable_lines(std::string_view text, bool colours);

}  // namespace orrery::base
