#pragma once
/// The memory that processes here may use, for `probe`, `doctor`, and for `train` before it begins.
#include <filesystem>
#include <string>

namespace orrery::exec {

struct MemoryHere {
  double bytes = 0;
  std::string source;  ///< "the kernel", or the control group's file that grants less
};

/// The machine's memory, or the limit on it that the kernel's control groups set. `root` is where sys/ is read, for
/// tests.
[[nodiscard]] MemoryHere memory_here(const std::filesystem::path& root = "/");
/// The same if the machine's total is known from elsewhere.
[[nodiscard]] MemoryHere memory_here(double total_bytes, const std::string& source, const std::filesystem::path& root);

}  // namespace orrery::exec
