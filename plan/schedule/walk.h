#pragma once
/// One walk over a schedule. Ranks, one per class, go through their programs in order; their messages are queued, wait,
/// start and end, in the order of their streams, by the rules of plan/schedule/waits.h. A derived class says what the
/// walk is for: the checker and the rehearsal (plan/schedule/rendezvous.h), which have no clock, and the replay
/// (sim/replay/machine.h), which has one. Private to plan/ and sim/.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/index.h"
#include "plan/schedule/waits.h"

namespace orrery::plan {

/// A step at which a rank has arrived.
struct Visit {
  const Step* step = nullptr;
  StepRef at;
  std::int32_t block = 0, micro_batch = -1;
  std::int64_t training_step = 0;
};

/// What a walk knows about a message; each use of the walk derives its own type from it.
struct WalkedMessage : Visit {
  bool awaited = false;  ///< by the step at which its rank stands, or by the training step's end
  bool started = false, ended = false;
};

/// Where a rank stands; each use of the walk derives its own type from it.
template <class OneMessage>
struct WalkingRank {
  using Message = OneMessage;
  const RankClass* rank_class = nullptr;
  int index = 0;
  std::int64_t training_step = 0;
  std::size_t entry = 0;
  std::int32_t step = 0;
  bool arrived = false;          ///< at that step, or at the training step's end
  std::deque<Message> messages;  ///< waiting or in flight, in program order; and ended ones that may still matter
};

/// `Self` has, beside what it overrides of the defaults below:
///  - `Message message(Rank&, const Visit&)`: a message, as it is queued;
///  - `void start(Rank&, Message&)`;
///  - `bool ends(Rank&, Message&)`: whether a message that has started is over.
template <class Self, class Rank>
class Walker {
 public:
  using Message = typename Rank::Message;

  // -- what a use may override
  /// What a step, or a message, uses of memory (plan/schedule/waits.h): by instances of buffers.
  [[nodiscard]] BufferUses uses(const Rank& rank, const Visit& visit) const {
    return {rank.rank_class, visit.step, visit.micro_batch};
  }
  /// Whether a step runs at all.
  [[nodiscard]] bool runs_step(const Rank& /*rank*/, const Visit& /*visit*/) const { return true; }
  /// The rank has come to a step, or leaves it.
  void arrive(Rank& /*rank*/, const Visit& /*visit*/) {}
  void leave(Rank& /*rank*/, const Visit& /*visit*/) {}
  /// Whether a message may start as soon as the rules allow.
  [[nodiscard]] bool may_start(const Rank& /*rank*/, const Message& /*message*/) const { return true; }
  /// The rank stands before a step, or the end of the training step, that awaits some messages.
  void attend(Rank& /*rank*/) {}
  /// All awaited messages have ended.
  void compute(Rank& /*rank*/, const Visit& /*visit*/) {}
  void end_step(Rank& /*rank*/) {}
  /// Whether a message that has ended no longer needs to be kept; called once it has ended.
  [[nodiscard]] bool past(const Rank& /*rank*/, const Message& /*message*/) const { return true; }
  void forget(const Message& /*message*/) {}

  // -- the walk
 protected:
  explicit Walker(std::int64_t training_steps = 1) : training_steps_(training_steps) {}
  /// Goes as far as possible without another rank; true if anything moved.
  bool advance(Rank& rank) {
    bool moved = settle(rank);
    while (!finished(rank)) {
      if (!through_program(rank, moved)) return moved;
      if (!std::exchange(rank.arrived, true)) mark(rank, [](const Message&) { return true; });
      if (waits(rank)) return moved;
      self().end_step(rank);
      drop(rank);
      rank.arrived = false;
      moved = true;
      ++rank.training_step;
      if (!finished(rank)) rank.entry = 0;
    }
    return moved;
  }

