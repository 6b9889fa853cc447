// The operating system's file operations.
#include "exec/files/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace orrery::exec {
namespace {

std::atomic<FileSystem*>& current() {
  static FileSystem system;
  static std::atomic<FileSystem*> now{&system};
  return now;
}

}  // namespace

int FileSystem::open(const Path& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0644);
}

std::int64_t FileSystem::write(int file, const void* data, std::size_t bytes) {
  return ::write(file, data, bytes);
}

int FileSystem::sync(int file) {
  return ::fsync(file);
}

int FileSystem::close(int file) {
  return ::close(file);
}

int FileSystem::rename(const Path& from, const Path& to) {
  return std::rename(from.c_str(), to.c_str());
}

int FileSystem::make_folder(const Path& path) {
  return ::mkdir(path.c_str(), 0777);
}

int FileSystem::remove_file(const Path& path) {
  return ::unlink(path.c_str());
}

int FileSystem::remove_folder(const Path& path) {
  return ::rmdir(path.c_str());
}

int FileSystem::sync_folder(const Path& path) {
  const int file = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return -1;
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  errno = error;
  return result;
}

std::int64_t FileSystem::free_bytes(const Path& path) {
  struct statvfs info {};
  if (::statvfs(path.empty() ? "." : path.c_str(), &info) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

FileSystem& file_system() {
  return *current().load();
}

WithFileSystem::WithFileSystem(FileSystem& other) : before_(current().exchange(&other)) {}

WithFileSystem::~WithFileSystem() {
  current() = before_;
}

}  // namespace orrery::exec
