#pragma once
/// The messages between the stages of a pipeline's run: their numbers, their ways, and which pass sends, reads or waits
/// for which. Private to cost/estimate/.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cost/estimate/pipeline.h"
#include "cost/estimate/rank_clock.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

/// A message between two stages.
struct StageMessage {
  Ticks sent = -1, wanted = -1;  ///< when sender and receiver are ready; negative: not yet
  Ticks begin = 0, end = -1;
  int to = -1;    ///< the stage that takes it
  Ticks hop = 0;  ///< how long it travels
};

inline constexpr std::size_t kNobody = ~std::size_t{0};

class StageMessages {
 public:
  /// `micro_batches`: of the whole run.
  StageMessages(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches);

  [[nodiscard]] StageMessage& operator[](std::size_t number) { return messages_[number]; }
  [[nodiscard]] const StageMessage& operator[](std::size_t number) const { return messages_[number]; }
  [[nodiscard]] std::size_t number_of(const StageMessage& message) const {
    return static_cast<std::size_t>(&message - messages_.data());
  }

  /// The message that a pass of this chunk, or a move that sends its result, sends in this direction.
  [[nodiscard]] std::size_t sent(bool forward, int stage, const plan::Move& move) const {
    return number(forward, chunk_of(stage, move).place, move.micro_batch);
  }
  /// The message that a pass of this chunk takes: from the previous virtual stage, or, in backward, from the next.
  [[nodiscard]] std::size_t taken(bool forward, int stage, const plan::Move& move) const {
    return number(forward, chunk_of(stage, move).place + (forward ? -1 : 1), move.micro_batch);
  }
  /// The message that a pass reads; null: none.
  [[nodiscard]] const StageMessage* input_of(int stage, const plan::Move& move) const;
  /// The stage whose message a pass reads.
  [[nodiscard]] int sender_to(int stage, const plan::Move& move) const {
    return to_[move.kind != plan::Move::Kind::forward][static_cast<std::size_t>(chunk_of(stage, move).place)];
  }
  /// The message whose memory this pass frees or takes; kNobody: none.
  [[nodiscard]] std::size_t holder(int stage, plan::Move move) const;
  /// Says where the message that this move sends goes, and how long it takes.
  void route(int stage, const plan::Move& move);

 private:
  /// What of a rank's chunk the plan says.
  struct PlacedChunk {
    int place = 0;
    std::array<bool, 2> sends = {}, receives = {};  ///< backward, forward
  };

  [[nodiscard]] const PlacedChunk& chunk_of(int stage, const plan::Move& move) const {
    return chunks_[static_cast<std::size_t>(stage * spec_.stages.virtual_stages + move.chunk)];
  }
  /// Messages are numbered by direction, virtual stage of the sender and micro-batch.
  [[nodiscard]] std::size_t number(bool forward, int place, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(
        ((forward ? 0 : spec_.mesh.pipeline * spec_.stages.virtual_stages) + place) * micro_batches_ + micro_batch);
  }

  const plan::PlanSpec& spec_;
  std::int64_t micro_batches_;
  std::vector<StageMessage> messages_;
  std::vector<Ticks> hops_;
  std::vector<PlacedChunk> chunks_;          ///< by stage
  std::array<std::vector<int>, 2> to_ = {};  ///< by direction and place: the stage that takes its message; -1: none
};

}  // namespace orrery::cost
