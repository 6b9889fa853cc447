/// The replay of interleaved stages, message by message.
#include <algorithm>
#include <deque>

#include "base/ensure.h"
#include "cost/pipeline.h"
#include "plan/orders.h"

namespace orrery::cost {

namespace {

using plan::Move;

struct Message {
  double sent = -1, wanted = -1;  ///< when sender and receiver are ready; negative: not yet
  double begin = 0, end = -1;
};

struct Rank {
  std::vector<Move> moves;
  std::size_t next = 0;
  double computed = 0;
  double send_free = 0, receive_free = 0;
  std::deque<std::size_t> sends, receives;  ///< messages under way, in order
  double transfer = 0;
};

class Replay {
 public:
  Replay(const InterleavedTimes& times, std::int64_t micro_batches)
      : times_(times),
        stages_(static_cast<int>(times.forward.size())),
        chunks_(static_cast<int>(times.forward.front().size())),
        micro_batches_(micro_batches),
        messages_(static_cast<std::size_t>(2 * stages_ * chunks_ * micro_batches)) {
    for (int s = 0; s < stages_; ++s)
      ranks_.push_back({plan::interleaved(s, stages_, chunks_, micro_batches), 0, 0, 0, 0, {}, {}, 0});
  }

  PipelineResult run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int s = 0; s < stages_; ++s)
        while (advance(s)) moved = true;
    }
    PipelineResult result;
    for (const Rank& rank : ranks_) {
      ENSURE(rank.next == rank.moves.size() && rank.sends.empty(), "an interleaved pipeline stopped at {} of {}",
             rank.next, rank.moves.size());
      result.end.push_back(std::max(rank.computed, rank.send_free));
      result.transfer.push_back(rank.transfer);
    }
    return result;
  }

 private:
  Rank& rank(int stage) { return ranks_[static_cast<std::size_t>(stage)]; }

  /// Messages are numbered by direction, virtual stage of the sender and micro-batch.
  std::size_t number(bool forward, int stage, int chunk, std::int32_t micro_batch) const {
    const int sender = chunk * stages_ + stage;
    return static_cast<std::size_t>(((forward ? 0 : stages_ * chunks_) + sender) * micro_batches_ + micro_batch);
  }
  /// What a pass of this chunk takes: sent by the virtual stage behind, or, backward, ahead.
  std::size_t taken(bool forward, int stage, int chunk, std::int32_t micro_batch) const {
    const int sender = chunk * stages_ + stage + (forward ? -1 : 1);
    return number(forward, sender % stages_, sender / stages_, micro_batch);
  }

  bool advance(int stage) {
    Rank& me = rank(stage);
    if (me.next == me.moves.size()) return settle(stage);
    const Move& move = me.moves[me.next];
    switch (move.kind) {
      case Move::Kind::send_activation:
      case Move::Kind::send_gradient: {
        const std::size_t id = number(move.kind == Move::Kind::send_activation, stage, move.chunk, move.micro_batch);
        messages_[id].sent = me.computed;
        me.sends.push_back(id);
        break;
      }
      case Move::Kind::receive_activation:
      case Move::Kind::receive_gradient: {
        const std::size_t id = taken(move.kind == Move::Kind::receive_activation, stage, move.chunk, move.micro_batch);
        messages_[id].wanted = me.computed;
        me.receives.push_back(id);
        break;
      }
      case Move::Kind::forward:
      case Move::Kind::backward:
        if (!compute(stage, move)) return false;
        break;
    }
    ++me.next;
    return true;
  }

  bool compute(int stage, const Move& move) {
    Rank& me = rank(stage);
    settle(stage);
    if (!me.sends.empty()) return false;
    const bool forward = move.kind == Move::Kind::forward;
    const int place = move.chunk * stages_ + stage;
    double start = std::max(me.computed, me.send_free);
    if (forward ? place > 0 : place + 1 < stages_ * chunks_) {
      const Message& message = messages_[taken(forward, stage, move.chunk, move.micro_batch)];
      if (message.end < 0) return false;
      start = std::max(start, message.end);
      me.transfer += std::min(message.end - message.begin, std::max(0.0, message.end - me.computed));
    }
    const auto& seconds = (forward ? times_.forward : times_.backward)[static_cast<std::size_t>(stage)];
    me.computed = start + seconds[static_cast<std::size_t>(move.chunk)];
    return true;
  }

  /// Ends the transfers of this stage's next sends whose receivers have come to them.
  bool settle(int stage) {
    Rank& me = rank(stage);
    bool moved = false;
    while (!me.sends.empty()) {
      const std::size_t id = me.sends.front();
      const bool forward = id < messages_.size() / 2;
      const int to = (stage + (forward ? 1 : stages_ - 1)) % stages_;
      Rank& other = rank(to);
      Message& message = messages_[id];
      if (other.receives.empty() || other.receives.front() != id) break;
      message.begin = std::max({message.sent, message.wanted, me.send_free, other.receive_free});
      message.end = message.begin + times_.hop[static_cast<std::size_t>(forward ? stage : to)];
      me.send_free = other.receive_free = message.end;
      me.sends.pop_front();
      other.receives.pop_front();
      moved = true;
    }
    return moved;
  }

  const InterleavedTimes& times_;
  int stages_, chunks_;
  std::int64_t micro_batches_;
  std::vector<Message> messages_;
  std::vector<Rank> ranks_;
};

}  // namespace

PipelineResult interleaved_pipeline(const InterleavedTimes& times, std::int64_t micro_batches) {
  const auto stages = static_cast<std::int64_t>(times.forward.size());
  ENSURE(stages >= 2 && times.hop.size() == times.forward.size(), "{} stages with {} hops", stages, times.hop.size());
  const std::int64_t filled = 4 * stages;  // by then one period of `stages` micro-batches is as the next
  if (micro_batches <= filled) return Replay(times, micro_batches).run();
  PipelineResult result = Replay(times, filled).run();
  const PipelineResult before = Replay(times, filled - stages).run();
  const double periods = static_cast<double>(micro_batches - filled) / static_cast<double>(stages);
  for (std::size_t s = 0; s < result.end.size(); ++s) {
    result.end[s] += periods * (result.end[s] - before.end[s]);
    result.transfer[s] += periods * (result.transfer[s] - before.transfer[s]);
  }
  return result;
}

}  // namespace orrery::cost
