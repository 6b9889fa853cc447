#pragma once
/// What a verb writes, under the user's rules: nothing of theirs is overwritten, and with --dry-run nothing is written.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_line.h"
#include "base/result.h"

namespace orrery::apps {

class Outputs {
 public:
  explicit Outputs(const CommonOptions& common) : force_(common.force), dry_run_(common.dry_run) {}
  /// Why these files must not be written, found before any work is done (U0002, U0003): a folder outside the current
  /// one would have to be made, or a file is there that Orrery did not write. Empty: they may.
  [[nodiscard]] base::Diagnostics refused(const std::vector<std::string>& paths) const;
  /// The same of a folder for weights: those that another program wrote are not replaced (U0003).
  [[nodiscard]] base::Diagnostics refused_weights(const std::filesystem::path& folder) const;
  /// As write_file, or nothing.
  void write(const std::filesystem::path& path, std::string_view text) const;
  [[nodiscard]] bool dry_run() const { return dry_run_; }
  [[nodiscard]] bool force() const { return force_; }
  [[nodiscard]] const char* wrote() const { return dry_run_ ? "Would write" : "Wrote"; }

 private:
  bool force_, dry_run_;
};

/// Files that a verb is told to write; folders of runs and weights are their verbs' own.
[[nodiscard]] std::vector<std::string> outputs_of(const Verb& verb);

/// Whether a text begins as one of Orrery's files does; an empty file is nobody's.
[[nodiscard]] bool is_written_by_orrery(std::string_view beginning);

}  // namespace orrery::apps
