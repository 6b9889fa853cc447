// Quotes that end a word are written outside of it.
#include "reports/shell.h"

#include "base/printable.h"

namespace orrery::reports {

std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c != '\0')  // no word of a shell holds one
      out += c;
  }
  return out + "'";
}

std::string shell_comment(std::string_view text) {
  return base::printable(text);
}

}  // namespace orrery::reports
