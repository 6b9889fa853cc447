// Heap counters and resident memory.
#include "exec/engine/allocation_hook.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace orrery::exec {

AllocationCounters& allocation_counters() noexcept {
  static constinit AllocationCounters counters;
  return counters;
}

HeapUse heap_use() {
  const AllocationCounters& counters = allocation_counters();
  if (counters.hooked.load()) return {counters.current.load(), counters.peak.load(), counters.allocations.load(), true};
  const struct mallinfo2 info = mallinfo2();
  const auto current = static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  return {current, current, 0, false};
}

namespace {

std::int64_t kibibytes(const char* text, const char* key) {
  const char* at = std::strstr(text, key);
  return at ? std::strtoll(at + std::strlen(key), nullptr, 10) * 1024 : 0;
}

}  // namespace

Resident resident() {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 4096> text{};
  const ssize_t n = read(file, text.data(), text.size() - 1);
  close(file);
  if (n <= 0) return {};
  return {kibibytes(text.data(), "VmRSS:"), kibibytes(text.data(), "VmHWM:"), kibibytes(text.data(), "RssAnon:")};
}

}  // namespace orrery::exec
