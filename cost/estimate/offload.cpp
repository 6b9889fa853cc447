/// Copies of activations, one run of layers at a time.
#include "cost/estimate/offload.h"

#include <algorithm>

#include "plan/lower/buckets.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

namespace {

using Kind = plan::Move::Kind;

/// Passes of one stage in order, without messages; enough micro-batches for every pattern to appear.
std::vector<plan::Move> passes_of(const plan::PlanSpec& spec, plan::StageId stage, std::int64_t micro_batches) {
  const std::int64_t few = std::min<std::int64_t>(micro_batches, 4 * static_cast<std::int64_t>(spec.mesh.pipeline));
  std::vector<plan::Move> out;
  if (spec.stages.virtual_stages == 1 && !spec.stages.splits_backward()) {
    for (const plan::Turn& turn : plan::turns(spec.stages.order, stage.number(), spec.mesh.pipeline, few))
      out.push_back({turn.forward ? Kind::forward : Kind::backward, turn.micro_batch, 0});
    return out;
  }
  const std::vector<plan::Move> moves =
      spec.stages.splits_backward()
          ? plan::moves_of(spec, few)[stage.index()]
          : plan::interleaved(stage.number(), spec.mesh.pipeline, spec.stages.virtual_stages, few);
  for (const plan::Move& move : moves)
    if (move.kind == Kind::forward || move.kind == Kind::backward || move.kind == Kind::weights) out.push_back(move);
  return out;
}

}  // namespace

std::int64_t staying_blocks(const plan::PlanSpec& spec, plan::StageId stage, int chunk, bool head,
                            std::int64_t micro_batches) {
  const std::vector<plan::Move> passes = passes_of(spec, stage, micro_batches);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].kind != Kind::backward || passes[i].chunk != chunk) continue;
    const bool follows = i > 0 && passes[i - 1].kind == Kind::forward && passes[i - 1].chunk == chunk &&
                         passes[i - 1].micro_batch == passes[i].micro_batch;
    if (!follows) return 0;
  }
  return spec.offload.prefetch + (head ? 0 : 1);
}

std::int64_t most_in_flight(const plan::PlanSpec& spec, plan::StageId stage, int chunk, std::int64_t micro_batches) {
  if (spec.stages.order == plan::Order::gpipe) return micro_batches;
  std::int64_t now = 0, most = 0;
  for (const plan::Move& pass : passes_of(spec, stage, micro_batches)) {
    if (pass.chunk != chunk || pass.kind == Kind::weights) continue;
    now += pass.kind == Kind::forward ? 1 : -1;
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

namespace {

std::int64_t padded(std::int64_t elements, int shards) {
  const std::int64_t unit = shards * plan::kParameterAlignment;
  return (elements + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t padded_elements(const LayerCosts& layer, LayerBucket bucket, const plan::PlanSpec& spec) {
  return padded(layer.in(bucket).elements, spec.shards_of(bucket == LayerBucket::experts));
}

}  // namespace orrery::cost
