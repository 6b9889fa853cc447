#pragma once
/// What a checkpoint keeps of the data that its run reads.
#include <cstdint>
#include <string>

namespace orrery::exec {

/// Which tokens a run reads: how many, in what form, and a checksum over samples of them (all, of up to a million).
struct DataMark {
  std::int64_t tokens = 0;
  std::string format;
  std::uint32_t sampled_crc = 0;
  friend bool operator==(const DataMark&, const DataMark&) = default;
};

}  // namespace orrery::exec
