/// Memory of a stage: states that last, slabs between passes, and scratch memory within them.
#include "cost/estimate/memory.h"

#include <algorithm>
#include <limits>

#include "cost/estimate/fold.h"
#include "cost/estimate/framework_memory.h"
#include "cost/estimate/lowered_end.h"
#include "cost/estimate/offload.h"
#include "cost/estimate/pass_lives.h"
#include "cost/estimate/slabs.h"
#include "cost/estimate/split_slabs.h"
#include "plan/lower/buckets.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"
#include "plan/spec/expert_loads.h"

namespace orrery::cost {

namespace {

/// A pipeline that never drains keeps p - s micro-batches, one more received input and one gradient, a buffer for each
/// message that it sends, and versions of its weights.
void add_asynchronous(StageMemory& m, double saved, double boundary, const plan::PlanSpec& spec, plan::StageId stage) {
  const bool first = stage == plan::kFirstStage, last = stage == spec.mesh.last_stage();
  m.activations = saved * (spec.mesh.pipeline - stage.number()) + (first ? 0 : boundary) + (last ? 0 : boundary);
  m.communication += (first ? 0 : boundary) + (last ? 0 : boundary);
  m.parameters *= 1 + plan::weight_delay(spec, stage);
}

/// A parameter server's worker keeps versions of weights and of gradients in flight and, for its shard of the server,
/// what the workers have sent; also one coefficient per worker, and losses.
void add_server(StageMemory& m, const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  m.parameters *= 1 + *spec.states.staleness;
  for (const BucketSize& b : buckets)
    m.communication +=
        static_cast<double>(b.count) * arena_bytes(b.elements, plan::gradient_dtype(spec.numerics.precision));
  m.gradients *= std::max(1, *spec.states.staleness);
  m.input +=
      arena_bytes(spec.mesh.data, models::DType::fp32) + static_cast<double>(*spec.states.staleness * plan::kAlignment);
}

/// Bytes of a value of a block's weight as products in fewer bits read it; 0: they read 16 bits. nvfp4 has a scale of
/// 8 bits for each 16 values.
double rounded_size(const plan::PlanSpec& spec) {
  constexpr double kFour = 0.5 + 1.0 / 16;
  const models::DType precision = spec.numerics.precision;
  return precision == models::DType::fp8 ? 1 : precision == models::DType::fp4 ? kFour : 0;
}

/// What a framework's copies of blocks' weights in fewer bits add to the 16-bit ones, or save. Primary ones are of 8
/// bits; gathered shards (ZeRO 3) are one copy, and none stays beside them.
double rounded_weight_bytes(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec,
                            const MemoryRecipe& recipe) {
  const double size = rounded_size(spec);
  const bool gathered = plan::zero_of(spec) == 3;
  const bool instead =
      recipe.rounded_weights == RoundedWeights::instead && spec.numerics.precision == models::DType::fp8;
  if (size == 0 || recipe.rounded_weights == RoundedWeights::none || (gathered && !instead)) return 0;
  double elements = 0;
  for (const LayerRun& run : layers) {
    if (run.costs->kind != models::LayerKind::block) continue;
    for (const LayerBucket of : {LayerBucket::own, LayerBucket::experts}) {
      const int shards = gathered ? spec.shards_of(of == LayerBucket::experts) : 1;
      elements += static_cast<double>(run.count * (run.costs->in(of).elements + run.costs->in(of).frozen)) / shards;
    }
  }
  const double copies = gathered || recipe.one_rounded_copy ? 1 : 2;
  const double plain = instead ? static_cast<double>(models::size_of(plan::expand_options(spec).dtype)) : 0;
  return elements * (copies * size - plain);
}

/// Parameters, gradients and states on the device.
void add_states(StageMemory& m, Elements& elements, const std::vector<LayerRun>& layers,
                const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec, const MemoryRecipe& recipe,
                bool one_copy) {
  const int zero = plan::zero_of(spec);
  const models::DType compute = plan::expand_options(spec).dtype,
                      gradient = one_copy ? compute : plan::gradient_dtype(spec.numerics.precision);
  const double summed = gradient == models::DType::fp32 && compute != gradient
                            ? recipe.gradient_bytes / static_cast<double>(models::size_of(gradient))
                            : 1;
  for (const BucketSize& b : buckets) {
    const auto count = static_cast<double>(b.count);
    const bool of_master = recipe.gathers_masters && zero == 3 && compute != models::DType::fp32 && !one_copy;
    if (spec.offload.parameters == plan::Space::device && !of_master)
      m.parameters += count * arena_bytes(zero == 3 ? b.shard : b.elements, compute);
    if (spec.offload.optimizer == plan::Space::device) {
      m.gradients += count * arena_bytes(zero >= 2 ? b.shard : b.elements, gradient) * summed;
      m.optimizer_states += count * state_bytes(b, spec, recipe.moment_bytes);
      if (one_copy) {
        const plan::Slot master = plan::state_of(plan::Memory::master, b, spec);
        m.optimizer_states -= count * arena_bytes(master.elements, master.dtype);
      }
    }
    elements.all += count * static_cast<double>(b.elements);
    elements.optimized += count * static_cast<double>(optimized_of(b, spec));
  }
  for (const BucketSize& b : frozen_buckets_of(layers, spec))
    m.parameters += static_cast<double>(b.count) * arena_bytes(zero == 3 ? b.shard : b.elements, compute);
  if (spec.offload.parameters == plan::Space::device) m.parameters += rounded_weight_bytes(layers, spec, recipe);
  m.optimizer_states += factor_bytes(buckets, spec);
  for (const LayerRun& run : layers) {
    const bool block = run.costs->kind == models::LayerKind::block;
    const std::int64_t table =
        std::max(run.costs->in(LayerBucket::shared).elements, block ? 0 : run.costs->in(LayerBucket::own).elements);
    elements.largest = std::max(elements.largest, static_cast<double>(table));
  }
}

/// What a chunk's head keeps for its own backward pass alone.
double freed_with_head(const std::vector<LayerRun>& chunk) {
  const LayerCosts& top = *chunk.back().costs;
  double sum = 0;
  for (const LifeId i : top.lives.keys())
    if (leaves_with_head(top, i)) sum += top.lives[i].encoded > 0 ? top.lives[i].encoded : top.lives[i].bytes;
  return sum;
}

/// Whether a framework has freed what the head kept when blocks run backward: one micro-batch is in flight there, and
/// nothing waits for another half of the pass or is elsewhere.
bool frees_head(const plan::PlanSpec& spec, const MemoryRecipe& recipe, plan::StageId stage,
                std::int64_t micro_batches) {
  const plan::Stages& stages = spec.stages;
  const bool whole = stages.virtual_stages == 1 && !stages.splits_backward() && !stages.asynchronous();
  return recipe.stated && whole && spec.offload.activations == plan::Space::device &&
         plan::in_flight(stages.order, stage.number(), spec.mesh.pipeline, micro_batches) == 1;
}

/// What a chunk keeps on the device for one micro-batch.
ChunkSlab slab_of(const std::vector<LayerRun>& chunk, const plan::PlanSpec& spec, const ChunkPlace& place,
                  std::int64_t on_host) {
  ChunkSlab slab;
  std::int64_t blocks = 0;
  for (const LayerRun& run : chunk) {
    slab.kept += static_cast<double>(run.count) * saved_bytes(*run.costs);
    if (run.costs->kind == models::LayerKind::block) blocks += run.count;
  }
  const LayerCosts& first = *chunk.front().costs;
  if (place.frees_head) slab.kept -= freed_with_head(chunk);
  if (on_host > 0) slab.kept -= leaving_bytes(chunk, std::max<std::int64_t>(0, blocks - on_host));
  if (spec.offload.activations == plan::Space::host) {
    slab.kept -= leaving_bytes(chunk, place.staying);
    slab.x_leaves = first.kind == models::LayerKind::block && blocks > place.staying;
  }
  if (!first.x || !spec.receives(place.stage, place.chunk, true)) return slab;
  const Life& x = first.lives[first.x];
  if (slab.x_leaves || !crosses(first, first.x)) return slab;
  slab.kept -= x.encoded > 0 ? x.encoded : x.bytes;
  slab.received = x.bytes;  // not encoded
  return slab;
}

/// What a framework keeps of messages: per micro-batch what it received, as a copy, and what it sent.
double kept_messages(const plan::PlanSpec& spec, const ChunkPlace& place, double boundary) {
  return (spec.receives(place.stage, place.chunk, true) ? boundary : 0) +
         (spec.sends(place.stage, place.chunk, true) ? boundary : 0);
}

double boundary_of(const std::vector<LayerRun>& layers) {
  double boundary = 0;
  for (const LayerRun& run : layers)
    if (const LifeId end = run.costs->x ? run.costs->x : run.costs->y) boundary = run.costs->lives[end].bytes;
  return boundary;
}

/// Micro-batches whose activations a framework keeps at a time.
std::int64_t micro_batches_in_flight(const plan::PlanSpec& spec, plan::StageId stage, std::int64_t micro_batches) {
  return spec.stages.splits_backward() || spec.stages.asynchronous() || spec.stages.virtual_stages > 1
             ? std::int64_t{spec.mesh.pipeline}
             : plan::in_flight(spec.stages.order, stage.number(), spec.mesh.pipeline, micro_batches);
}

/// Slabs of a stage's chunks over its order.
void add_slabs(StageMemory& m, const std::vector<std::vector<LayerRun>>& chunks, const std::vector<LayerRun>& layers,
               const std::vector<ChunkPlace>& places, const plan::PlanSpec& spec, std::int64_t micro_batches,
               const MemoryRecipe& recipe, const MemoryQuestion& question, MovesMemo& moves) {
  const plan::StageId stage = places.front().stage;
  const double boundary = boundary_of(layers);
  std::vector<ChunkSlab> slabs;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    slabs.push_back(slab_of(chunks[c], spec, places[c], recipe.blocks_on_host));
    if (recipe.keeps_messages) slabs.back().kept += kept_messages(spec, places[c], boundary);
  }
  const double saved = slabs.front().kept + slabs.front().received;
  if (spec.stages.virtual_stages == 1 && question.zero_bubble != plan::ZeroBubble::none) {
    // A framework frees what it has sent, and what the weights' gradients do not read. Where those follow their
    // backward pass at once, nothing waits for them.
    const plan::Held held = plan::held(question.zero_bubble, stage.number(), spec.mesh.pipeline, micro_batches);
    double half = 0;
    for (const LayerRun& run : layers) half += static_cast<double>(run.count) * run.costs->weight_inputs;
    const bool waits = spec.recomputation.weights_wait();
    m.activations =
        saved * static_cast<double>(held.whole) + (waits ? half * static_cast<double>(held.for_weights) : 0);
  } else if (spec.stages.splits_backward()) {
    std::vector<std::int64_t> staying;
    for (const ChunkPlace& place : places) staying.push_back(place.staying);
    m.activations = split_slabs(chunks, spec, stage, micro_batches, staying, !recipe.stated, moves);
  } else if (spec.stages.asynchronous()) {
    add_asynchronous(m, saved, boundary, spec, stage);
  } else if (spec.stages.virtual_stages > 1) {
    m.activations = interleaved_slabs(slabs, boundary, spec, stage, micro_batches);
  } else {
    const int s = stage.number();
    m.activations =
        saved * static_cast<double>(plan::in_flight(spec.stages.order, s, spec.mesh.pipeline, micro_batches));
  }
}

/// What states and parameters need outside the device. Within passes, too, what is read from files passes through the
/// host, one bucket ahead.
void add_elsewhere(StageMemory& m, const EndMemory& end, const std::vector<BucketSize>& buckets,
                   const plan::PlanSpec& spec) {
  double staging = end.staging;
  if (spec.offload.parameters == plan::Space::nvme)
    for (const BucketSize& b : buckets)
      staging = std::max(staging, 2 * arena_bytes(plan::zero_of(spec) == 3 ? b.shard : b.elements,
                                                  plan::compute_dtype(spec.numerics.precision)));
  m.host += end.host + staging;
  m.nvme += end.nvme;
}

}  // namespace

