#pragma once
/// The operations on files that durable writing is made of, in one place, so that tests can make the N-th of them fail
/// or log them all and play a power cut. Each does what the system call of its name does: -1, with errno set, where it
/// failed. Retrying, and what a failure means, is files.h's.
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace orrery::exec {

/// The system's own. Used by several threads at once.
class FileSystem {
 public:
  using Path = std::filesystem::path;
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;
  /// For writing, with the flags of open(2) besides; new files are readable by all and the owner's to write.
  virtual int open(const Path& path, int flags);
  virtual std::int64_t write(int file, const void* data, std::size_t bytes);
  virtual int sync(int file);
  virtual int close(int file);
  virtual int rename(const Path& from, const Path& to);
  virtual int make_folder(const Path& path);
  virtual int remove_file(const Path& path);
  virtual int remove_folder(const Path& path);
  /// What is in a folder by name, so that a rename in it survives a power cut.
  virtual int sync_folder(const Path& path);
  /// Bytes that this user may still write there; -1: not known.
  virtual std::int64_t free_bytes(const Path& path);
};

[[nodiscard]] FileSystem& file_system();

/// Puts another in its place until destroyed; for tests. Nothing else may be using files meanwhile.
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
