#pragma once
/// What runs of a stack covered: where its numbers, and its interval, have been seen to hold.
#include <string>

#include "clusters/cluster.h"

namespace orrery::base {
class Cursor;
}

namespace orrery::cost {

/// A kind of run. A stack's numbers say less about other kinds of device, and about mixtures if all runs were of dense
/// models.
struct Ground {
  std::string stack, device;
  clusters::Architecture architecture = clusters::Architecture::ampere;
  double peak = 0, memory_bandwidth = 0;  ///< of the device: FLOP/s in 16 bits, bytes/s
  bool mixtures = false;
  bool adapters = false;  ///< only adapters trained (models/lora.h)
  bool states = false;    ///< of mixers that read in order
  bool indexed = false;   ///< attention reads chosen tokens alone
  bool operator==(const Ground&) const = default;
};

/// Its keys in a file, but `stack`, and their text without braces.
[[nodiscard]] Ground read_ground(const base::Cursor& at);
[[nodiscard]] std::string ground_text(const Ground& ground);

}  // namespace orrery::cost
