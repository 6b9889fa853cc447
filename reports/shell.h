#pragma once
/// Texts of inputs in a shell script: as one word, or in a comment that they cannot leave.
#include <string>
#include <string_view>

namespace orrery::reports {

/// One word of a POSIX shell, in single quotes, whatever stands in it.
[[nodiscard]] std::string shell_word(std::string_view text);
/// Text for behind a `#`: on one line, printable (base/printable.h).
[[nodiscard]] std::string shell_comment(std::string_view text);

}  // namespace orrery::reports
