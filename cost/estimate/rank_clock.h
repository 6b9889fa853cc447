#pragma once
/// The clocks of one rank as it runs through the steps of a pass: its device's, its host's and those of its streams of
/// messages, by the rules of plan/schedule/schedule.h and at prices that no other rank's doings change. So the closed
/// form and the replay (sim/replay/machine.h) differ only by what ranks do to each other. With rates the streams of the
/// rank share links (shared_streams.h). Private to cost/.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/estimate/shared_streams.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// Picoseconds, as the replay counts them.
using Ticks = std::int64_t;
[[nodiscard]] inline Ticks ticks(double seconds) {
  return static_cast<Ticks>(std::llround(seconds * 1e12));
}
[[nodiscard]] inline double seconds(Ticks time) {
  return static_cast<double>(time) * 1e-12;
}

/// A step of a pass, in program order.
struct PassStep {
  enum class Kind : std::uint8_t {
    compute,
    begin,  ///< a message: it begins once compute before it has ended
    after,  ///< the next message begins only once another one has ended
    wait    ///< the next compute step waits for a message
  };
  Kind kind = Kind::compute;
  plan::Stream stream = plan::Stream::compute;  ///< of the message
  bool frees = false;        ///< begin: it frees memory, so that the next compute step waits for it whatever it reads
  bool reads_input = false;  ///< begin, compute: waits for what another stage has sent
  std::uint32_t back = 1;    ///< after, wait: for the last message begun on the stream (1), the one before it (2) …
  Ticks time = 0;            ///< of compute on the device, or of the message
  Ticks host = 0;            ///< to issue it
  Lane lane = lane_of(stream);  ///< of a message that begins
  bool operator==(const PassStep&) const = default;
};

/// A run of steps whose messages are all its own, taken together: what it does to a clock whose host is ahead.
struct PassPart {
  std::size_t begin = 0, end = 0;  ///< steps
  Ticks device = 0;                ///< from the begin of the first to the end of the last one
  Ticks host = 0;                  ///< to issue them
  Ticks slack = 0;                 ///< how far behind its begin the host may be without prolonging it
  bool reads_input = false;
  Ticks host_before = 0, slack_behind = 0;  ///< `host` up to its wait for the input; `slack` from there
  Ticks waited = -1, known = -1;            ///< its first wait for a message, and the end of the last one; -1: none
  std::array<Ticks, plan::kStreams> exposed = {};
};

/// A pass over one micro-batch of a chunk of layers.
struct PassProgram {
  std::vector<PassStep> steps = {};
  std::size_t input = 0;  ///< the first step that waits for what another stage sends; their number: none does
  std::size_t freed = 0;  ///< the first step that waits until what the chunk has sent has arrived
  std::size_t sent = ~std::size_t{0};  ///< what it makes is sent before this step; beyond the last: at its end
  std::uint32_t reach = 0;             ///< the largest PassStep::back
  /// Up to input and, if anything computes before it, freed, and from there on; none if its messages outlast them.
  std::vector<PassPart> parts = {};
};

struct ChunkPrograms {
  PassProgram forward, backward, weights;
  PassProgram first;  ///< the step's first forward pass; without steps: as the others
  /// Those that find no gradients to add to, and write theirs (plan/lower/write_first.h); without steps: as the others.
  PassProgram first_backward, first_weights;
  /// Those behind which no other adds to some gradients; without steps: as the others.
  PassProgram last_backward, last_weights;
};

class RankClock {
 public:
  using Overlaps = std::array<bool, plan::kStreams>;  ///< whether messages of a stream move while the rank computes

  /// What of the clocks outlasts a pass.
  struct State {
    Ticks device = 0;  ///< end of compute so far
    Ticks host = 0;    ///< when the host has issued everything so far
    Ticks held = 0;    ///< until when memory that the next compute step may use is not free
    /// The end of the last message that compute waited for. The replay lets a rank run ahead from there: it takes
    /// messages that end later for unfinished, even where compute gets to them later still.
    Ticks known = 0;
    std::array<Ticks, plan::kStreams> free = {};  ///< end of the stream's last message
    bool operator==(const State&) const = default;
  };
  /// Where the device's time went, beside compute that runs as fast as it can.
  struct Waits {
    std::array<Ticks, plan::kStreams> exposed = {};  ///< for messages, by stream
    Ticks late = 0;                                  ///< by which the host prolongs compute
    Waits& operator+=(const Waits& other) {
      for (std::size_t s = 0; s < exposed.size(); ++s) exposed[s] += other.exposed[s];
      late += other.late;
      return *this;
    }
  };

