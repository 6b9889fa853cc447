// One unnamed file of fixed size.
#include "exec/files/state_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/ensure.h"
#include "exec/failure.h"

namespace orrery::exec {

StateFile::StateFile(const std::string& path, std::int64_t bytes)
    : path_(path), bytes_(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0)
    throw Failure(fmt::format("cannot make the file of offloaded state {}: {}", path, std::strerror(errno)),
                  FailureKind::environment);
  ::unlink(path.c_str());
  // Returns the error instead of setting errno.
  const int full = posix_fallocate(file_, 0, static_cast<off_t>(bytes_));
  if (full != 0) {
    ::close(file_);
    throw Failure(fmt::format("no room for {} bytes of offloaded state in {}: {}", bytes_, path, std::strerror(full)),
                  FailureKind::environment);
  }
  void* range = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (range == MAP_FAILED) {
    const int error = errno;
    ::close(file_);
    throw Failure(fmt::format("cannot map a file of {} bytes: {}", bytes_, std::strerror(error)),
                  FailureKind::environment);
  }
  address_ = static_cast<std::byte*>(range);
}

StateFile::~StateFile() {
  munmap(address_, bytes_);
  ::close(file_);
}

void StateFile::write(const std::byte* at, std::span<const std::byte> values) {
  const std::int64_t first = at - address_;
  ENSURE(first >= 0 && static_cast<std::size_t>(first) + values.size() <= bytes_, "{} bytes at {} of a file of {}",
         values.size(), first, bytes_);
  for (std::size_t done = 0; done < values.size();) {
    const ssize_t n = ::pwrite(file_, values.data() + done, values.size() - done,
                               static_cast<off_t>(first + static_cast<std::int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("writing", values.size(), first, n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
  }
}

void StateFile::read(std::span<std::byte> values, const std::byte* at) const {
  const std::int64_t first = at - address_;
  ENSURE(first >= 0 && static_cast<std::size_t>(first) + values.size() <= bytes_, "{} bytes at {} of a file of {}",
         values.size(), first, bytes_);
  for (std::size_t done = 0; done < values.size();) {
    const ssize_t n = ::pread(file_, values.data() + done, values.size() - done,
                              static_cast<off_t>(first + static_cast<std::int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("reading", values.size(), first, n < 0 ? errno : EIO);
    done += static_cast<std::size_t>(n);
  }
}

void StateFile::fail(const char* doing, std::size_t bytes, std::int64_t at, int error) const {
  throw Failure(
      fmt::format("{} {} bytes of offloaded state at {} of {}: {}", doing, bytes, at, path_, std::strerror(error)));
}

}  // namespace orrery::exec
