#pragma once
/// StateFile: what a rank keeps on NVMe: one file, whose room is taken at the start, so that a full disk shows then and
/// not in the middle of a run. It has no name while it is used: it goes when the run ends, however it ends. It is
/// mapped, for who looks at a few values (initial weights, checkpoints); what streams through it is read and written,
/// so that errors have reasons.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orrery::exec {

class StateFile {
 public:
  /// Throws Failure when the file cannot be made or its file system has no room.
  StateFile(const std::string& path, std::int64_t bytes);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  [[nodiscard]] std::byte* address() const { return address_; }
  /// For several threads at once, in different places. Throw Failure with the system's reason.
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
