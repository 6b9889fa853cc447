// Reads and writes files; a write is complete or does not happen.
#include "apps/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "exec/failure.h"
#include "exec/files/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;

namespace {

/// Closes the descriptor on scope exit.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int value() const { return value_; }

 private:
  int value_;
};

tl::unexpected<base::Diagnostics> refuse(const char* code, const std::string& path, std::string message,
                                         std::string help) {
  return base::fail(
      {base::Diagnostic{base::Severity::error, code, {path, 0, 0, 1}, std::move(message), std::move(help), {}}});
}

/// The file or folder beside a missing one that was probably meant; empty: none.
std::string near_file(const fs::path& path) {
  constexpr int kMost = 1000;  // entries looked at
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator at(folder, error), end; !error && at != end && std::ssize(names) < kMost;
       at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  const std::string near = base::did_you_mean(path.filename().string(), names);
  return near.empty() ? near : (path.parent_path() / near).string();
}

std::string help_with_path(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    if (const std::string near = near_file(path); !near.empty()) return "did you mean " + base::quoted(near) + "?";
  return path.is_absolute() ? "check the path" : "check the path; it is relative to the current folder";
}

base::Result<std::string> read_all(int descriptor, const std::string& path, std::size_t limit, std::size_t expected) {
  std::string text;
  text.reserve(std::min(expected, limit));
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return refuse("E0201", path, fmt::format("cannot read `{}`: {}", path, std::strerror(errno)),
                    help_with_path(path));
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > limit)
      return refuse("E0202", path, fmt::format("`{}` is larger than {} bytes", path, limit),
                    "files of this kind are smaller");
    if (std::memchr(buffer.data(), 0, static_cast<std::size_t>(n)) != nullptr) return text;
  }
}

}  // namespace

base::Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  const std::string name = path.string();
  // Does not wait for the other end of a pipe, nor acquire a controlling terminal.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (file.value() < 0 || ::fstat(file.value(), &info) != 0)
    return refuse("E0201", name, fmt::format("cannot read `{}`: {}", name, std::strerror(errno)), help_with_path(path));
  if (S_ISDIR(info.st_mode))
    return refuse("E0201", name, fmt::format("`{}` is a folder, not a file", name), "name a file in it");
  if (!S_ISREG(info.st_mode))
    return refuse("E0201", name, fmt::format("`{}` is a pipe or a device, not a file", name),
                  "write it to a file first, or use `-` for standard input if the verb takes one file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > limit)
    return refuse("E0202", name, fmt::format("`{}` has {} bytes, more than {}", name, size, limit),
                  "files of this kind are smaller");
  return read_all(file.value(), name, limit, static_cast<std::size_t>(size));
}

base::Result<std::string> read_argument(const std::string& argument, std::size_t limit) {
  if (argument != kStandardInput) return read_file(argument, limit);
  static const base::Result<std::string> once = read_all(STDIN_FILENO, argument, limit, 0);
  return once;
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
