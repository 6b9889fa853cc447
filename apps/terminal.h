#pragma once
/// What the terminal can show, and the one progress line on stderr.
#include <chrono>
#include <string>

#include "apps/common_options.h"
#include "reports/tables/table.h"

namespace orrery::apps {

/// How to show results (stdout) and messages (stderr). Flags override NO_COLOR, CLICOLOR_FORCE, TERM and LANG.
struct Terminal {
  reports::TableStyle style;    ///< of stdout
  bool colour_errors = false;   ///< of stderr
  std::size_t error_width = 0;  ///< columns of stderr; 0: not a terminal, so lines stay whole for searching
  bool progress = false;        ///< stderr is a terminal and --quiet is not given
};
[[nodiscard]] Terminal detect_terminal(const CommonOptions& common);

/// A line that is rewritten in place, at most ten times a second, and cleared by the destructor.
class Progress {
 public:
  explicit Progress(bool shown) : shown_(shown) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  [[nodiscard]] bool shown() const { return shown_; }
  void line(const std::string& text);
  void clear();

 private:
  bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// "[########------]" for a fraction.
[[nodiscard]] std::string bar(double fraction, int width);

}  // namespace orrery::apps
