#pragma once
/// Parts of reading scripts that need no walk: tests, and what `#SBATCH` lines ask for. Private to this folder.
#include <string>
#include <string_view>
#include <vector>

#include "plan/frameworks/shell.h"

namespace orrery::plan {

/// A word without its holes: of a variable that nobody sets nothing is left.
[[nodiscard]] std::string without_holes(const std::string& word);
/// The words between `[` and `]`.
[[nodiscard]] bool shell_test_holds(const std::vector<std::string>& words);
/// `=`, `-gt`, `=~` and the like; on the right of `==` may be a pattern.
[[nodiscard]] bool shell_compare(const std::string& left, const std::string& op, const std::string& right);
[[nodiscard]] BatchRequest batch_of(std::string_view text);

}  // namespace orrery::plan
