// Messages between stages: to whom they go, and their tags.
#include "plan/lower/stage_messages.h"

#include "plan/lower/buckets.h"

namespace orrery::plan {

namespace {

// Equal where the two ends of a message name the same chunk, its sender's, and the same direction.
int message_tag(int senders_chunk, Phase phase) {
  constexpr int kForwardTag = 0, kBackwardTag = 1;
  return 2 * senders_chunk + (phase == Phase::forward ? kForwardTag : kBackwardTag);
}

}  // namespace

BufferId StageMessages::buffer(const std::string& name) {
  const PlanSpec& spec = plan_.spec();
  const std::int64_t rows = spec.shape.micro_batch * spec.tokens_per_rank();
  const std::int64_t own = spec.mesh.shards_rows() ? rows / spec.mesh.tensor : rows;
  return build_.buffer(name, Purpose::activations, expand_options(spec).dtype, own * plan_.model().carried());
}

void StageMessages::send(BufferId buffer, Phase phase, int chunk) {
  build_.send(phase, to_neighbour(phase == Phase::forward, chunk), message_tag(chunk, phase), buffer);
}

void StageMessages::receive(BufferId buffer, Phase phase, int chunk) {
  const bool forward = phase == Phase::forward;
  const int sender = plan_.spec().place_of(stage_, chunk) + (forward ? -1 : 1);
  build_.receive(phase, to_neighbour(!forward, chunk), message_tag(sender / plan_.spec().mesh.pipeline, phase), buffer);
}

int StageMessages::to_neighbour(bool ahead, int chunk) const {
  const PlanSpec& spec = plan_.spec();
  return spec.stage_at(spec.place_of(stage_, chunk) + (ahead ? 1 : -1)).number() - stage_.number();
}

}  // namespace orrery::plan
