#pragma once
/// Finds models, clusters, stacks and calibrations that come with Orrery: in --catalog, then ORRERY_DATA, then beside
/// the installed command (../share/orrery), then in the source tree it was built from. Each root is laid out like the
/// source tree: models/catalog, clusters/catalog, clusters/calibrated, clusters/import, cost/stacks.
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace orrery::apps {

/// A catalogue entry: its path and its text.
struct Entry {
  std::filesystem::path path;
  std::string text;
};

class Catalog {
 public:
  /// `added`: the number of first roots that are not Orrery's own.
  explicit Catalog(std::vector<std::filesystem::path> roots, std::size_t added = 0)
      : roots_(std::move(roots)), added_(added) {}
  [[nodiscard]] const std::vector<std::filesystem::path>& roots() const { return roots_; }

  /// The roots that the user added; the others come with this version.
  [[nodiscard]] std::vector<std::filesystem::path> added() const {
    return {roots_.begin(), roots_.begin() + static_cast<std::ptrdiff_t>(added_)};
  }

  /// FOLDER/NAME.yaml in the first root that has it. `name` may contain slashes but never leaves the folder.
  [[nodiscard]] std::optional<Entry> find(const std::string& folder, const std::string& name) const;
  /// Names in a folder over all roots, sorted and without duplicates.
  [[nodiscard]] std::vector<std::string> names(const std::string& folder) const;

 private:
  std::vector<std::filesystem::path> roots_;
  std::size_t added_ = 0;
};

inline constexpr const char* kModels = "models/catalog";
inline constexpr const char* kClusters = "clusters/catalog";
inline constexpr const char* kCalibrated = "clusters/calibrated";
inline constexpr const char* kStacks = "cost/stacks";
inline constexpr const char* kImport = "clusters/import";

/// U0007 for each of the user's folders (`--catalog`) that is not there.
[[nodiscard]] base::Diagnostics missing_catalogs(const std::vector<std::string>& given);
/// The roots that exist, in order of search. `given` are the --catalog folders.
[[nodiscard]] Catalog open_catalog(const std::vector<std::string>& given);
/// The folder of the running program.
[[nodiscard]] std::filesystem::path program_folder();

}  // namespace orrery::apps
