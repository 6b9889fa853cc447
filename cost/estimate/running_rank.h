#pragma once
/// What a pipeline's run knows of each rank. Private to cost/estimate/.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/estimate/pass_effects.h"
#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_messages.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

/// Numbers of messages between stages, first in, first out; few at a time.
class MessageQueue {
 public:
  [[nodiscard]] bool empty() const { return first_ == all_.size(); }
  [[nodiscard]] std::size_t front() const { return all_[first_]; }
  [[nodiscard]] std::size_t back() const { return all_.back(); }
  void push_back(std::size_t message) {
    if (empty()) all_.clear(), first_ = 0;
    all_.push_back(message);
  }
  void pop_front() { ++first_; }
  [[nodiscard]] auto begin() const { return all_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] auto end() const { return all_.end(); }

 private:
  std::vector<std::size_t> all_;
  std::size_t first_ = 0;
};

/// A rank of a stage as it runs through its moves.
struct RunningRank {
  RunningRank(RankClock own, std::span<const plan::Move> all, int chunks)
      : moves(all),
        clock(std::move(own)),
        backward(static_cast<std::size_t>(chunks)),
        weights(backward),
        first(backward.size(), {true, true, true}) {
    for (const plan::Move& move : all)
      if (std::int64_t* left = left_of(move)) ++*left;
  }
  std::span<const plan::Move> moves;
  std::size_t next = 0;
  std::size_t step = 0;             ///< how much of the next pass has run
  bool stopped = false;             ///< what that step waits for has come
  std::size_t stops = 0;            ///< of two passes beside each other: how many have been passed
  std::size_t waits_for = kNobody;  ///< the message that has to come before anything moves
  bool attends = false;             ///< it has begun to wait for that message
  bool stuck = false;               ///< its clock was when no rank could go on
  RankClock clock;
  Ticks output = PassEffects::kNone;  ///< of its last pass, if that was made before its end
  Ticks send_free = 0, receive_free = 0;
  Ticks send_hop = 0;            ///< how long the last message that was sent travelled
  MessageQueue sends, receives;  ///< messages in flight, in order
  Ticks transfer = 0, late_forward = 0, late_backward = 0;
  std::vector<std::int64_t> backward, weights;  ///< by chunk: passes that are left
  std::vector<std::array<bool, 3>> first;       ///< by chunk and kind: none of its passes has run
  std::vector<Ticks> updates;                   ///< when it was ready for those so far
  std::optional<Ticks> updated;                 ///< the end of the last one, if its gathers are not waited for yet

  /// When what a pass has made so far is there. It may be the result of a message, which may not be there yet.
  [[nodiscard]] std::optional<Ticks> made() {
    Ticks there = clock.state.device;
    for (const plan::Stream stream : {plan::Stream::tensor, plan::Stream::exchange}) {
      const std::optional<Ticks> end = clock.finished(stream);
      if (!end) return std::nullopt;
      there = std::max(there, *end);
    }
    return there;
  }
  /// The number of passes of this kind and chunk that are left, if they add to gradients; else null.
  [[nodiscard]] std::int64_t* left_of(const plan::Move& move) {
    const auto chunk = static_cast<std::size_t>(move.chunk);
    return move.kind == plan::Move::Kind::backward  ? &backward[chunk]
           : move.kind == plan::Move::Kind::weights ? &weights[chunk]
                                                    : nullptr;
  }
  [[nodiscard]] bool& first_of(const plan::Move& move) {
    const std::size_t kind = move.kind == plan::Move::Kind::forward    ? 0
                             : move.kind == plan::Move::Kind::backward ? 1
                                                                       : 2;
    return first[static_cast<std::size_t>(move.chunk)][kind];
  }
};

/// The ranks of a run, one a stage, and the messages between them.
struct RunningPipeline {
  std::vector<RunningRank> ranks;
  StageMessages messages;
  bool settled = false;  ///< a transfer has completed since this was last cleared

  [[nodiscard]] RunningRank& rank(int stage) { return ranks[static_cast<std::size_t>(stage)]; }
  /// A waiting rank receives all messages that are sent to it.
  void attend(RunningRank& me, Ticks from) {
    for (const std::size_t id : me.receives)
      if (messages[id].wanted < 0) messages[id].wanted = from, settled = true;
  }
  /// Completes the transfers of this stage's next sends if their receivers are ready; false: of none.
  bool settle(int stage);
};

}  // namespace orrery::cost