  /// Starts messages that may start and notes those that have ended. One pass is enough, because a message depends only
  /// on earlier ones. True if anything moved.
  bool settle(Rank& rank) {
    std::array<bool, kStreams> stalled{};
    bool moved = false;
    for (Message& message : rank.messages) {
      bool& stall = stalled[static_cast<std::size_t>(message.step->stream)];
      if (message.ended || stall) continue;
      if (!message.started) {
        if (!self().may_start(rank, message) || ahead_of(rank, message) != nullptr) {
          stall = true;
          continue;
        }
        self().start(rank, message);
        message.started = moved = true;
      }
      if (self().ends(rank, message))
        message.ended = moved = true;
      else
        stall = true;
    }
    return moved;
  }

  /// The message, of another stream or the same, that this one waits for by rule 2; null: none.
  [[nodiscard]] const Message* ahead_of(const Rank& rank, const Message& message) const {
    for (const Message& earlier : rank.messages) {
      if (&earlier == &message) break;
      if (!earlier.ended && message_waits(self().uses(rank, message), self().uses(rank, earlier))) return &earlier;
    }
    return nullptr;
  }
  /// An awaited message that has not ended; null: none.
  [[nodiscard]] static const Message* obstacle(const Rank& rank) {
    for (const Message& message : rank.messages)
      if (message.awaited && !message.ended) return &message;
    return nullptr;
  }
  [[nodiscard]] static bool waits(const Rank& rank) { return obstacle(rank) != nullptr; }
  [[nodiscard]] bool finished(const Rank& rank) const { return rank.training_step == training_steps_; }
  /// Where the rank stands, unless at the training step's end.
  [[nodiscard]] static Visit visit(const Rank& rank, const Entry& entry) {
    return {&rank.rank_class->blocks[base::at(entry.block)].steps[base::at(rank.step)],
            {static_cast<std::int32_t>(rank.entry), rank.step},
            entry.block,
            entry.micro_batch,
            rank.training_step + entry.ahead};
  }

 private:
  [[nodiscard]] Self& self() { return static_cast<Self&>(*this); }
  [[nodiscard]] const Self& self() const { return static_cast<const Self&>(*this); }

  // True: the rank stands at its end.
  bool through_program(Rank& rank, bool& moved) {
    const Entries& program = rank.rank_class->program;
    for (; rank.entry < program.size(); ++rank.entry, rank.step = 0) {
      const Entry entry = program[rank.entry];
      if (!runs(entry, rank.training_step, training_steps_, rank.training_step == 0)) continue;
      const std::vector<Step>& steps = rank.rank_class->blocks[base::at(entry.block)].steps;
      for (; base::at(rank.step) < steps.size(); ++rank.step) {
        const Visit here = visit(rank, entry);
        if (!self().runs_step(rank, here)) continue;
        if (!pass(rank, here)) return false;
        moved = true;
      }
    }
    return true;
  }

  // False: the rank waits before this step.
  bool pass(Rank& rank, const Visit& visit) {
    const bool computes = visit.step->kind == StepKind::compute;
    if (!computes || !std::exchange(rank.arrived, true)) {
      self().arrive(rank, visit);
      computes ? await(rank, visit) : queue(rank, visit);
    }
    if (computes) {
      if (waits(rank)) return false;
      self().compute(rank, visit);
      drop(rank);
      rank.arrived = false;
    }
    self().leave(rank, visit);
    return true;
  }

  void queue(Rank& rank, const Visit& visit) {
    Message& message = rank.messages.emplace_back(self().message(rank, visit));
    if (self().may_start(rank, message)) settle(rank);
  }

  void await(Rank& rank, const Visit& compute) {
    if (rank.messages.empty()) return;
    const auto& used = self().uses(rank, compute);
    mark(rank, [&](const Message& message) {
      return compute_waits(used, self().uses(rank, message), !message.step->deaths.empty());
    });
  }
  // Marks what the rank waits for where it stands. Messages that are queued later do not concern it.
  template <class Needed>
  void mark(Rank& rank, const Needed& needed) {
    bool any = false;
    for (Message& message : rank.messages) any |= message.awaited = needed(message);
    if (!any) return;
    self().attend(rank);
    settle(rank);
  }

  void drop(Rank& rank) {
    std::erase_if(rank.messages, [&](const Message& message) {
      const bool past = message.ended && self().past(rank, message);
      if (past) self().forget(message);
      return past;
    });
  }

  std::int64_t training_steps_;
};

}  // namespace orrery::plan
