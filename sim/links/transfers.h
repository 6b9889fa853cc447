#pragma once
/// Messages in flight: prices each with the network to itself, starts it as a flow over the links that its class of
/// communicators crosses, and reports when it has ended. A message that shares no link takes its price.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/prices/exchange.h"
#include "sim/links/flow_network.h"
#include "sim/links/traffic.h"

namespace orrery::sim {

class Transfers {
 public:
  /// All arguments must outlive this object; `fabric` may be null.
  Transfers(std::span<const JobOnCluster> jobs, const Traffic& traffic, const Folded& folded, const Fabric* fabric);

  /// Adds a kind of message: what `step` of a class of ranks moves in a class of communicators. `leg`: for token rows.
  int add(const plan::Step& step, const plan::RankClass& rank_class, int communicators,
          std::optional<cost::Leg> leg = std::nullopt);

  void start(Picoseconds now, int kind, int tag);
  /// The time of a message of this kind on an idle network: as the rank with most sends it, and as the mean rank would.
  struct Idle {
    Picoseconds fullest = 0, mean = 0;
  };
  [[nodiscard]] Idle idle(int kind) const;
  /// The time of the next event; none if nothing is in flight.
  [[nodiscard]] std::optional<Picoseconds> next();
  /// Moves the clock to `to`, which must not be after next(); returns the tags of the messages that have ended.
  const std::vector<int>& advance(Picoseconds to);

  /// Appends to `out` what is in flight, relative to `now`; `name`: the caller's name of a tag. Call after next().
  void state(Picoseconds now, const std::function<std::int64_t(int tag)>& name, std::vector<std::int64_t>& out) const;
  /// How many of each kind have started.
  [[nodiscard]] std::vector<std::int64_t> started() const;
  /// Moves the clock together with what is in flight; repeats `times` times what has started since `before`.
  void leap(Picoseconds by, const std::vector<std::int64_t>& before, std::int64_t times);

  /// Bytes of one job's messages that have crossed each of Traffic::links.
  [[nodiscard]] std::vector<double> carried(int job) const;

 private:
  struct Kind {
    int communicators = 0;
    Wiring wiring = Wiring::rings;
    Picoseconds latency = 0, total = 0;
    double mean = 1;     ///< share of `bytes` that the mean rank has
    int path = -1;       ///< -1: shares no links
    double bytes = 0;    ///< of one connection
    double inside = 1;   ///< load on the devices' own links per byte of a connection
    double far = 1;      ///< load on other links, relative to the price
    double heavier = 1;  ///< further factor on the other links
    std::int64_t started = 0;
  };
  struct Fixed {
    Picoseconds time = 0;
    std::int64_t order = 0;
    int tag = -1;
    bool operator>(const Fixed& o) const { return time != o.time ? time > o.time : order > o.order; }
  };
  [[nodiscard]] int path_of(const Kind& kind, double most);
  /// The stack's price of an all-to-all of `message` bytes of tokens; sets `message` to the bytes on the links.
  cost::ExchangeAlone exchange(const plan::Step& step, const plan::RankClass& rank_class, const Communicator& c,
                               std::optional<cost::Leg> leg, base::Bytes& message);

  std::span<const JobOnCluster> jobs_;
  const Traffic& traffic_;
  const Folded& folded_;
  const Fabric* fabric_;
  std::vector<Kind> kinds_;
  std::vector<double> capacities_;
  std::map<std::pair<int, plan::StageId>, double> left_;  ///< of exchanges that overlap with compute: the share that
                                                          ///< still counts, by job, stage
  FlowNetwork network_;
  std::vector<int> tag_of_flow_;
  std::vector<Fixed> fixed_;  ///< heap
  std::int64_t order_ = 0;
  std::vector<int> ended_;
};

}  // namespace orrery::sim
