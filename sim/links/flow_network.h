#pragma once
/// Max-min fair sharing of links between the transfers in flight: a fluid, flow-level model of a network.
///
/// A flow moves bytes along a path. A path says how many of the flow's connections cross each resource (a direction of
/// a link as numbered by clusters::Paths, or any other capacity): while the flow moves r bytes/s, r * share pass there.
/// A message between two devices has share 1 on each link of its route. A ring all-reduce is one flow too: its bytes
/// are those of one connection, and its shares count the ring's connections over each link. So one flow represents all
/// transfers that progress together.
///
/// Rates are max-min fair (sim/links/max_min.h). They are recomputed when flows start or end, and only for the flows
/// that the change can affect: flows that share only a resource which they cannot fill, even at their limits, do not
/// affect each other. All flows of a path are one entry of the solver, whatever their number.
///
/// The public clock is an integer count of picoseconds; equal calls give equal results.
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

  /// Adds a resource; returns its number.
  int add_resource(double bytes_per_second);

  /// A path for any number of flows; returns its number. Loads on the same resource are added, their order does not
  /// matter, and equal paths get equal numbers. `most`: limit of one flow in bytes/s (of a protocol). A path without
  /// loads and limit takes only latency.
  int path(std::vector<Load> loads, double most = std::numeric_limits<double>::infinity());

  /// Starts a flow: it uses nothing for `latency`, then moves `bytes`. `count` equal flows, each of that size, start
  /// and end together under one number. Numbers of ended flows are reused, lowest first, so per-flow data can be kept
  /// in a vector. `now` must not precede the clock, nor follow a completion that has not been fetched.
  int start(Picoseconds now, int path, double bytes, Picoseconds latency = 0, int count = 1);

  /// Ends a flow early.
  void cancel(Picoseconds now, int flow);

  /// The time of the next event (a completion, or the end of a latency); none if nothing is in flight.
  [[nodiscard]] std::optional<Picoseconds> next();

  /// Moves the clock to `to` and returns the flows that ended since, by time, then by start; valid until the next call.
  /// To react to each completion, advance one event at a time: advance(*next()).
  const std::vector<Completion>& advance(Picoseconds to);

  /// Appends to `out` what is in flight, relative to the clock: two networks that append the same behave the same from
  /// then on. `name`: the caller's name of a flow. Call after next().
  void state(const std::function<std::int64_t(int flow)>& name, std::vector<std::int64_t>& out) const;
  /// Moves the clock together with what is in flight: nothing progresses.
  void leap(Picoseconds by);

  [[nodiscard]] Picoseconds now() const;
  [[nodiscard]] int active() const;  ///< flows in flight, including those in latency; `count` equal flows are one
  [[nodiscard]] int resources() const;
  [[nodiscard]] double capacity(int resource) const;  ///< bytes/s
  [[nodiscard]] double rate(int flow);                ///< bytes/s of one flow now; 0 during its latency
  [[nodiscard]] double carried(int resource) const;   ///< bytes that ended flows moved over it
  /// How many path rates the solver has computed in total: a measure of its work.
  [[nodiscard]] std::int64_t solved_paths() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace orrery::sim
