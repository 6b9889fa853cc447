#pragma once
/// A model of PyTorch's caching allocator for CUDA (c10/cuda/CUDACachingAllocator.cpp, its constants and rules as
/// of 2.0 without expandable segments), to set what a schedule's buffers need beside a placement made ahead: requests
/// are rounded up to 512 bytes; up to 1 MiB they come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB,
/// larger ones from segments of their own rounded up to 2 MiB; a free block is the smallest that fits, and is split
/// where the rest is worth it; neighbours that are free become one; segments are never given back.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/ensure.h"

namespace orrery::testing {

class CachingAllocator {
 public:
  /// Returns a handle.
  std::int64_t allocate(std::int64_t bytes) {
    const std::int64_t size = std::max<std::int64_t>(kRound, (bytes + kRound - 1) / kRound * kRound);
    const bool small = size <= kSmall;
    std::set<std::pair<std::int64_t, std::int64_t>>& pool = free_[small ? 0 : 1];
    auto found = pool.lower_bound({size, -1});
    if (found == pool.end()) {
      const std::int64_t segment = small           ? kSmallSegment
                                   : size < kLarge ? kLargeSegment
                                                   : (size + kUnit - 1) / kUnit * kUnit;
      const std::int64_t at = next_;
      next_ += segment + kGap;
      reserved_ += segment;
      blocks_[at] = {segment, true, small};
      found = pool.insert({segment, at}).first;
    }
    const std::int64_t at = found->second, whole = found->first;
    pool.erase(found);
    Block& block = blocks_.at(at);
    block.free = false;
    const std::int64_t rest = whole - size;
    if (small ? rest >= kRound : rest > kSmall) {
      block.size = size;
      blocks_[at + size] = {rest, true, small};
      pool.insert({rest, at + size});
    }
    return at;
  }

  void release(std::int64_t at) {
    auto block = blocks_.find(at);
    ENSURE(block != blocks_.end() && !block->second.free, "no block at {}", at);
    std::set<std::pair<std::int64_t, std::int64_t>>& pool = free_[block->second.small ? 0 : 1];
    block->second.free = true;
    const auto next = std::next(block);
    if (next != blocks_.end() && next->second.free && next->first == at + block->second.size) {
      pool.erase({next->second.size, next->first});
      block->second.size += next->second.size;
      blocks_.erase(next);
    }
    if (block != blocks_.begin()) {
      const auto before = std::prev(block);
      if (before->second.free && before->first + before->second.size == at) {
        pool.erase({before->second.size, before->first});
        before->second.size += block->second.size;
        blocks_.erase(block);
        block = before;
      }
    }
    pool.insert({block->second.size, block->first});
  }

  [[nodiscard]] std::int64_t reserved() const { return reserved_; }

 private:
  static constexpr std::int64_t kRound = 512, kSmall = 1 << 20, kSmallSegment = 2 << 20, kLarge = 10 << 20,
                                kLargeSegment = 20 << 20, kUnit = 2 << 20, kGap = 1;  // segments never touch
  struct Block {
    std::int64_t size = 0;
    bool free = false, small = false;
  };
  std::map<std::int64_t, Block> blocks_;  // by address
  std::set<std::pair<std::int64_t, std::int64_t>> free_[2];
  std::int64_t next_ = 0, reserved_ = 0;
};

}  // namespace orrery::testing