  /// `reach`: the largest PassStep::back of what will run. `rates`: null where no stream slows another one down.
  explicit RankClock(const Overlaps& overlaps, std::size_t reach = 0, std::shared_ptr<StreamRates> rates = nullptr)
      : RankClock(overlaps, reach, rates ? std::make_shared<SharedStreams>(std::move(rates)) : nullptr, {}) {}
  /// One of several ranks whose messages share links: `streams` has those of all, and time goes on in it only when none
  /// of them can do more (`stuck`).
  struct Beside {
    bool others = false;
    std::size_t rank = 0;  ///< in `streams`
  };
  RankClock(const Overlaps& overlaps, std::size_t reach, std::shared_ptr<SharedStreams> streams, Beside beside)
      : overlaps_(overlaps),
        room_(std::bit_ceil(std::max<std::size_t>(64, reach))),
        shared_(std::move(streams)),
        beside_(beside) {}

  State state;
  Waits waits;
  Ticks waited = -1;  ///< when compute first came to an unfinished message in the last run; negative: it did not

  /// Returns how many steps have run: fewer than all if the next one waits for a message that has not ended yet.
  std::size_t run(std::span<const PassStep> steps);
  /// Whether its messages share links with those of other ranks.
  [[nodiscard]] bool beside_others() const { return beside_.others; }
  /// Whether it waits for a message that shares links with other ranks' and has not ended yet.
  [[nodiscard]] bool stuck();
  /// When what the pass reads of another stage has arrived: its first step that reads it waits, and at the first that
  /// computes with it the host.
  void arrive(Ticks time) { arrived_ = time; }
  /// The same at once, if the host does not prolong it; false: nothing has been done.
  [[nodiscard]] bool leap(const PassPart& part);
  /// No compute before this time; no exposed wait.
  void hold(Ticks until) { state.held = std::max(state.held, until); }
  /// Whether all messages so far have started and nothing is awaited, and none slows another one down: `state` then
  /// says all.
  [[nodiscard]] bool plain() const;
  /// The end of the stream's last message, which something needs now. Other ranks' messages that begin before it do not
  /// slow it down any more.
  Ticks finish(plan::Stream stream);
  /// The same once other ranks have come as far; nothing if they have not, and the clock is stuck.
  [[nodiscard]] std::optional<Ticks> finished(plan::Stream stream);
  /// Nothing more runs: what waits to be needed begins now.
  void need_all();
  /// Ends what is under way or held back; the time at which the last message has ended.
  Ticks settle();

 private:
  struct Count {
    std::size_t begun = 0, started = 0, needed = 0;
  };
  /// When a message has ended; of one that has not started: its length, and until when it waits for another one.
  struct Message {
    Ticks end = 0, after = 0;
  };
  /// The last messages of a stream, by their number modulo the room for them, which is a power of two.
  using Ring = std::vector<Message>;
  Message& message(std::size_t stream, std::size_t number) {
    Ring& ring = last_[stream];
    return ring[number & (ring.size() - 1)];
  }
  /// Of the shared streams.
  [[nodiscard]] SharedStreams::Place place(std::size_t stream, std::size_t message) const {
    return {beside_.rank * plan::kStreams + stream, message};
  }
  /// Whether all has ended that the next compute step waits for.
  [[nodiscard]] bool comes();
  void begin(std::size_t stream, Lane lane, Ticks length);
  void make_room(std::size_t stream);
  Ticks end_of(std::size_t stream, std::size_t message);
  void start(std::size_t stream, Ticks ready);
  void compute(const PassStep& step);
  void wait(Ticks end);

  Overlaps overlaps_;
  std::array<Count, plan::kStreams> counts_;
  std::array<Ring, plan::kStreams> last_;
  std::size_t room_;           ///< of a ring at first
  std::uint32_t awaited_ = 0;  ///< streams whose messages the next compute step waits for
  Ticks after_ = 0;            ///< the next message begins no earlier
  std::shared_ptr<SharedStreams> shared_;
  Beside beside_;
  std::optional<SharedStreams::Place> stuck_;  ///< the message that it waits for
  std::vector<SharedStreams::Place> behind_;   ///< the next message that shares begins no earlier than these end
  Ticks arrived_ = -1;
};

/// Divides a pass into parts, if it can be.
void summarise(PassProgram& pass, const RankClock::Overlaps& overlaps);

}  // namespace orrery::cost
