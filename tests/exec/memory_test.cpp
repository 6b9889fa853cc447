// The second witness: the heap's counters and the kernel's.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "exec/engine/allocation_hook.h"

namespace orrery::exec {
namespace memory_test {

TEST(HeapUse, SeesAnAllocation) {
#if defined(ORRERY_SANITIZED)
  GTEST_SKIP() << "sanitizers have a heap of their own";
#endif
  const HeapUse before = heap_use();
  std::vector<char> block(std::size_t{8} << 20, 'x');
  EXPECT_GE(heap_use().current - before.current, std::int64_t{8} << 20);
  block[0] = 'y';
}

TEST(Resident, GrowsByPagesThatAreTouchedAndNotByThoseThatAreNot) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const Resident before = resident();
  ASSERT_GT(before.now, 0);
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  EXPECT_LT(resident().now - before.now, static_cast<std::int64_t>(kBytes / 2));
  std::memset(block, 1, kBytes);
  EXPECT_GE(resident().now - before.now, static_cast<std::int64_t>(kBytes * 9 / 10));
  EXPECT_GE(resident().peak, resident().now - (1 << 20));
  munmap(block, kBytes);
}

TEST(AllocationCounters, KeepTheHighWaterMark) {
  AllocationCounters counters;
  counters.allocated(100);
  counters.allocated(50);
  counters.released(100);
  counters.allocated(20);
  EXPECT_EQ(counters.current, 70);
  EXPECT_EQ(counters.peak, 150);
  EXPECT_EQ(counters.allocations, 3);
}

}  // namespace memory_test
}  // namespace orrery::exec
