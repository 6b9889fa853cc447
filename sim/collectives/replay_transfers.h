#pragma once
/// Replays collectives given as steps (plan/transfers/transfers.h) on a graph: every transfer takes its route's
/// latency, and then its share of the links that it crosses among all transfers in flight (sim/links/flow_network.h).
#include <vector>

#include "base/units.h"
#include "clusters/paths.h"
#include "plan/transfers/transfers.h"
#include "sim/links/flow_network.h"

namespace orrery::sim {

/// A collective and the places of its members.
struct Placed {
  const plan::CollectiveSteps* steps = nullptr;
  std::vector<int> vertices;  ///< vertices of the graph, by member; switches follow
  base::Bytes message;
  Picoseconds start = 0;
};

/// Places members on devices; `switches`: vertices.
[[nodiscard]] Placed placed(const plan::CollectiveSteps& steps, const clusters::Paths& paths,
                            const std::vector<int>& devices, base::Bytes message,
                            const std::vector<int>& switches = {});

struct TransferReplay {
  std::vector<Picoseconds> ends;  ///< when the last member of each collective has finished
  std::int64_t transfers = 0;     ///< replayed
  bool shared = false;            ///< some link could have been full
};

/// Replays all collectives together. If no link can be full, whatever messages meet on it, every transfer runs at its
/// bottleneck's rate, and the replay is a recurrence over rounds; otherwise it simulates max-min sharing. Where both
/// apply, they agree to the picosecond. A round that only shifts time is not repeated (`repeat` of plan::Round).
enum class ReplayBy { either, simulation };
[[nodiscard]] TransferReplay replay_transfers(const std::vector<Placed>& collectives, clusters::Paths& paths,
                                              ReplayBy by = ReplayBy::either);

}  // namespace orrery::sim
