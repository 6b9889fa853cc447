#pragma once
/// Writes a verb's files under the user's rules: nothing of theirs is overwritten, and --dry-run writes nothing.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common_options.h"
#include "base/result.h"

namespace orrery::apps {

class Outputs {
 public:
  explicit Outputs(const CommonOptions& common) : force_(common.force), dry_run_(common.dry_run) {}
  /// The reasons why these files must not be written, found before any work is done (U0002, U0003): a folder outside
  /// the current one would have to be created, or an existing file is not Orrery's. Empty: they may be written.
  [[nodiscard]] base::Diagnostics refused(const std::vector<std::string>& paths) const;
  /// The same for a folder of weights: another program's are not replaced (U0003).
  [[nodiscard]] base::Diagnostics refused_weights(const std::filesystem::path& folder) const;
  /// As write_file; does nothing in a dry run.
  void write(const std::filesystem::path& path, std::string_view text) const;
  [[nodiscard]] bool dry_run() const { return dry_run_; }
  [[nodiscard]] bool force() const { return force_; }
  [[nodiscard]] const char* wrote() const { return dry_run_ ? "Would write" : "Wrote"; }

 private:
  bool force_, dry_run_;
};

/// Whether a text begins like one of Orrery's files; an empty file does not.
[[nodiscard]] bool is_written_by_orrery(std::string_view beginning);

}  // namespace orrery::apps
