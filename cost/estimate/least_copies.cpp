/// Counts the bytes that layers copy, and prices them.
#include "cost/estimate/least_copies.h"

#include <algorithm>

#include "cost/estimate/offload.h"
#include "plan/lower/buckets.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

namespace {

/// Bytes that the passes over a layer copy at least, for one micro-batch.
struct LayerCopies {
  double saved = 0, back = 0;        ///< activations that leave in forward and come back in backward
  double forward = 0, backward = 0;  ///< parameters that come for either
  double added = 0;                  ///< gradients that leave in backward for a sum on the host
};

LayerCopies copies_of(const LayerCosts& layer, const plan::PlanSpec& spec) {
  LayerCopies out;
  for (const LifeId i : layer.lives.keys()) {
    if (spec.offload.activations == plan::Space::device || i == layer.y || !crosses(layer, i)) continue;
    const Life& life = layer.lives[i];
    // An arena rounds sizes up, a copy does not.
    const double bytes = (life.encoded > 0 ? life.encoded : life.bytes) - static_cast<double>(plan::kAlignment);
    out.saved += std::max(0.0, bytes);
    if (!waits_for_weights(layer, i)) out.back += std::max(0.0, bytes);
  }
  const bool shards = zero_of(spec) == 3, sums = zero_of(spec) >= 2;
  const Pass none;
  const Pass& again = layer.recomputation == plan::Recompute::full ? layer.recompute : none;
  const auto bytes = [](std::int64_t count, models::DType dtype) {
    return static_cast<double>(count * models::size_of(dtype));
  };
  for (const LayerBucket bucket : {LayerBucket::own, LayerBucket::experts}) {
    const std::int64_t elements = layer.in(bucket).elements;
    const std::int64_t part = elements / spec.shards_of(bucket == LayerBucket::experts);
    const auto read = [&](const ParametersRead& by) {
      const std::int64_t count = !by.any() ? 0 : shards ? part : by.several() ? elements : by.elements;
      return bytes(count, plan::expand_options(spec).dtype);
    };
    if (spec.offload.parameters != plan::Space::device) {
      out.forward += read(read_by({&layer.forward}, bucket));
      out.backward += read(read_by({&again, &layer.backward}, bucket));
    }
    if (spec.offload.optimizer != plan::Space::device)
      out.added += bytes(sums ? part : elements, plan::gradient_dtype(spec.numerics.precision));
  }
  return out;
}

/// Bytes that are fetched for the layers of a pass.
struct Fetched {
  double all = 0, later = 0;  ///< later: those that are fetched after the pass's first operator began
  double blocks_at_once = 0;  ///< how many more blocks may be fetched before it
  void add(double bytes, double count, bool block) {
    all += count * bytes;
    if (!block) return;  // an end of the model may be the first to run
    const double at_once = std::min(count, blocks_at_once);
    blocks_at_once -= at_once;
    later += (count - at_once) * bytes;
  }
};

}  // namespace

std::vector<StageProgram::Copies> least_copies(const plan::Plan& plan, plan::StageId stage,
                                               const std::vector<std::vector<LayerRun>>& chunks, const Lockstep& prices,
                                               MovesMemo& moves) {
  const plan::PlanSpec& spec = plan.spec();
  std::vector<StageProgram::Copies> out;
  const bool leaves = spec.offload.activations == plan::Space::host;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const bool head = chunks[c].back().costs->kind == models::LayerKind::head;
    std::int64_t staying =
        leaves ? staying_blocks(spec, stage, static_cast<int>(c), head, plan.micro_batches(), moves) : 0;
    // Parameters that are gathered are fetched one layer earlier.
    const double at_once = spec.offload.prefetch + 1 + (zero_of(spec) == 3 ? 1 : 0);
    double saved = 0, added = 0;
    Fetched backward{.blocks_at_once = at_once}, forward{.blocks_at_once = at_once};
    for (auto run = chunks[c].rbegin(); run != chunks[c].rend(); ++run) {
      const bool block = run->costs->kind == models::LayerKind::block;
      const std::int64_t stay = block ? std::min(staying, run->count) : 0;
      staying -= stay;
      const LayerCopies one = copies_of(*run->costs, spec);
      const auto count = static_cast<double>(run->count), stays = static_cast<double>(stay),
                 leave = leaves && block ? count - stays : 0;
      saved += leave * one.saved, added += count * one.added;
      backward.add(one.backward, count - leave, block);
      backward.add(one.backward + one.back, leave, block);
    }
    for (const LayerRun& run : chunks[c])
      forward.add(copies_of(*run.costs, spec).forward, static_cast<double>(run.count),
                  run.costs->kind == models::LayerKind::block);
    const auto seconds = [&](plan::Stream stream, double bytes, bool adds = false) {
      return bytes > 0 ? prices.copy_time(stream, base::Bytes{bytes}, adds).value : 0;
    };
    using enum plan::Stream;
    out.push_back({std::max(seconds(to_host, saved), seconds(from_host, forward.later)),
                   std::max(seconds(to_host, added, true), seconds(from_host, backward.later)),
                   seconds(from_host, forward.all + backward.all), seconds(from_host, forward.all)});
  }
  return out;
}

}  // namespace orrery::cost
