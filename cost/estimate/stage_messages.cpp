// Numbers and ways of messages between stages.
#include "cost/estimate/stage_messages.h"

#include <algorithm>

namespace orrery::cost {

using Kind = plan::Move::Kind;

StageMessages::StageMessages(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches)
    : spec_(spec),
      micro_batches_(micro_batches),
      messages_(static_cast<std::size_t>(2 * spec.mesh.pipeline * spec.stages.virtual_stages * micro_batches)) {
  for (const double hop : times.hop) hops_.push_back(ticks(hop));
  for (const plan::StageId stage : spec.mesh.stages())
    for (int c = 0; c < spec.stages.virtual_stages; ++c) {
      PlacedChunk& chunk = chunks_.emplace_back();
      chunk.place = spec.place_of(stage, c);
      for (const bool forward : {false, true}) {
        chunk.sends[forward] = spec.sends(stage, c, forward);
        chunk.receives[forward] = spec.receives(stage, c, forward);
      }
    }
  const int last = static_cast<int>(chunks_.size()) - 1;
  for (int place = 0; place <= last; ++place) to_[0].push_back(place > 0 ? spec.stage_at(place - 1).number() : -1);
  for (int place = 0; place <= last; ++place) to_[1].push_back(place < last ? spec.stage_at(place + 1).number() : -1);
}

const StageMessage* StageMessages::input_of(int stage, const plan::Move& move) const {
  const bool forward = move.kind == Kind::forward;
  if (move.kind == Kind::weights || !chunk_of(stage, move).receives[forward]) return nullptr;
  return &messages_[taken(forward, stage, move)];
}

std::size_t StageMessages::holder(int stage, plan::Move move) const {
  if (spec_.stages.asynchronous()) {  // a pass writes what the one before it has sent
    const bool forward = move.kind == Kind::forward;
    if (--move.micro_batch < 0 || !chunk_of(stage, move).sends[forward]) return kNobody;
    return sent(forward, stage, move);
  }
  const bool forward = move.kind == Kind::backward;  // it frees the activations that were sent
  if (move.kind == Kind::forward || !chunk_of(stage, move).sends[forward]) return kNobody;
  return sent(forward, stage, move);
}

void StageMessages::route(int stage, const plan::Move& move) {
  const bool forward = move.kind == Kind::send_activation;
  StageMessage& message = messages_[sent(forward, stage, move)];
  message.to = to_[forward][static_cast<std::size_t>(chunk_of(stage, move).place)];
  const int hop = spec_.stages.splits_backward() ? std::min(stage, message.to) : forward ? stage : message.to;
  message.hop = hops_[static_cast<std::size_t>(hop)];
}

}  // namespace orrery::cost
