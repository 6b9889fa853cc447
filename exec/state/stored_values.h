#pragma once
/// Values of persistent buffers as fp32, however they are stored: fp32, 16 bits, or the codes of 8-bit moments.
#include <cstdint>
#include <span>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

class StoredValues {
 public:
  /// `version`: for a buffer with several versions.
  StoredValues(const plan::RankClass& rank_class, Arena& arena, Backend& backend, plan::BufferId buffer,
               int version = 0);
  /// Elements [first, first + values.size()) of the buffer.
  void read(std::int64_t first, std::span<float> values);
  /// The same; 8-bit moments are quantised only by `finish`, block by block.
  void write(std::int64_t first, std::span<const float> values);
  void finish();

 private:
  [[nodiscard]] std::byte* at(std::int64_t element) const;
  void read_codes(std::int64_t first, std::span<float> values);

  const plan::Buffer& buffer_;
  std::byte* data_;
  std::byte* scales_ = nullptr;
  bool signed_ = false;
  Backend& backend_;
  std::vector<std::byte> host_;
  std::vector<float> staged_;  ///< for codes: all values, once any has been written
};

}  // namespace orrery::exec
