// Atomic replacement and bounded reading of files.
#include "exec/files/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "exec/failure.h"
#include "exec/files/file_system.h"

namespace orrery::exec {
namespace {

[[noreturn]] void fail(const char* verb, const std::filesystem::path& path, int error) {
  throw Failure(fmt::format("cannot {} {}: {}", verb, path.string(), std::strerror(error)));
}

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retried(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// The text of a failure; for a full disk with the bytes needed and those available.
std::string full_disk(const char* verb, const std::filesystem::path& path, int error, std::int64_t needed) {
  std::string text = fmt::format("cannot {} {}: {}", verb, path.string(), std::strerror(error));
  if (error != ENOSPC && error != EDQUOT) return text;
  const std::int64_t free = file_system().free_bytes(path.parent_path());
  if (needed > 0) text += fmt::format(": {} more bytes are needed", needed);
  if (free >= 0) text += fmt::format("{} {} are free", needed > 0 ? "," : ":", free);
  return text;
}

/// Closes the descriptor on scope exit.
struct Descriptor {
  int value;
  explicit Descriptor(int v) : value(v) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

NewFile::NewFile(std::filesystem::path path, std::int64_t expected) : path_(std::move(path)), expected_(expected) {
  file_ = retried([&] { return file_system().open(path_, O_WRONLY | O_CREAT | O_TRUNC); });
  if (file_ < 0) fail(errno);
}

NewFile::~NewFile() {
  if (file_ >= 0) file_system().close(file_);
  if (!finished_) file_system().remove_file(path_);
}

void NewFile::fail(int error) {
  throw Failure(full_disk("write", path_, error, std::max<std::int64_t>(expected_ - written_, 0)));
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t n = retried([&] { return file_system().write(file_, bytes.data(), bytes.size()); });
    if (n <= 0) fail(n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    written_ += n;
  }
}

void NewFile::finish() {
  if (retried([&] { return file_system().sync(file_); }) != 0) fail(errno);
  // Never retried after an interrupt: the descriptor is gone either way.
  if (file_system().close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail(errno);
  finished_ = true;
}

void append(int file, const std::filesystem::path& path, std::string_view text) {
  while (!text.empty()) {
    const std::int64_t n = retried([&] { return file_system().write(file, text.data(), text.size()); });
    if (n <= 0) throw Failure(full_disk("write", path, n < 0 ? errno : ENOSPC, static_cast<std::int64_t>(text.size())));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void sync_file(int file, const std::filesystem::path& path) {
  if (retried([&] { return file_system().sync(file); }) != 0) throw Failure(full_disk("write", path, errno, 0));
}

void sync_folder(const std::filesystem::path& folder) {
  // Some file systems cannot sync folders and return EINVAL.
  if (retried([&] { return file_system().sync_folder(folder); }) != 0 && errno != EINVAL)
    throw Failure(full_disk("sync", folder, errno, 0));
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::vector<std::filesystem::path> missing;
  for (std::filesystem::path at = folder.lexically_normal(); !at.empty() && !std::filesystem::exists(at, ignored);
       at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    // Another rank or process may have been faster.
    if (retried([&] { return file_system().make_folder(*at); }) != 0 && errno != EEXIST)
      throw Failure(full_disk("make", *at, errno, 0));
    sync_folder(at->parent_path());
  }
  if (!std::filesystem::is_directory(folder, ignored)) fail("make", folder, ENOTDIR);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (retried([&] { return file_system().rename(from, to); }) != 0) throw Failure(full_disk("rename to", to, errno, 0));
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  {
    NewFile file(temporary, static_cast<std::int64_t>(text.size()));
    file.write(std::as_bytes(std::span(text)));
    file.finish();
  }
  try {
    rename_path(temporary, path);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sync_folder(path.parent_path());
}

void remove_tree(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) return;
  if (status.type() == fs::file_type::none) fail("remove", path, error.value());
  const bool folder = fs::is_directory(status);
  if (folder) {
    std::vector<fs::path> inside;
    fs::directory_iterator it(path, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) inside.push_back(it->path());
    if (error) fail("remove", path, error.value());
    for (const fs::path& one : inside) remove_tree(one);
  }
  const int done =
      retried([&] { return folder ? file_system().remove_folder(path) : file_system().remove_file(path); });
  if (done != 0 && errno != ENOENT) fail("remove", path, errno);
}

void remove_quietly(const std::filesystem::path& path) noexcept {
  try {
    remove_tree(path);
  } catch (...) {
    try {
      remove_tree(path);  // what the failure prevented from being removed
    } catch (...) {
    }
  }
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.value < 0 || fstat(file.value, &info) != 0) fail("read", path, errno);
  if (!S_ISREG(info.st_mode)) throw Failure(fmt::format("cannot read {}: not a regular file", path.string()));
  if (static_cast<std::size_t>(info.st_size) > limit)
    throw Failure(fmt::format("cannot read {}: {} bytes, at most {} expected", path.string(), info.st_size, limit));
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(file.value, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path, errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileLock lock_file(const std::filesystem::path& path) {
  FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.held()) fail("lock", path, errno);
  // Some network file systems have no locks: then nobody is locked out, rather than everybody.
  if (::flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return lock;
}

}  // namespace orrery::exec
