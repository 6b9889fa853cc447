#pragma once
/// Rounds of messages as a fluid: where messages of different length share links that can be full, nobody knows a
/// formula for when the last one ends, so their max-min fair rates are filled anew at every end (Bertsekas and
/// Gallager, Data Networks, 2nd ed., section 6.5.2). Plain and slow: what cost/network/algorithms.h falls back on, and
/// a second witness beside sim/max_min.h, which shares out the same links incrementally.
#include <vector>

namespace orrery::cost {

struct FluidMessage {
  int from = 0, to = 0;  ///< ends: 0, 1, ... ends - 1
  double bytes = 0;
  double latency = 0;                       ///< s
  const std::vector<int>* links = nullptr;  ///< directions that it crosses; must outlive the call
};

struct FluidRound {
  std::vector<FluidMessage> messages;
  int repeat = 1;
};

/// Whether some link could be full, whatever meets on it: messages of one end follow each other from round to round, so
/// of each sender (or of each receiver) its busiest round counts. If not, every message runs at its bottleneck's pace.
[[nodiscard]] bool crowded(const std::vector<FluidRound>& rounds, const std::vector<double>& bandwidths);

/// Whether in every round all ends are busy and all messages take equally long, each at its even share of its links:
/// then every round begins for all together, and takes just that long.
[[nodiscard]] bool in_step(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths);

/// Seconds until the last message has arrived. A message begins when both of its ends have finished all their messages
/// of earlier rounds; it takes its latency, then its max-min fair share of the links with all others under way.
/// Work grows as messages times messages at once.
[[nodiscard]] double fluid_time(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths);

}  // namespace orrery::cost
