// Atomic replacement and bounded reading of files.
#include "exec/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "exec/failure.h"

namespace orrery::exec {
namespace {

[[noreturn]] void fail(const char* verb, const std::filesystem::path& path, int error) {
  throw Failure(fmt::format("cannot {} {}: {}", verb, path.string(), std::strerror(error)));
}

/// Closes on the way out.
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

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.value < 0 || (fsync(file.value) != 0 && errno != EINVAL)) fail("sync", folder, errno);
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.value < 0) fail("write", temporary, errno);
    while (!text.empty()) {
      const ssize_t n = ::write(file.value, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write", temporary, errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    if (fsync(file.value) != 0) fail("write", temporary, errno);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path, errno);
  sync_folder(path.parent_path());
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
  // Some network file systems have no locks: then nobody is kept out, rather than everybody.
  if (::flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return lock;
}

}  // namespace orrery::exec
