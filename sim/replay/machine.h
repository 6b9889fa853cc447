#pragma once
/// The replay's engine: a walk with a clock (plan/schedule/walk.h), in which each class of equal ranks is an Actor. A
/// message is over once its partners have arrived and its transfer has ended. Compute takes the same time whatever
/// other actors do, so an actor's clock runs on until it needs a message in flight; messages share links, so they begin
/// and end in order on one clock. If the machine returns to the same state micro-batch after micro-batch, the
/// repetitions are counted, not walked (sim/replay/machine_skip.cpp). Private to sim/.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/schedule/periods.h"
#include "plan/schedule/walk.h"
#include "sim/links/transfers.h"
#include "sim/replay/replay.h"

namespace orrery::sim {

/// Identifies messages that meet: the same on every participant. (communicators, ordinal, -1) or (communicators, tag,
/// micro-batch).
using Key = std::tuple<int, std::int64_t, std::int64_t>;

/// A message from the arrival of its first participant until the last one has released it.
struct Meeting {
  enum class State : std::uint8_t { gathering, complete, ended };
  State state = State::gathering;
  int kind = -1;
  int expected = 0, holders = 0;
  Picoseconds start = 0, end = 0;  // of the transfer; valid once the meeting is complete, and once it has ended
  std::vector<int> actors;
};

struct Pending : plan::WalkedMessage {
  Key key{};
  int meeting = -1;       // valid once started
  bool attended = false;  // the compute stream waits for it, or for a later message of its stream
  Picoseconds ready = 0, start = 0, end = 0;
};

struct Actor : plan::WalkingRank<Pending> {
  const cost::Pricing* pricing = nullptr;
  int job = 0;
  bool noted = false;                                              // keeps its spans
  const std::vector<std::vector<Picoseconds>>* compute = nullptr;  // duration of each step, by block and step
  const std::vector<std::vector<Picoseconds>>* mean = nullptr;     // the same on the mean rank; null: it is no
                                                                   // different
  const std::vector<std::vector<Picoseconds>>* host = nullptr;     // host time to issue each step, likewise
  std::vector<std::vector<int>> kinds;                             // kinds of messages, by block and step; -1: compute
  std::vector<std::vector<int>> communicators;                     // class of the message's communicators, likewise
  std::map<int, std::int64_t> ordinals;                            // collectives so far, by class of communicators
  Picoseconds compute_free = 0;
  Picoseconds issued = 0;       // when the host has issued everything up to this point of the program
  bool issuing_counts = false;  // the host's issue times have mattered since the state was kept
  std::vector<Picoseconds> stream_free = std::vector<Picoseconds>(plan::kStreams, 0);
  RankTotals totals;
};

/// Monotonic sums at the time when a state was kept.
struct Sums {
  Picoseconds now = 0;
  std::int64_t spans = 0;             // noted or omitted
  std::vector<RankTotals> totals;     // by actor
  std::vector<Picoseconds> issued;    // by actor
  std::vector<std::int64_t> started;  // Transfers::started()
};

class Machine : private plan::Walker<Machine, Actor> {
 public:
  Machine(std::span<const JobOnCluster> jobs, const Traffic& traffic, const Folded& folded, const Fabric* fabric,
          const ReplayOptions& options);
  Replay run();

 private:
  friend plan::Walker<Machine, Actor>;
  // -- preparation
  Actor make_actor(const Folded::Ranks& ranks);
  [[nodiscard]] int communicators_of(const Folded::Ranks& ranks, const JobOnCluster& job, const plan::Step& step) const;
  int kind_of(const plan::Step& step, const plan::RankClass& c, int communicators, std::optional<cost::Leg> leg);

  // -- the clock
  [[nodiscard]] std::optional<Picoseconds> next();
  void happen(Picoseconds time);
  void join(int job);
  Replay result();

  // -- one actor: what plan::Walker asks for
  [[nodiscard]] bool runs_step(const Actor& actor, const plan::Visit& visit) const;
  void arrive(Actor& actor, const plan::Visit& visit);
  Pending message(Actor& actor, const plan::Visit& visit);
  [[nodiscard]] static bool may_start(const Actor& actor, const Pending& p);
  void start(Actor& actor, Pending& p);
  bool ends(Actor& actor, Pending& p);
  void attend(Actor& actor, bool joins = false);
  void compute(Actor& actor, const plan::Visit& visit);
  void end_step(Actor& actor);
  [[nodiscard]] static bool past(const Actor& actor, const Pending& p);
  void forget(const Pending& p);

  void lengthen_compute();
  void meet(Actor& actor, Pending& p);
  int new_meeting(const Actor& actor, const Pending& p);
  void account_wait(Actor& actor, Picoseconds from, Picoseconds to);
  void expose(Actor& actor, const Pending& message, Picoseconds from, Picoseconds to);
  void note(const Actor& actor, plan::StepRef where, std::int32_t micro_batch, Picoseconds ready, Picoseconds start,
            Picoseconds end);

  // -- skipping (sim/replay/machine_skip.cpp)
  void prepare_to_skip(const ReplayOptions& options);
  void look();
  [[nodiscard]] std::vector<std::int64_t> state() const;
  void add_actor(const Actor& actor, const std::map<int, std::int64_t>& ordinals, std::vector<std::int64_t>& out,
                 std::map<int, std::int64_t>& names) const;
  [[nodiscard]] Sums sums() const;
  [[nodiscard]] bool host_allows() const;
  void leap(const plan::Skip& skip);

  std::span<const JobOnCluster> jobs_;
  const Traffic& traffic_;
  const Folded& folded_;
  Transfers transfers_;
  bool spans_;
  std::int64_t most_spans_;
  std::int64_t training_step_;
  std::vector<std::vector<std::vector<std::vector<Picoseconds>>>> compute_;  // [job][class][block][step]
  std::vector<std::vector<std::vector<std::vector<Picoseconds>>>> mean_;     // likewise; empty: no different from
                                                                             // compute_
  std::vector<std::vector<std::vector<std::vector<Picoseconds>>>> host_;     // likewise
  std::vector<Actor> actors_;
  std::map<std::tuple<int, int, int, std::int64_t>, int> known_;  // kinds of messages
  std::map<Key, int> gathering_;
  std::deque<Meeting> meetings_;
  std::vector<int> free_;
  std::vector<std::pair<Picoseconds, int>> starts_;  // heap
  std::vector<int> moved_;
  std::vector<int> under_way_;  // by job: messages that have begun, or will at a known time
  Picoseconds now_ = 0;
  std::vector<std::vector<plan::Span>> notes_;
  std::int64_t noted_ = 0, left_out_ = 0;  // spans
  std::int64_t walked_ = 0;                // steps
  std::optional<plan::Periods> periods_;
  Sums kept_;
};

}  // namespace orrery::sim
