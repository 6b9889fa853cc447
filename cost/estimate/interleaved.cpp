/// Replays interleaved stages and zero-bubble orders, message by message.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/pipeline.h"
#include "plan/schedule/orders.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

namespace {

using plan::Move;

struct MoveMessage {
  double sent = -1, wanted = -1;  ///< when sender and receiver are ready; negative: not yet
  double begin = 0, end = -1;
};

struct Rank {
  std::vector<Move> moves;
  std::size_t next = 0;
  double computed = 0, busy = 0;
  double send_free = 0, receive_free = 0;
  std::deque<std::size_t> sends, receives;  ///< messages in flight, in order
  double transfer = 0;
  double issued = 0;  ///< time up to which the host has issued
  double late_forward = 0, late_backward = 0;
};

class MovesReplay {
 public:
  /// `spec`: order, stages and chunks.
  MovesReplay(const InterleavedTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches)
      : times_(times),
        spec_(spec),
        micro_batches_(micro_batches),
        messages_(static_cast<std::size_t>(2 * spec.pipeline * spec.virtual_stages * micro_batches)) {
    for (std::vector<Move>& moves : plan::moves_of(spec, micro_batches)) {
      Rank rank;
      rank.moves = std::move(moves);
      if (!times.begin.empty()) rank.computed = times.begin[ranks_.size()];
      ranks_.push_back(std::move(rank));
    }
  }

  PipelineResult run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int s = 0; s < spec_.pipeline; ++s)
        while (advance(s)) moved = true;
      moved |= std::exchange(settled_, false);
    }
    PipelineResult result;
    for (const Rank& rank : ranks_) {
      ENSURE(rank.next == rank.moves.size() && rank.sends.empty(), "a pipeline stopped at {} of {}", rank.next,
             rank.moves.size());
      result.end.push_back(std::max(rank.busy, rank.send_free));
      result.transfer.push_back(rank.transfer);
      result.late_forward.push_back(rank.late_forward);
      result.late_backward.push_back(rank.late_backward);
    }
    return result;
  }

 private:
  Rank& rank(int stage) { return ranks_[static_cast<std::size_t>(stage)]; }

  /// Messages are numbered by direction, virtual stage of the sender and micro-batch.
  std::size_t number(bool forward, int place, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(((forward ? 0 : spec_.pipeline * spec_.virtual_stages) + place) * micro_batches_ +
                                    micro_batch);
  }
  std::size_t sent(bool forward, int stage, const Move& move) const {
    return number(forward, spec_.place_of(stage, move.chunk), move.micro_batch);
  }
  /// The message that a pass of this chunk takes: from the previous virtual stage, or, in backward, from the next.
  std::size_t taken(bool forward, int stage, const Move& move) const {
    return number(forward, spec_.place_of(stage, move.chunk) + (forward ? -1 : 1), move.micro_batch);
  }

  bool advance(int stage) {
    Rank& me = rank(stage);
    if (me.next == me.moves.size()) return settle(stage);
    const Move& move = me.moves[me.next];
    switch (move.kind) {
      case Move::Kind::send_activation:
      case Move::Kind::send_gradient: {
        const std::size_t id = sent(move.kind == Move::Kind::send_activation, stage, move);
        messages_[id].sent = me.computed;
        me.sends.push_back(id);
        break;
      }
      case Move::Kind::receive_activation:
      case Move::Kind::receive_gradient: {
        const std::size_t id = taken(move.kind == Move::Kind::receive_activation, stage, move);
        if (times_.overlaps) messages_[id].wanted = me.computed;
        me.receives.push_back(id);
        break;
      }
      case Move::Kind::forward:
      case Move::Kind::backward:
      case Move::Kind::weights:
        if (!compute(stage, move)) return false;
        break;
    }
    ++me.next;
    return true;
  }

  /// When the messages whose buffers this pass frees, or must not overtake, were received; nothing if not known yet.
  std::optional<double> freed(int stage, const Move& move) {
    const Rank& me = rank(stage);
    if (!spec_.splits_backward()) {
      if (!me.sends.empty()) return std::nullopt;
      return me.send_free;
    }
    const bool forward = move.kind == Move::Kind::backward;  // it frees the activations that were sent
    if (move.kind == Move::Kind::forward || !spec_.sends(stage, move.chunk, forward)) return 0;
    const MoveMessage& message = messages_[sent(forward, stage, move)];
    if (message.end < 0) return std::nullopt;
    return message.end;
  }

  template <class What>
  static const What& at(const std::vector<std::vector<What>>& seconds, int stage, const Move& move) {
    return seconds[static_cast<std::size_t>(stage)][static_cast<std::size_t>(move.chunk)];
  }
  /// A waiting rank receives all messages that are sent to it.
  bool attend(Rank& me) {
    for (const std::size_t id : me.receives)
      if (messages_[id].wanted < 0) messages_[id].wanted = me.computed, settled_ = true;
    return false;
  }

  bool compute(int stage, const Move& move) {
    Rank& me = rank(stage);
    settle(stage);
    const std::optional<double> free = freed(stage, move);
    if (!free) return attend(me);
    const bool forward = move.kind == Move::Kind::forward, weights = move.kind == Move::Kind::weights;
    const auto& aheads = forward ? times_.ahead_forward : times_.ahead_backward;
    const double ahead = weights || aheads.empty() ? 0 : at(aheads, stage, move);
    const auto& tails = forward ? times_.tail_forward : times_.tail_backward;
    const double tail = weights || tails.empty() ? 0 : at(tails, stage, move);
    double start = std::max(me.computed + ahead, me.busy), arrived = -1;
    if (!weights) start = std::max(start, *free);
    if (!weights && spec_.receives(stage, move.chunk, forward)) {
      const MoveMessage& message = messages_[taken(forward, stage, move)];
      if (message.end < 0) return attend(me);
      const double prelude =
          forward || !spec_.splits_backward() || times_.prelude.empty() ? 0 : at(times_.prelude, stage, move);
      arrived = message.end;
      start = std::max(start, message.end - prelude);
      me.transfer += std::min(message.end - message.begin, std::max(0.0, message.end - me.computed));
    }
    const bool last = !times_.last.empty() && move.micro_batch + 1 == micro_batches_ && !forward &&
                      weights == spec_.splits_backward();
    const double seconds = at(forward   ? times_.forward
                              : weights ? times_.weights
                                        : times_.backward,
                              stage, move) -
                           ahead - tail + (last ? at(times_.last, stage, move) : 0);
    const auto& issue = forward ? times_.forward_issue : weights ? times_.weights_issue : times_.backward_issue;
    me.computed =
        issue.empty() ? start + seconds : issued_end(at(issue, stage, move), start, seconds, arrived, me.issued);
    (forward ? me.late_forward : me.late_backward) += me.computed - start - seconds;
    if (weights) me.computed = std::max(me.computed, *free);  // its last product frees the buffer
    me.busy = me.computed + tail;
    return true;
  }

  /// Completes the transfers of this stage's next sends if their receivers are ready.
  bool settle(int stage) {
    Rank& me = rank(stage);
    bool moved = false;
    while (!me.sends.empty()) {
      const std::size_t id = me.sends.front();
      const bool forward = id < messages_.size() / 2;
      const auto place =
          static_cast<int>(static_cast<std::int64_t>(id) / micro_batches_) % (spec_.pipeline * spec_.virtual_stages);
      const int to = spec_.stage_at(place + (forward ? 1 : -1));
      Rank& other = rank(to);
      MoveMessage& message = messages_[id];
      if (other.receives.empty() || other.receives.front() != id || message.wanted < 0) break;
      message.begin = std::max({message.sent, message.wanted, me.send_free, other.receive_free});
      message.end = message.begin + times_.hop[static_cast<std::size_t>(spec_.splits_backward() ? std::min(stage, to)
                                                                        : forward               ? stage
                                                                                                : to)];
      me.send_free = other.receive_free = message.end;
      me.sends.pop_front();
      other.receives.pop_front();
      moved = settled_ = true;
    }
    return moved;
  }

  const InterleavedTimes& times_;
  plan::PlanSpec spec_;
  std::int64_t micro_batches_;
  std::vector<MoveMessage> messages_;
  std::vector<Rank> ranks_;
  bool settled_ = false;  ///< a transfer has completed since the last round
};

