#pragma once
/// Rounds of messages as a fluid. If messages of different length share links that can be full, no formula is known for
/// when the last one ends, so their max-min fair rates are recomputed at each end (Bertsekas and Gallager, Data
/// Networks, 2nd ed., section 6.5.2). Simple and slow: the fallback of cost/network/algorithms.h, and an independent
/// check of sim/links/max_min.h, which shares the same links incrementally.
#include <vector>

namespace orrery::cost {

struct FluidMessage {
  int from = 0, to = 0;  ///< end points: 0, 1, ... ends - 1
  double bytes = 0;
  double latency = 0;                       ///< s
  const std::vector<int>* links = nullptr;  ///< directions that the message crosses; must outlive the call
};

struct FluidRound {
  std::vector<FluidMessage> messages;
  int repeat = 1;
};

/// Whether any link could be full, whatever messages meet on it. Messages of one end follow each other from round to
/// round, so each sender (or receiver) counts with its busiest round. If false, every message runs at its bottleneck's
/// rate.
[[nodiscard]] bool crowded(const std::vector<FluidRound>& rounds, const std::vector<double>& bandwidths);

/// Whether in every round all ends are busy and all messages take equally long at their even share of the links. Every
/// round then begins at the same time for all ends, and takes exactly that long.
[[nodiscard]] bool in_step(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths);

/// Seconds until the last message has arrived. A message begins when both its ends have finished all their messages of
/// earlier rounds; it takes its latency, then its max-min fair share of the links among all messages in flight. Work
/// grows with the number of messages times those in flight.
[[nodiscard]] double fluid_time(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths);

}  // namespace orrery::cost
