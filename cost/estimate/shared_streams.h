#pragma once
/// Messages that cross the same links, of one rank's streams or of several ranks': while several are in flight, each
/// moves as fast as the fullest link lets it. Private to cost/.
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cost/estimate/lanes.h"
#include "cost/estimate/numbers_hash.h"
#include "cost/prices/lockstep.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// Messages in flight: by rank, a bit for each lane that has one.
using LaneSets = std::vector<std::uint32_t>;

/// How fast the messages of each lane move while those of others are in flight, relative to their prices: max-min
/// fair, connection by connection, as the replay shares links (sim/links/max_min.h). Of one rank, or of several whose
/// messages cross the same links.
class StreamRates {
 public:
  using Lanes = std::array<Crossings, kLanes>;
  using Rates = std::array<double, kLanes>;
  /// `ranks`: by rank and lane.
  explicit StreamRates(std::vector<Lanes> ranks);
  explicit StreamRates(const Lanes& lanes) : StreamRates(std::vector<Lanes>{lanes}) {}
  /// By rank and lane; those of lanes without a message in flight are 1.
  [[nodiscard]] const std::vector<Rates>& of(const LaneSets& in_flight);
  /// Picoseconds before a message of a lane takes anything of its links.
  [[nodiscard]] std::int64_t latency(std::size_t rank, Lane lane) const { return latencies_[rank][lane]; }
  /// Whether messages of any two streams slow each other down.
  [[nodiscard]] bool any() const { return !links_.empty(); }
  /// Whether those of different ranks do.
  [[nodiscard]] bool across() const { return across_; }
  [[nodiscard]] const std::vector<Lanes>& ranks() const { return ranks_; }
  /// How many sets of messages in flight it remembers.
  [[nodiscard]] std::size_t sets() const { return known_.size(); }

 private:
  /// What the messages of a lane take of a link at their price.
  struct Part {
    std::size_t rank = 0;
    Lane lane = 0;
    double share = 0;
    auto operator<=>(const Part&) const = default;
  };
  [[nodiscard]] std::vector<Rates> shared(const LaneSets& in_flight) const;

  std::vector<Lanes> ranks_;
  std::vector<std::vector<Part>> links_;  ///< those that can be full
  bool across_ = false;
  std::vector<std::array<std::int64_t, kLanes>> latencies_;
  std::unordered_map<LaneSets, std::vector<Rates>, NumbersHash> known_;
};

/// The messages of one rank or of several, in order on each stream. Nothing ends before somebody asks for it, so that
/// what begins in the meantime counts.
class SharedStreams {
 public:
  using Ticks = std::int64_t;                                              ///< picoseconds
  static constexpr Ticks kWhenNeeded = std::numeric_limits<Ticks>::max();  ///< begins when its end is asked for
  /// Streams of rank r follow those of rank r - 1.
  struct Place {
    std::size_t stream = 0, number = 0;
  };

  explicit SharedStreams(std::shared_ptr<StreamRates> rates);

  /// A message that takes `length` by itself, and begins neither before `ready` and `input`, nor before those of
  /// `behind` have ended.
  void begin(std::size_t stream, Lane lane, Ticks length, Ticks ready, std::vector<Place> behind, Ticks input = 0);
  /// The end of a message. `now`: what waits to be needed begins no earlier.
  [[nodiscard]] Ticks end_of(Place message, Ticks now);
  /// The same, without what has not happened yet: nothing if it has not ended.
  [[nodiscard]] std::optional<Ticks> end_so_far(Place message, Ticks now);
  /// When something happens next, as far as is known now; kWhenNeeded: nothing does.
  [[nodiscard]] Ticks next();
  /// Lets it happen.
  void go_on();
  /// Whether all that have begun on the streams of a rank have ended.
  [[nodiscard]] bool idle(std::size_t rank = 0) const;

 private:
  struct Message {
    Lane lane = 0;
    Ticks latency = 0;  ///< the part of its length in which it takes nothing of its links
    double left = 0;    ///< of the rest
    Ticks ready = 0, end = -1, input = 0;
    std::vector<Place> behind;
  };
  struct OfStream {
    std::vector<Message> all = {};
    std::size_t needed = 0, ended = 0;
    bool moving = false;  ///< the first that has not ended is in flight
  };
  [[nodiscard]] const Message& message(Place at) const { return streams_[at.stream].all[at.number]; }
  static std::size_t rank_of(std::size_t stream) { return stream / plan::kStreams; }
  /// When the stream's next message begins; kWhenNeeded: not known yet.
  [[nodiscard]] Ticks start_of(const OfStream& stream) const;
  void need(Place place, Ticks now);

  std::shared_ptr<StreamRates> rates_;
  std::vector<OfStream> streams_;
  std::vector<std::size_t> used_;  ///< streams that have begun a message
  LaneSets in_flight_;
  const std::vector<StreamRates::Rates>* rates_in_flight_ = nullptr;  ///< null: not looked up since that changed
  Ticks now_ = 0;
  std::optional<Ticks> next_;  ///< next(), until something changes it
};

}  // namespace orrery::cost
