#pragma once
/// Messages under way: prices each with the network to itself, starts it as a flow over the links that its class of
/// communicators crosses, and says when it has ended. What shares no link takes its price.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/prices/exchange.h"
#include "sim/flow_network.h"
#include "sim/traffic.h"

namespace orrery::sim {

class Transfers {
 public:
  /// All must outlive this; `fabric` may be null.
  Transfers(std::span<const JobOnCluster> jobs, const Traffic& traffic, const Folded& folded, const Fabric* fabric);

  /// A kind of message: what `step` of a class of ranks moves in a class of communicators. `leg`: of rows of tokens.
  int add(const plan::Step& step, const plan::RankClass& rank_class, int communicators,
          std::optional<cost::Leg> leg = std::nullopt);

  void start(Picoseconds now, int kind, int tag);
  /// When something happens next; none when nothing is under way.
  [[nodiscard]] std::optional<Picoseconds> next();
  /// Moves the clock to `to`, which is not after next(); returns the tags of the messages that have ended.
  const std::vector<int>& advance(Picoseconds to);

  /// What is under way, from `now`, added to `out`: `name` is what the caller calls a tag. After next().
  void state(Picoseconds now, const std::function<std::int64_t(int tag)>& name, std::vector<std::int64_t>& out) const;
  /// How many of each kind have started.
  [[nodiscard]] std::vector<std::int64_t> started() const;
  /// Moves the clock, and what is under way with it; what has started since `before` has `times` times more.
  void leap(Picoseconds by, const std::vector<std::int64_t>& before, std::int64_t times);

  /// Bytes of one job's messages that have passed each of Traffic::links.
  [[nodiscard]] std::vector<double> carried(int job) const;

 private:
  struct Kind {
    int communicators = 0;
    Wiring wiring = Wiring::rings;
    Picoseconds latency = 0, total = 0;
    int path = -1;       ///< -1: shares nothing
    double bytes = 0;    ///< of one connection
    double inside = 1;   ///< what a connection asks of the devices' own links, for each byte
    double far = 1;      ///< and of the others, for the price
    double heavier = 1;  ///< and besides
    std::int64_t started = 0;
  };
  struct Fixed {
    Picoseconds time = 0;
    std::int64_t order = 0;
    int tag = -1;
    bool operator>(const Fixed& o) const { return time != o.time ? time > o.time : order > o.order; }
  };
  [[nodiscard]] int path_of(const Kind& kind, double most);
  /// The price of an all-to-all of tokens as the stack does it, for `message`, of which what is left crosses the links.
  cost::ExchangeAlone exchange(const plan::Step& step, const plan::RankClass& rank_class, const Communicator& c,
                               std::optional<cost::Leg> leg, base::Bytes& message);

  std::span<const JobOnCluster> jobs_;
  const Traffic& traffic_;
  const Folded& folded_;
  const Fabric* fabric_;
  std::vector<Kind> kinds_;
  std::vector<double> capacities_;
  std::map<std::pair<int, int>, double> left_;  ///< of exchanges beside compute, by job and stage
  FlowNetwork network_;
  std::vector<int> tag_of_flow_;
  std::vector<Fixed> fixed_;  ///< heap
  std::int64_t order_ = 0;
  std::vector<int> ended_;
};

}  // namespace orrery::sim
