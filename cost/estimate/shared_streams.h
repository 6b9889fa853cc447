#pragma once
/// Messages of one rank's streams that cross the same links: while several are in flight, each moves as fast as the
/// fullest link lets it. Private to cost/.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "cost/estimate/lanes.h"
#include "cost/prices/lockstep.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// How fast the messages of each lane move while those of others are in flight, relative to their prices: max-min
/// fair, connection by connection, as the replay shares links (sim/links/max_min.h).
class StreamRates {
 public:
  using Rates = std::array<double, kLanes>;
  /// `crossings`: by lane.
  explicit StreamRates(const std::array<Crossings, kLanes>& crossings);
  /// `lanes`: a bit for each lane with a message in flight. Rates of others are 1.
  [[nodiscard]] const Rates& of(std::uint32_t lanes);
  /// Picoseconds before a message of a lane takes anything of its links.
  [[nodiscard]] std::int64_t latency(Lane lane) const { return latencies_[lane]; }
  /// Whether messages of any two streams slow each other down.
  [[nodiscard]] bool any() const { return !links_.empty(); }

 private:
  [[nodiscard]] Rates shared(std::uint32_t lanes) const;

  /// A link that several lanes cross: the share of it that each takes at its price.
  std::vector<std::array<double, kLanes>> links_;
  std::array<std::int64_t, kLanes> latencies_ = {};
  std::array<double, kLanes> rates_ = {};              ///< bytes/s of a connection
  std::deque<std::pair<std::uint32_t, Rates>> known_;  ///< by set of lanes; few
};

/// The messages of a rank, in order on each stream. Nothing ends before somebody asks for it, so that what begins in
/// the meantime counts.
class SharedStreams {
 public:
  using Ticks = std::int64_t;                                              ///< picoseconds
  static constexpr Ticks kWhenNeeded = std::numeric_limits<Ticks>::max();  ///< begins when its end is asked for
  struct Place {
    std::size_t stream = 0, number = 0;
  };

  explicit SharedStreams(std::shared_ptr<StreamRates> rates) : rates_(std::move(rates)) {}

  /// A message that takes `length` by itself, and begins neither before `ready` and `input`, nor before those of
  /// `behind` have ended.
  void begin(std::size_t stream, Lane lane, Ticks length, Ticks ready, std::vector<Place> behind, Ticks input = 0);
  /// The end of a message. `now`: what waits to be needed begins no earlier.
  [[nodiscard]] Ticks end_of(Place message, Ticks now);
  /// Whether all that have begun have ended.
  [[nodiscard]] bool idle() const;

 private:
  struct Message {
    Lane lane = 0;
    Ticks latency = 0;  ///< the part of its length in which it takes nothing of its links
    double left = 0;    ///< of the rest
    Ticks ready = 0, end = -1, input = 0;
    std::vector<Place> behind;
  };
  [[nodiscard]] const Message& message(Place at) const { return all_[at.stream][at.number]; }
  /// When the stream's next message begins; kWhenNeeded: not known yet.
  [[nodiscard]] Ticks start_of(std::size_t stream) const;
  void need(Place place, Ticks now);
  void go_on();

  std::shared_ptr<StreamRates> rates_;
  std::array<std::vector<Message>, plan::kStreams> all_;
  std::array<std::size_t, plan::kStreams> needed_ = {}, ended_ = {};
  std::uint32_t moving_ = 0;  ///< streams with a message in flight
  Ticks now_ = 0;
};

}  // namespace orrery::cost
