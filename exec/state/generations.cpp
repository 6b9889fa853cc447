// Finds checkpoints, and falls back if the newest is damaged.
#include "exec/state/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/agreement.h"
#include "exec/state/checkpoint_files.h"

namespace orrery::exec {

namespace fs = std::filesystem;

std::vector<fs::path> generations(const fs::path& folder) {
  std::error_code error;
  if (fs::symlink_status(folder, error).type() == fs::file_type::not_found) return {};
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found)
    throw Failure(fmt::format("{} is a link to {}, which does not exist: a disk may not be mounted", folder.string(),
                              fs::read_symlink(folder, error).string()));
  if (status.type() != fs::file_type::directory)
    throw Failure(fmt::format("{} {}", folder.string(),
                              error ? "cannot be examined: " + error.message() : std::string("is not a folder")));
  std::vector<std::pair<std::int64_t, fs::path>> found;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    if (const auto step = step_of(it->path())) found.emplace_back(*step, it->path());
  if (error) throw Failure(fmt::format("{} cannot be listed: {}", folder.string(), error.message()));
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> out;
  for (auto& [step, path] : found) out.push_back(std::move(path));
  return out;
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  try {
    std::error_code ignored;
    for (const fs::path& one : generations(folder))
      if (fs::exists(one / "manifest.json", ignored)) return one;
  } catch (const Failure&) {
  }
  return std::nullopt;
}

Resumed load_newest(const CheckpointContext& context, const fs::path& folder) {
  Transport& transport = context.transport;
  std::vector<fs::path> all;
  together(transport, [&] {
    if (transport.rank() == 0) all = generations(folder);
  });
  Resumed out;
  for (std::size_t i = 0;; ++i) {
    const double mine = i < all.size() ? static_cast<double>(*step_of(all[i])) : -1;
    const double step = transport.maximum(mine);
    if (step < 0) return out;
    const fs::path path = folder / fmt::format("step-{:06}", static_cast<std::int64_t>(step));
    try {
      (void)load_checkpoint(context, path, &out.manifest);
      out.from = path;
      return out;
    } catch (const DamagedCheckpoint& damaged) {
      out.damaged.push_back({path, damaged.what()});
    }
  }
}

Resumed newest_whole(const fs::path& folder) {
  Resumed out;
  for (const fs::path& path : generations(folder)) {
    try {
      const CheckpointReader reader(path);
      reader.check_files();
      out.from = path;
      return out;
    } catch (const DamagedCheckpoint& damaged) {
      out.damaged.push_back({path, damaged.what()});
    }
  }
  return out;
}

base::Diagnostics passed_over(const Resumed& found) {
  base::Diagnostics out;
  for (const DamagedGeneration& one : found.damaged)
    out.push_back({base::Severity::warning,
                   "E0642",
                   {one.path.string(), 0, 0, 1},
                   fmt::format("a checkpoint is damaged: {}", one.why),
                   found.from ? fmt::format("{} is read instead", found.from->string()) : std::string(),
                   {}});
  return out;
}

fs::path keep_aside(const fs::path& checkpoint) {
  std::error_code ignored;
  fs::path aside = checkpoint.string() + ".damaged";
  for (int i = 2; fs::symlink_status(aside, ignored).type() != fs::file_type::not_found; ++i)
    aside = fmt::format("{}.damaged-{}", checkpoint.string(), i);
  rename_path(checkpoint, aside);
  sync_folder(checkpoint.parent_path());
  return aside;
}

}  // namespace orrery::exec
