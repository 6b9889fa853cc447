#pragma once
/// Writing files so that a reader, or a machine that lost power, finds the old one or the new one and never a part.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace orrery::exec {

/// A file that is written from its start. What is not finished is removed again. Failures name the path, the cause and,
/// of a full disk, the bytes that are needed and those that there are.
class NewFile {
 public:
  /// An older file of that name is emptied. Throws Failure, as all here. `expected`: bytes that will be written.
  NewFile(std::filesystem::path path, std::int64_t expected);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(std::span<const std::byte> bytes);
  /// Syncs to the disk and closes. Once it has failed, nothing is known of what the disk has: the file is given up.
  void finish();
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  [[noreturn]] void fail(int error);
  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t expected_, written_ = 0;
  bool finished_ = false;
};

/// Writes to a temporary beside `path`, syncs, renames, syncs the folder. Throws Failure, and then leaves no temporary.
void write_atomically(const std::filesystem::path& path, std::string_view text);
/// Appends to an open file. Throws Failure naming `path`.
void append(int file, const std::filesystem::path& path, std::string_view text);
/// What was written to an open file is on the disk. Throws Failure naming `path`.
void sync_file(int file, const std::filesystem::path& path);
/// Syncs a folder, so that a rename in it survives a power cut. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// Makes a folder and those above it that are missing; a power cut does not lose them. Throws Failure.
void make_folders(const std::filesystem::path& folder);
/// Throws Failure. The folders are not synced.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// A file, or a folder with all that is in it; links are removed, not followed. Nothing is there: nothing is done.
/// Throws Failure.
void remove_tree(const std::filesystem::path& path);
/// The same on the way out of a failure: what cannot be removed stays.
void remove_quietly(const std::filesystem::path& path) noexcept;
/// The whole of a regular file. Throws Failure when it cannot be read or is larger than `limit` bytes.
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
/// Not held when another has it. Where the file system knows no locks, held by nobody's word. Throws Failure when the
/// file cannot be made.
[[nodiscard]] FileLock lock_file(const std::filesystem::path& path);

}  // namespace orrery::exec
