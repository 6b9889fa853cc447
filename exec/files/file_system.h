#pragma once
/// The file operations that durable writing consists of, in one place, so that tests can make the N-th of them fail,
/// or log them all and simulate a power cut. Each does what the system call of its name does and returns -1, with errno
/// set, on failure. files.h retries, and decides what a failure means.
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace orrery::exec {

/// The system's own operations. Safe for several threads at once.
class FileSystem {
 public:
  using Path = std::filesystem::path;
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;
  /// Opens for writing, plus the flags of open(2); new files are readable by all and writable by the owner.
  virtual int open(const Path& path, int flags);
  virtual std::int64_t write(int file, const void* data, std::size_t bytes);
  virtual int sync(int file);
  virtual int close(int file);
  virtual int rename(const Path& from, const Path& to);
  virtual int make_folder(const Path& path);
  virtual int remove_file(const Path& path);
  virtual int remove_folder(const Path& path);
  /// Syncs a folder's names, so that a rename in it survives a power cut.
  virtual int sync_folder(const Path& path);
  /// Bytes that this user may still write there; -1: unknown.
  virtual std::int64_t free_bytes(const Path& path);
};

[[nodiscard]] FileSystem& file_system();

/// Replaces the file system until destroyed; for tests. Nothing else may use files meanwhile.
class WithFileSystem {
 public:
  explicit WithFileSystem(FileSystem& other);
  ~WithFileSystem();
  WithFileSystem(const WithFileSystem&) = delete;
  WithFileSystem& operator=(const WithFileSystem&) = delete;

 private:
  FileSystem* before_;
};

}  // namespace orrery::exec
