// Catalogue roots in their order, and entries by name.
#include "apps/catalog.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>

#include "apps/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : self.parent_path();
}

Catalog open_catalog(const std::vector<std::string>& given) {
  std::vector<fs::path> candidates(given.begin(), given.end());
  if (const char* data = std::getenv("ORRERY_DATA"); data != nullptr && *data != '\0') candidates.emplace_back(data);
  const std::size_t of_the_user = candidates.size();
  candidates.push_back(program_folder() / ".." / "share" / "orrery");
  candidates.emplace_back(ORRERY_SOURCE_DIR);
  std::vector<fs::path> roots;
  std::size_t added = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::error_code error;
    if (!fs::is_directory(candidates[i], error)) continue;
    roots.push_back(candidates[i].lexically_normal());
    if (i < of_the_user) added = roots.size();
  }
  return Catalog(std::move(roots), added);
}

base::Diagnostics missing_catalogs(const std::vector<std::string>& given) {
  base::Diagnostics found;
  for (const std::string& one : given) {
    std::error_code error;
    if (!fs::is_directory(one, error))
      found.push_back({base::Severity::error,
                       "U0007",
                       {one, 0, 0, 1},
                       "--catalog: there is no folder " + base::quoted(one),
                       "name a folder laid out like Orrery's: models/catalog, clusters/catalog, cost/stacks",
                       {}});
  }
  return found;
}

std::optional<Entry> Catalog::find(const std::string& folder, const std::string& name) const {
  const fs::path relative = fs::path(name + ".yaml").lexically_normal();
  if (name.empty() || relative.is_absolute() || *relative.begin() == "..") return std::nullopt;
  for (const fs::path& root : roots_) {
    const fs::path path = root / folder / relative;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    if (auto text = read_file(path)) return Entry{path, std::move(*text)};
  }
  return std::nullopt;
}

std::vector<std::string> Catalog::names(const std::string& folder) const {
  std::set<std::string> found;
  for (const fs::path& root : roots_) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root / folder, error))
      if (entry.path().extension() == ".yaml") found.insert(entry.path().stem().string());
  }
  return {found.begin(), found.end()};
}

}  // namespace orrery::apps
