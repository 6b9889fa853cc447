#pragma once
/// StateFile: what a rank keeps on NVMe, in one file. Its room is allocated at the start, so that a full disk shows
/// then and not in the middle of a run. It has no name while in use, so it disappears when the run ends, in any way.
/// It is mapped for code that looks at few values (initial weights, checkpoints); code that streams through it reads
/// and writes, so that errors have reasons.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orrery::exec {

class StateFile {
 public:
  /// Throws Failure if the file cannot be made or its file system has no room.
  StateFile(const std::string& path, std::int64_t bytes);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  [[nodiscard]] std::byte* address() const { return address_; }
  /// Safe for several threads at once, at different places. Throw Failure with the system's reason.
  void write(const std::byte* at, std::span<const std::byte> values);
  void read(std::span<std::byte> values, const std::byte* at) const;

 private:
  [[noreturn]] void fail(const char* doing, std::size_t bytes, std::int64_t at, int error) const;
  std::string path_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  std::byte* address_ = nullptr;
};

}  // namespace orrery::exec
