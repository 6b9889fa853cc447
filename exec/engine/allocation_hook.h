#pragma once
/// The second witness of memory: every allocation outside the arenas, and what the kernel reports as resident. The
/// worker replaces malloc and its family (apps/worker/allocations.cpp) and counts here; where they are not replaced,
/// glibc's own statistics are used.
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace orrery::exec {

/// Counters that the replaced allocator writes. They count usable sizes, so that a free takes back what its malloc
/// added.
struct AllocationCounters {
  std::atomic<bool> hooked{false};
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> allocations{0};

  void allocated(std::size_t bytes) noexcept {
    const std::int64_t size = static_cast<std::int64_t>(bytes);
    const std::int64_t total = current.fetch_add(size, std::memory_order_relaxed) + size;
    allocations.fetch_add(1, std::memory_order_relaxed);
    std::int64_t high = peak.load(std::memory_order_relaxed);
    while (high < total && !peak.compare_exchange_weak(high, total, std::memory_order_relaxed)) {
    }
  }
  void released(std::size_t bytes) noexcept {
    current.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
};

/// The process's only set of counters: malloc has nowhere else to count.
[[nodiscard]] AllocationCounters& allocation_counters() noexcept;

struct HeapUse {
  std::int64_t current = 0;      ///< bytes allocated now; the caller subtracts arenas
  std::int64_t peak = 0;         ///< most so far; equals current if malloc is not replaced
  std::int64_t allocations = 0;  ///< calls so far; 0 if malloc is not replaced
  bool counted = false;          ///< true if malloc is replaced
};
[[nodiscard]] HeapUse heap_use();

/// Resident memory of this process in bytes, from /proc/self/status. 0 if that cannot be read.
struct Resident {
  std::int64_t now = 0;        ///< VmRSS
  std::int64_t peak = 0;       ///< VmHWM
  std::int64_t anonymous = 0;  ///< RssAnon: without the transport's shared memory and mapped files
};
[[nodiscard]] Resident resident();

}  // namespace orrery::exec