StageMemory stage_memory(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                         plan::StageId stage, std::int64_t micro_batches, double software, const EndMemory* elsewhere,
                         std::optional<PairBytes> pairs, MemoryMemos memos, MemoryRecipe recipe,
                         MemoryQuestion question, bool one_copy) {
  recipe.gradients_beside = recipe.gradients_beside && !one_copy;
  std::vector<LayerRun> layers;
  for (const std::vector<LayerRun>& chunk : chunks) layers.insert(layers.end(), chunk.begin(), chunk.end());
  StageMemory m;
  Elements elements;
  const std::vector<BucketSize> buckets = buckets_of(layers, spec);
  add_states(m, elements, layers, buckets, spec, recipe, one_copy);
  ScratchBytes scratch;
  if (elsewhere != nullptr)
    add_elsewhere(m, *elsewhere, buckets, spec), scratch.alive = elsewhere->alive;
  else
    scratch = larger(reduction_bytes(buckets, spec), update_bytes(buckets, spec));
  std::vector<ChunkPlace> places;
  for (int c = 0; c < static_cast<int>(chunks.size()); ++c) {
    const std::vector<LayerRun>& chunk = chunks[static_cast<std::size_t>(c)];
    places.push_back({stage, c, 0, frees_head(spec, recipe, stage, micro_batches)});
    if (spec.offload.activations == plan::Space::host) {
      const bool head = chunk.back().costs->kind == models::LayerKind::head;
      places.back().staying = staying_blocks(spec, stage, c, head, micro_batches, memos.moves);
      m.host += leaving_bytes(chunk, places.back().staying) *
                static_cast<double>(most_in_flight(spec, stage, c, micro_batches, memos.moves));
    }
    if (!pairs) scratch = larger(scratch, memos.passes.of(chunk, spec, places.back(), !recipe.stated, elsewhere));
  }
  if (pairs)
    m.activations = pairs->slabs, scratch.packed = std::max(scratch.packed, pairs->scratch);
  else
    add_slabs(m, chunks, layers, places, spec, micro_batches, recipe, question, memos.moves);
  // A framework allocates what it needs at the moment; a schedule has an arena.
  m.workspace = recipe.stated ? scratch.alive : scratch.packed;
  // Loss, gradient norm, its square, clip coefficient, and loss scaling.
  m.input = (spec.numerics.precision == models::DType::fp16 ? 5 : 4) * static_cast<double>(plan::kAlignment);
  if (spec.states.has_server()) add_server(m, buckets, spec);
  if (counts_software(question.kind)) m.software = software;
  if (recipe.stated)
    add_framework(m, elements, spec, recipe, question.kind,
                  static_cast<double>(micro_batches_in_flight(spec, stage, micro_batches)));
  return m;
}

