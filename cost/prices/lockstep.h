#pragma once
/// Prices of messages between ranks that do the same at the same time. All ranks of a stage send equal messages at
/// once, so a message shares links with the equal messages of others, in the same node and beyond. cost/estimate/,
/// which sums prices up, knows no links; it asks an implementation that does (sim/shared_links.h).
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/prices/exchange.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// A message as it stands for all of a rank's stream: a collective of `members`, or a copy of the first one's.
struct StreamMessage {
  plan::Stream stream = plan::Stream::data;
  std::optional<plan::CollectiveKind> collective = {};  ///< none: a copy between memories
  base::Bytes bytes{0};
  std::vector<int> members = {};
  bool accumulate = false;  ///< a copy that is added to what is there
};

/// How a message crosses links together with its equals.
struct Crossings {
  double rate = 0;  ///< bytes/s of one connection at the message's price; 0: the message crosses no link that is known
  std::vector<std::pair<int, double>> shares = {};  ///< links, and the share of their capacity that all take together
  double latency = 0;                               ///< seconds before the message takes anything of its links
  bool operator==(const Crossings&) const = default;
};

/// Seconds of a message while its equals among `ranks` neighbouring ranks are in flight: from when all are ready until
/// the last has arrived. `members.front()` is one of the lowest of these ranks.
class SharedLinks {
 public:
  SharedLinks() = default;
  SharedLinks(const SharedLinks&) = delete;
  SharedLinks& operator=(const SharedLinks&) = delete;
  virtual ~SharedLinks() = default;
  /// Where the ranks of the messages asked for next run.
  virtual void place(const plan::MeshAxes& axes) = 0;
  [[nodiscard]] virtual base::Seconds collective(plan::CollectiveKind kind, base::Bytes message,
                                                 std::span<const int> members, plan::Stream stream, int ranks,
                                                 std::span<const double> mirrored) = 0;
  [[nodiscard]] virtual base::Seconds exchange(base::Bytes message, std::span<const int> members,
                                               const TokenChoice& choice, int ranks) = 0;
  [[nodiscard]] virtual base::Seconds send(base::Bytes message, int from, int to, int ranks) = 0;
  /// A copy between a rank's memories.
  [[nodiscard]] virtual base::Seconds copy(plan::Stream stream, base::Bytes bytes, bool accumulate, int ranks) = 0;
  /// By the links of the whole cluster, so that those of different messages can be compared.
  [[nodiscard]] virtual Crossings crossings(const StreamMessage& message, int ranks) = 0;
};

/// The ranks of a stage, and the links that they share. Without `links`: prices that assume that the rest of the
/// cluster sends the same through the same NICs, and that nothing is shared within a node (Pricing).
struct Lockstep {
  const Pricing* pricing = nullptr;
  SharedLinks* links = nullptr;
  int ranks = 1;
  plan::MeshAxes axes = {};  ///< where the plan's ranks run
  /// By stage, where stages mirror each other (plan/spec/stages.h): what it reduces with its image while all others do,
  /// in values. Empty: stages reduce each by itself.
  std::span<const double> mirrored = {};

  /// The links, for ranks of this plan.
  [[nodiscard]] SharedLinks& placed() const {
    links->place(axes);
    return *links;
  }
  /// The same at these prices.
  [[nodiscard]] Lockstep at(const Pricing& prices) const { return {&prices, links, ranks, axes, mirrored}; }
  [[nodiscard]] base::Seconds collective_time(plan::CollectiveKind kind, base::Bytes message,
                                              std::span<const int> members,
                                              plan::Stream stream = plan::Stream::tensor) const {
    if (links && members.size() > 1) return placed().collective(kind, message, members, stream, ranks, mirrored);
    return pricing->collective_time(kind, message, pricing->devices_of(axes, members), stream);
  }
  [[nodiscard]] base::Seconds exchange_time(base::Bytes message, std::span<const int> members,
                                            const TokenChoice& choice) const {
    if (links && members.size() > 1) return placed().exchange(message, members, choice, ranks);
    return pricing->exchange_time(message, pricing->devices_of(axes, members), choice);
  }
  [[nodiscard]] base::Seconds send_time(base::Bytes message, int from, int to) const {
    if (links) return placed().send(message, from, to, ranks);
    const std::vector<int> ends = pricing->devices_of(axes, std::array<int, 2>{from, to});
    return pricing->send_time(message, ends.front(), ends.back());
  }
  [[nodiscard]] base::Seconds copy_time(plan::Stream stream, base::Bytes bytes, bool accumulate = false) const {
    return links ? links->copy(stream, bytes, accumulate, ranks) : pricing->copy_time(stream, bytes, accumulate);
  }
};

}  // namespace orrery::cost
