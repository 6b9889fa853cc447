// Colour, character set and the progress line.
#include "apps/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace orrery::apps {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

bool wants_colour(Colour asked, int descriptor) {
  if (asked != Colour::automatic) return asked == Colour::always;
  if (!environment("NO_COLOR").empty()) return false;
  if (const auto forced = environment("CLICOLOR_FORCE"); !forced.empty() && forced != "0") return true;
  return ::isatty(descriptor) == 1 && environment("TERM") != "dumb";
}

/// A pipe gets UTF-8 unless the locale forbids it, as "C" and "POSIX" without a charset do.
bool speaks_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos || value.find("utf-8") != value.npos;
  }
  return false;
}

/// COLUMNS, else the terminal's own width; 0: neither is known.
std::size_t columns_of(int descriptor) {
  constexpr int kMost = 10'000;
  const int said = std::atoi(std::string(environment("COLUMNS")).c_str());
  if (said > 0) return static_cast<std::size_t>(std::min(said, kMost));
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0) return size.ws_col;
  return 0;
}

}  // namespace

Terminal detect_terminal(const CommonOptions& common) {
  Terminal terminal;
  terminal.style.colour = wants_colour(common.colour, STDOUT_FILENO);
  terminal.style.unicode = speaks_unicode();
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = columns_of(STDOUT_FILENO);
  terminal.style.width = columns > 0 ? columns : kUsual;
  terminal.error_width = columns_of(STDERR_FILENO);
  terminal.colour_errors = wants_colour(common.colour, STDERR_FILENO);
  terminal.progress = !common.quiet && ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

void Progress::line(const std::string& text) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (dirty_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  dirty_ = true;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
}

void Progress::clear() {
  if (dirty_) std::fputs("\r\033[K", stderr);
  dirty_ = false;
}

std::string bar(double fraction, int width) {
  const double share = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(std::lround(share * width));
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(width - full), '-') + "]";
}

}  // namespace orrery::apps
