#pragma once
/// How much of a message's price its links take. Used by the replay of transfers (sim/links/transfers.h) and by the
/// prices of equal messages sent at once (sim/shared_links.h). Private to sim/.
#include <limits>
#include <optional>

#include "cost/network/messages.h"
#include "plan/schedule/schedule.h"
#include "sim/links/traffic.h"

namespace orrery::sim {

/// Share of a message that one rank sends (nccl-tests, doc/PERFORMANCE.md): on trees, half on each of the two, up or
/// down; between pairs, one part to each other rank. `collective`: none for a message between two ranks, or a copy.
[[nodiscard]] double sent_share(Wiring wiring, std::optional<plan::CollectiveKind> collective, int ranks);

/// Load of an all-reduce in the node's switches relative to a ring: each of m devices sends its vector once and
/// receives the sum once, plus 1/m of the others' part, where a ring sends 2 (m - 1)/m of it (NVLink SHARP).
[[nodiscard]] double inside_switch(plan::CollectiveKind collective, const clusters::GroupSpan& span);

/// Loads per byte of a connection: on the devices' own links, and elsewhere.
class Scales {
 public:
  Scales(double inside, double elsewhere) : inside_(inside), elsewhere_(elsewhere) {}
  /// Counts in a link that `count` connections of the message cross. If a price assumes more bandwidth than a link has
  /// (a tree over two nodes sends half as much as a ring), the price wins, and all loads on links of that sort shrink
  /// with it, so that the message alone is not slowed down. `most`: rate of a connection at that price.
  void fit(bool own, int count, double capacity, double most);
  /// An exchange that takes longer than its bytes occupies its fullest links for all that time, for all sharers.
  void fill(Wiring wiring);
  [[nodiscard]] double of(bool own) const { return own ? inside_ : elsewhere_; }

 private:
  double inside_, elsewhere_;
  double fullest_ = std::numeric_limits<double>::infinity();
};

}  // namespace orrery::sim