double bytes_by_rows(const Life& life) {
  if (!life.by_rows) return 0;
  return std::max(0.0, life.bytes - static_cast<double>(plan::kAlignment));
}

namespace {

/// What a layer keeps from forward to backward, by rows.
double saved_by_rows(const LayerCosts& layer) {
  double sum = 0;
  for (const LifeId i : layer.lives.keys())
    if (i != layer.y && crosses(layer, i) && !leaves_with_head(layer, i)) sum += bytes_by_rows(layer.lives[i]);
  return sum;
}

/// Loss, gradient norm, its square, clip coefficient, and loss scaling.
constexpr double kScalars = 5;

}  // namespace

bool keeps_rows(const plan::PlanSpec& spec, const models::Model& model) {
  const bool whole = spec.stages.order == plan::Order::one_f_one_b || spec.stages.order == plan::Order::gpipe;
  const bool divides = !spec.mesh.shards_rows() || spec.tokens_per_rank() % spec.mesh.tensor == 0;
  return whole && divides && !spec.states.has_server() && !spec.offload.any() && !model.lora.any() &&
         spec.compression.activations == plan::ActivationEncoding::none && !spec.recomputation.partition_checkpoints &&
         spec.numerics.loss_chunks == 1 && spec.tokens.bound >= spec.tokens.imbalance;
}