/// Extrapolates from few micro-batches: once the pipeline is full, each further `stages` of them take equally long.
PipelineResult replayed(const InterleavedTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches) {
  const std::int64_t stages = spec.pipeline;
  ENSURE(stages >= 2 && times.hop.size() == times.forward.size(), "{} stages with {} hops", stages, times.hop.size());
  const std::int64_t filled = (spec.splits_backward() ? 6 : 4) * stages;
  if (micro_batches <= filled || spec.order == plan::Order::custom)
    return MovesReplay(times, spec, micro_batches).run();
  PipelineResult result = MovesReplay(times, spec, filled).run();
  const PipelineResult before = MovesReplay(times, spec, filled - stages).run();
  const double periods = static_cast<double>(micro_batches - filled) / static_cast<double>(stages);
  for (std::size_t s = 0; s < result.end.size(); ++s) {
    result.end[s] += periods * (result.end[s] - before.end[s]);
    result.transfer[s] += periods * (result.transfer[s] - before.transfer[s]);
    result.late_forward[s] += periods * (result.late_forward[s] - before.late_forward[s]);
    result.late_backward[s] += periods * (result.late_backward[s] - before.late_backward[s]);
  }
  return result;
}

plan::PlanSpec shape(const InterleavedTimes& times, plan::Order order) {
  plan::PlanSpec spec;
  spec.order = order;
  spec.pipeline = static_cast<int>(times.forward.size());
  spec.virtual_stages = static_cast<int>(times.forward.front().size());
  return spec;
}

}  // namespace

PipelineResult moves_pipeline(const InterleavedTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches) {
  return replayed(times, spec, micro_batches);
}

PipelineResult interleaved_pipeline(const InterleavedTimes& times, std::int64_t micro_batches) {
  return replayed(times, shape(times, plan::Order::one_f_one_b), micro_batches);
}

PipelineResult zero_bubble_pipeline(const InterleavedTimes& times, plan::Order order, std::int64_t micro_batches) {
  return replayed(times, shape(times, order), micro_batches);
}

}  // namespace orrery::cost
