#pragma once
/// Writing files so that a reader, or a machine that lost power, finds the old one or the new one and never a part.
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace orrery::exec {

/// Writes to a temporary beside `path`, syncs, renames, syncs the folder. Throws Failure.
void write_atomically(const std::filesystem::path& path, std::string_view text);
/// Syncs a folder, so that a rename in it survives a power cut. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
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
