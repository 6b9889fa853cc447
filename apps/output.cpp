// The envelope of --json, and text for people.
#include "apps/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "reports/json.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

/// Wraps messages to the terminal's width; source lines with a caret below them stay as they are.
std::string wrapped_lines(const std::string& text, std::size_t width) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const bool quoted = line.find(" | ") < 12 || line.find("--> ") < 24;
    out += (quoted ? line : reports::wrapped(line, width, line.rfind(" ", 0) == 0 ? 4 : 2)) + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string envelope(const std::string& command, const Outcome& outcome) {
  nlohmann::json result;
  if (!outcome.json.empty()) result = nlohmann::json::parse(outcome.json);
  const nlohmann::json whole = reports::envelope(command, std::move(result), outcome.diagnostics);
  // Input files may contain anything: invalid UTF-8 is replaced rather than refused.
  return whole.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool print_text(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written) return true;
  if (errno == EPIPE) return true;  // whoever reads it wanted no more
  const std::string why = errno != 0 ? std::strerror(errno) : "it took only part of it";
  const std::string said = base::render(base::fail("R0008", "cannot write to standard output: " + why).value(), false);
  std::fwrite(said.data(), 1, said.size(), stderr);
  return false;
}

void print_early(const std::string& text, bool json, const Terminal& terminal) {
  if (!json) static_cast<void>(print_text(base::printable_lines(text, terminal.style.colour)));
}

bool print(const std::string& command, const Outcome& outcome, bool json, const Terminal& terminal) {
  if (json) return print_text(envelope(command, outcome));
  const bool written = print_text(base::printable_lines(outcome.text, terminal.style.colour));
  if (outcome.diagnostics.empty()) return written;
  const std::string text =
      wrapped_lines(base::render(outcome.diagnostics, terminal.colour_errors), terminal.error_width);
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stderr);
  return written;
}

}  // namespace orrery::apps