double bound_of_stage(Bound bound, const std::vector<std::vector<LayerRun>>& one_sequence, const plan::PlanSpec& spec,
                      plan::StageId stage, double software, MemoryMemos memos, MemoryRecipe recipe, bool one_copy) {
  recipe.gradients_beside = recipe.gradients_beside && !one_copy;
  const bool most = bound == Bound::most;
  std::vector<LayerRun> layers;
  for (const std::vector<LayerRun>& chunk : one_sequence) layers.insert(layers.end(), chunk.begin(), chunk.end());
  StageMemory m;
  m.software = software;
  Elements elements;
  const std::vector<BucketSize> buckets = buckets_of(layers, spec);
  add_states(m, elements, layers, buckets, spec, recipe, one_copy);
  const double boundary = most && recipe.keeps_messages ? boundary_of(layers) : 0;
  double kept = std::numeric_limits<double>::infinity();  // by the smallest chunk
  for (int c = 0; c < static_cast<int>(one_sequence.size()); ++c) {
    const std::vector<LayerRun>& chunk = one_sequence[static_cast<std::size_t>(c)];
    const ChunkPlace place{stage, c, 0,
                           false};  // the upper bound keeps what the head does, the lower one leaves it out
    double of_chunk = boundary > 0 ? kept_messages(spec, place, boundary) : 0;
    double filled = 0;  // what at most rounds a larger micro-batch's tensors up
    for (const LayerRun& run : chunk) {
      const auto count = static_cast<double>(run.count);
      const double rounding = count * static_cast<double>(plan::kAlignment * std::ssize(run.costs->lives));
      of_chunk += most ? count * saved_bytes(*run.costs) + rounding : count * saved_by_rows(*run.costs);
      filled += rounding;
    }
    kept = std::min(kept, of_chunk);
    m.workspace = std::max(m.workspace, most ? memos.passes.of(chunk, spec, place, false, nullptr).alive + filled
                                             : memos.passes.of_rows(chunk, spec, place));
  }
  const std::int64_t micro_batches = spec.micro_batches();
  const bool interleaves = spec.stages.virtual_stages > 1;
  const std::int64_t held = !interleaves
                                ? plan::in_flight(spec.stages.order, stage.number(), spec.mesh.pipeline, micro_batches)
                            : stage == plan::kFirstStage ? plan::most_passes_held(spec)
                                                         : 1;
  const auto sequences = static_cast<double>(spec.shape.micro_batch);
  m.activations = static_cast<double>(held) * sequences * kept;
  m.workspace *= sequences;
  if (most) {
    m.workspace = std::max(m.workspace, larger(reduction_bytes(buckets, spec), update_bytes(buckets, spec)).alive);
    m.input = kScalars * static_cast<double>(plan::kAlignment);
  }
  add_framework(m, elements, spec, recipe, MemoryKind::device,
                static_cast<double>(micro_batches_in_flight(spec, stage, micro_batches)));
  return m.total();
}

double states_of_stage(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, double software,
                       const MemoryRecipe& recipe, bool one_copy) {
  StageMemory m;
  m.software = software;
  Elements elements;
  add_states(m, elements, layers, buckets_of(layers, spec), spec, recipe, one_copy);
  return m.total();
}

}  // namespace orrery::cost
