#pragma once
/// Writes a verb's files under the user's rules: nothing of theirs is overwritten, and --dry-run writes nothing.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common_options.h"
#include "base/result.h"

namespace orrery::apps {

/// What a file is that Orrery writes. One replaces another of its kind only.
enum class FileKind { plan, job, cluster, calibration, stack, intervals, page, trace, timeline, settings, model };

/// A file that a verb will write; an empty path is none.
struct OutputFile {
  std::string path;
  FileKind kind;
  bool any = false;     ///< the user has asked to replace whatever is there, also what Orrery did not write
  bool stream = false;  ///< the verb takes `-` as standard output; others refuse it
};

class Outputs {
 public:
  explicit Outputs(const CommonOptions& common) : force_(common.force), dry_run_(common.dry_run) {}
  /// The reasons why these files must not or cannot be written, found before any work is done: it is a folder, or lies
  /// in one that cannot be written to, or is `-` where that is no stream (U0006), a folder outside the current one
  /// would have to be created (U0002), an existing file is not Orrery's or of another kind (U0003), it is one of the
  /// `inputs` of the same command (U0004), or it lies in the directory of a run (U0005). Empty: they may be written.
  [[nodiscard]] base::Diagnostics refused(const std::vector<OutputFile>& files,
                                          const std::vector<std::string>& inputs) const;
  /// U0002 alone, for a directory that will be made.
  [[nodiscard]] base::Diagnostics refused_folder(const std::string& path) const;
  /// The same for a folder of weights: another program's are not replaced (U0003).
  [[nodiscard]] base::Diagnostics refused_weights(const std::filesystem::path& folder) const;
  /// As write_file; does nothing in a dry run.
  void write(const std::filesystem::path& path, std::string_view text) const;
  [[nodiscard]] bool dry_run() const { return dry_run_; }
  [[nodiscard]] bool force() const { return force_; }
  [[nodiscard]] const char* wrote() const { return dry_run_ ? "Would write" : "Wrote"; }
  /// Of these files those that have not been written: what a verb owes that was stopped.
  [[nodiscard]] std::vector<std::string> not_written(const std::vector<OutputFile>& files) const;

 private:
  bool force_, dry_run_;
  mutable std::vector<std::filesystem::path> written_;
};

/// The kind of Orrery's files that begin like this text; absent: another program's, or the user's.
[[nodiscard]] std::optional<FileKind> kind_of(std::string_view beginning);

}  // namespace orrery::apps
