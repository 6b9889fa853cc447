// Files in and out; a write is complete or not there at all.
#include "apps/files.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "exec/failure.h"
#include "exec/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;

base::Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  const base::Location where{path.string(), 0, 0, 1};
  const auto refuse = [&](const char* code, std::string message, std::string help) {
    return base::fail({base::Diagnostic{base::Severity::error, code, where, std::move(message), std::move(help), {}}});
  };
  std::error_code error;
  if (fs::is_directory(path, error))
    return refuse("E0201", fmt::format("`{}` is a folder, not a file", path.string()), "name a file in it");
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return refuse("E0201", fmt::format("cannot read `{}`: {}", path.string(), std::strerror(errno)),
                  "check the path; it is taken from the current folder");
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(in.gcount()));
    if (text.size() > limit)
      return refuse("E0202", fmt::format("`{}` is larger than {} bytes", path.string(), limit), {});
  }
  return text;
}

void write_file(const fs::path& path, std::string_view text) {
  const auto give_up = [&](const std::string& why) {
    throw exec::Failure(fmt::format("cannot write `{}`: {}", path.string(), why));
  };
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) give_up(error.message());
  // A device or pipe (/dev/stdout, a process substitution) is written through, not replaced.
  if (!fs::exists(path, error) || fs::is_regular_file(path, error)) return exec::write_atomically(path, text);
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) give_up(std::strerror(errno));
}

fs::path relative_to(const fs::path& folder, const std::string& path) {
  const fs::path given(path);
  return given.is_absolute() ? given : (folder / given).lexically_normal();
}

}  // namespace orrery::apps
