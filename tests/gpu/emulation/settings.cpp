// What tests set of the emulation: made-up times, orders of streams, faults of graphs.
#include <cuda_runtime.h>

#include <atomic>
#include <random>
#include <utility>

namespace emulation {

MadeUpTimes& made_up_times() {
  static thread_local MadeUpTimes instance;
  return instance;
}

int& capability() {
  static thread_local int instance = 90;
  return instance;
}

MemoryOfDevice& memory_of_device() {
  static thread_local MemoryOfDevice instance;
  return instance;
}

SecondLevelCache& second_level_cache() {
  static thread_local SecondLevelCache instance;
  return instance;
}

std::atomic<unsigned>& stream_order() {
  static std::atomic<unsigned> instance = 0;
  return instance;
}

std::size_t first_of(std::size_t count) {
  static thread_local std::mt19937 random(1);
  static thread_local unsigned seed = 1;
  const unsigned order = stream_order();
  if (order <= 1 || count == 0) return 0;
  if (std::exchange(seed, order) != order) random.seed(order);
  return random() % count;
}

GraphFaults& graph_faults() {
  static thread_local GraphFaults instance;
  return instance;
}

}  // namespace emulation
