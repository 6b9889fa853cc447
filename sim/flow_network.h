#pragma once
/// Max-min fair sharing of links between the transfers that are under way: a fluid, flow-level model of a network.
///
/// A flow moves bytes along a path. A path says how many of the flow's connections cross each resource (a direction of
/// a link as clusters::Paths numbers them, or any other capacity): while the flow moves r bytes/s, r * share pass
/// there. A message between two devices has share 1 on each link of its route. A ring all-reduce is one flow as well:
/// its bytes are what one connection carries in all, its shares count the ring's connections that cross each link. So
/// one flow stands for all transfers that progress in step.
///
/// Rates are max-min fair (sim/max_min.h). They are computed again when flows come or go, only for the flows that the
/// change can reach: a resource that its flows cannot fill even at their limits joins nobody. All flows of a path are
/// one entry of the solver, however many they are.
///
/// The clock at the surface is an integer count of picoseconds; equal calls give equal results.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "clusters/load.h"

namespace orrery::sim {

using Picoseconds = std::int64_t;
[[nodiscard]] inline Picoseconds picoseconds(base::Seconds t) {
  return static_cast<Picoseconds>(std::llround(t.value * 1e12));
}
[[nodiscard]] inline double seconds(Picoseconds t) {
  return static_cast<double>(t) * 1e-12;
}

using clusters::Load;

class FlowNetwork {
 public:
  struct Completion {
    Picoseconds time = 0;
    int flow = -1;
    bool operator==(const Completion&) const = default;
  };

  /// One resource per entry, in bytes/s (clusters::Paths::bandwidths()).
  explicit FlowNetwork(const std::vector<double>& capacities = {});
  ~FlowNetwork();
  FlowNetwork(FlowNetwork&&) noexcept;
  FlowNetwork& operator=(FlowNetwork&&) noexcept;

  /// Another resource; returns its number.
  int add_resource(double bytes_per_second);

  /// A path, to be used by any number of flows; returns its number. Loads on one resource are added up, their order
  /// does not matter, and equal paths get equal numbers. `most`: bytes/s that one flow does not pass (a protocol's
  /// limit). A path without loads and limit takes no time beyond latency.
  int path(std::vector<Load> loads, double most = std::numeric_limits<double>::infinity());

  /// A flow: uses nothing for `latency`, then moves `bytes`. `count` equal flows, each of these bytes, come and go
  /// together under one number. Numbers of ended flows are given again, the lowest first, so what belongs to a flow can
  /// be kept in a vector. `now` is not before the clock, nor after a completion that was not fetched yet.
  int start(Picoseconds now, int path, double bytes, Picoseconds latency = 0, int count = 1);

  /// Ends a flow early.
  void cancel(Picoseconds now, int flow);

  /// When something happens next (a completion, or the end of a latency); none when nothing is under way.
  [[nodiscard]] std::optional<Picoseconds> next();

  /// Moves the clock to `to` and returns the flows that have ended since, by time, then in the order of their start;
  /// valid until the next call. To react to each completion go step by step: advance(*next()).
  const std::vector<Completion>& advance(Picoseconds to);

  /// What is under way, as seen from the clock, added to `out`: two networks that add the same do the same from there
  /// on. `name`: what the caller calls a flow. After next().
  void state(const std::function<std::int64_t(int flow)>& name, std::vector<std::int64_t>& out) const;
  /// Moves the clock, and what is under way with it: nothing goes on meanwhile.
  void leap(Picoseconds by);

  [[nodiscard]] Picoseconds now() const;
  [[nodiscard]] int active() const;  ///< flows under way, those in latency included; `count` equal flows are one
  [[nodiscard]] int resources() const;
  [[nodiscard]] double capacity(int resource) const;  ///< bytes/s
  [[nodiscard]] double rate(int flow);                ///< bytes/s of one flow now; 0 during its latency
  [[nodiscard]] double carried(int resource) const;   ///< bytes of ended flows that passed it
  /// How many paths the solver has given a rate, in all: what its work is made of.
  [[nodiscard]] std::int64_t solved_paths() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace orrery::sim
