// A quote in a word is written outside of the quoted parts.
#include "reports/exports/shell.h"

#include "base/printable.h"

namespace orrery::reports {

std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c != '\0')  // a word of a shell cannot contain it
      out += c;
  }
  return out + "'";
}

std::string shell_comment(std::string_view text) {
  return base::printable(text);
}

}  // namespace orrery::reports
