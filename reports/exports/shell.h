#pragma once
/// Quotes inputs for a shell script: as one word, or in a comment that they cannot leave.
#include <string>
#include <string_view>

namespace orrery::reports {

/// One word of a POSIX shell, in single quotes, whatever it contains.
[[nodiscard]] std::string shell_word(std::string_view text);
/// Text to follow a `#`: on one line, printable (base/printable.h).
[[nodiscard]] std::string shell_comment(std::string_view text);

}  // namespace orrery::reports
