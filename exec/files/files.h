#pragma once
/// Writes files so that a reader, or a machine after a power cut, finds the old or the new one and never a part.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace orrery::exec {

/// A file written from its start, and removed again unless finished. Failures name the path, the cause and, if the
/// disk is full, the bytes needed and those available.
class NewFile {
 public:
  /// Empties an older file of that name. Throws Failure, as all here. `expected`: bytes that will be written.
  NewFile(std::filesystem::path path, std::int64_t expected);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(std::span<const std::byte> bytes);
  /// Syncs to the disk and closes. After a failure it is unknown what the disk holds, so the file is given up.
  void finish();
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  [[noreturn]] void fail(int error);
  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t expected_, written_ = 0;
  bool finished_ = false;
};

/// Writes to a temporary beside `path`, syncs, renames, syncs the folder. Throws Failure, leaving no temporary.
void write_atomically(const std::filesystem::path& path, std::string_view text);
/// Appends to an open file. Throws Failure naming `path`.
void append(int file, const std::filesystem::path& path, std::string_view text);
/// Syncs an open file to the disk. Throws Failure naming `path`.
void sync_file(int file, const std::filesystem::path& path);
/// Syncs a folder, so that a rename in it survives a power cut. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// Makes a folder and its missing parents; they survive a power cut. Throws Failure.
void make_folders(const std::filesystem::path& folder);
/// Throws Failure. Does not sync the folders.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Removes a file, or a folder with all its contents; links are removed, not followed. Does nothing if nothing is
/// there. Throws Failure.
void remove_tree(const std::filesystem::path& path);
/// The same while handling a failure: what cannot be removed stays.
void remove_quietly(const std::filesystem::path& path) noexcept;
/// The whole of a regular file. Throws Failure if it cannot be read or is larger than `limit` bytes.
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::size_t limit);

/// A lock on a file, held until destroyed or the process ends. The file stays.
class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock();
  [[nodiscard]] bool held() const { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};
/// Not held if another process has it. Held without protection where the file system has no locks. Throws Failure if
/// the file cannot be made.
[[nodiscard]] FileLock lock_file(const std::filesystem::path& path);

}  // namespace orrery::exec
