/// Copies of activations, one run of layers at a time.
#include "cost/estimate/offload.h"

#include <algorithm>

#include "plan/lower/buckets.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

namespace {

using Kind = plan::Move::Kind;

bool is_pass(const plan::Move& move) {
  return move.kind == Kind::forward || move.kind == Kind::backward || move.kind == Kind::weights;
}

}  // namespace

std::shared_ptr<const StageMoves> patterns_of(const plan::PlanSpec& spec, std::int64_t micro_batches, MovesMemo& memo) {
  return memo.of(spec, std::min<std::int64_t>(micro_batches, 4 * static_cast<std::int64_t>(spec.mesh.pipeline)), 1);
}

std::int64_t staying_blocks(const plan::PlanSpec& spec, plan::StageId stage, int chunk, bool head,
                            std::int64_t micro_batches, MovesMemo& memo) {
  const std::shared_ptr<const StageMoves> moves = patterns_of(spec, micro_batches, memo);
  const plan::Move* before = nullptr;  // the latest pass
  for (const plan::Move& move : (*moves)[stage.index()]) {
    if (!is_pass(move)) continue;
    if (move.kind == Kind::backward && move.chunk == chunk) {
      const bool follows = before != nullptr && before->kind == Kind::forward && before->chunk == chunk &&
                           before->micro_batch == move.micro_batch;
      if (!follows) return 0;
    }
    before = &move;
  }
  return spec.offload.prefetch + (head ? 0 : 1);
}

std::int64_t most_in_flight(const plan::PlanSpec& spec, plan::StageId stage, int chunk, std::int64_t micro_batches,
                            MovesMemo& memo) {
  if (spec.stages.order == plan::Order::gpipe) return micro_batches;
  const std::shared_ptr<const StageMoves> moves = patterns_of(spec, micro_batches, memo);
  std::int64_t now = 0, most = 0;
  for (const plan::Move& move : (*moves)[stage.index()]) {
    if (move.chunk != chunk || (move.kind != Kind::forward && move.kind != Kind::backward)) continue;
    now += move.kind == Kind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

bool crosses(const LayerCosts& layer, LifeId index) {
  const Life& life = layer.lives[index];
  if (index == layer.x) {  // a head that selects rows from it does not bring it back
    const bool again = layer.recomputation == plan::Recompute::full && life.recompute.any();
    return again || life.backward.any() || life.weights.any();
  }
  if (layer.recomputation == plan::Recompute::full || life.dropped) return false;
  return life.forward.any() && (life.backward.any() || life.weights.any());
}

bool waits_for_weights(const LayerCosts& layer, LifeId index) {
  if (layer.kind != models::LayerKind::block || index == layer.y || !crosses(layer, index)) return false;
  const Life& life = layer.lives[index];
  const bool again = layer.recomputation == plan::Recompute::full && life.recompute.any();
  return life.weights.any() && !life.backward.any() && !again;
}

double saved_bytes(const LayerCosts& layer) {
  double sum = 0;
  for (const LifeId i : layer.lives.keys())
    if (i != layer.y && crosses(layer, i))
      sum += layer.lives[i].encoded > 0 ? layer.lives[i].encoded : layer.lives[i].bytes;
  return sum;
}

double leaving_bytes(const std::vector<LayerRun>& layers, std::int64_t staying) {
  double sum = 0;
  for (auto run = layers.rbegin(); run != layers.rend(); ++run) {
    if (run->costs->kind != models::LayerKind::block) continue;
    const std::int64_t stay = std::min(staying, run->count);
    staying -= stay;
    sum += static_cast<double>(run->count - stay) * saved_bytes(*run->costs);
  }
  return sum;
}

}  // namespace orrery::cost
