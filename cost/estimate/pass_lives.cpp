/// Passes over layers, in the order of plan/outline/chunk_pass.h: where each tensor, bucket and message begins and
/// ends.
#include "cost/estimate/pass_lives.h"

#include <algorithm>
#include <bit>

#include "cost/estimate/fold.h"
#include "cost/estimate/lowered_end.h"
#include "cost/estimate/offload.h"
#include "plan/lower/buckets.h"
#include "plan/outline/chunk_pass.h"
#include "plan/outline/reduction.h"

namespace orrery::cost {

namespace {

/// More equal layers in a row than this do not raise the peak.
constexpr std::int64_t kDistinctInARow = 3;
/// Where memory outlives its layer, neighbours alternate between places: packing many is like packing these, or one
/// more if their number is odd.
constexpr std::int64_t kDistinctThatOverlap = 12;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// The parts of a plan that passes depend on, besides their layers.
struct Setting {
  const plan::PlanSpec& spec;
  ChunkPlace place;
  bool packs = true;  ///< false: only what is alive counts
  bool rows = false;  ///< only what each sequence of a micro-batch adds at least counts
  [[nodiscard]] int zero() const { return rows ? 0 : plan::zero_of(spec); }
  /// Received and sent tensors live between blocks, not within one.
  [[nodiscard]] bool messages_apart() const {
    return spec.stages.virtual_stages > 1 || spec.stages.splits_backward() || spec.stages.asynchronous();
  }
  [[nodiscard]] bool receives(bool forward) const { return spec.receives(place.stage, place.chunk, forward); }
  [[nodiscard]] bool sends(bool forward) const { return spec.sends(place.stage, place.chunk, forward); }
  [[nodiscard]] bool activations_leave() const { return spec.offload.activations == plan::Space::host; }
  [[nodiscard]] bool parameters_leave() const { return spec.offload.parameters != plan::Space::device; }
  [[nodiscard]] bool sums_on_host() const { return spec.offload.optimizer != plan::Space::device; }
  /// Whether gradients travel in fewer bits within the last passes.
  [[nodiscard]] bool rounds_early() const { return !rows && spec.reduces_early() && spec.compresses() && zero() < 2; }
  [[nodiscard]] bool outlives_layers() const { return zero() >= 2 || rounds_early() || spec.offload.any(); }
  [[nodiscard]] double bytes_of(const Life& life) const { return rows ? bytes_by_rows(life) : life.bytes; }
  /// As many of `count` equal layers in a row are laid out.
  [[nodiscard]] std::int64_t distinct(std::int64_t count) const {
    const bool elsewhere = spec.offload.any();
    if (!outlives_layers()) return std::min(count, kDistinctInARow);
    const std::int64_t staying = activations_leave() ? place.staying : 0;
    if (!packs) return std::min(count, kDistinctInARow + 2 + (elsewhere ? spec.offload.prefetch : 0) + staying);
    const std::int64_t enough = kDistinctThatOverlap + staying;
    return count <= enough ? count : enough + (count - enough) % 2;
  }
};

using Layers = std::vector<const LayerCosts*>;

Layers few_of_many(const std::vector<LayerRun>& runs, const Setting& setting) {
  Layers out;
  for (const LayerRun& run : runs)
    out.insert(out.end(), static_cast<std::size_t>(setting.distinct(run.count)), run.costs);
  return out;
}

/// One pass while it is laid out: what passes over a chunk's layers have in common.
class PassLives {
 protected:
  /// `last`: the pass in which gradients become whole, with the reductions that stand within it.
  PassLives(const Layers& layers, const Setting& setting, bool last)
      : layers_(layers),
        s_(setting),
        spec_(setting.spec),
        last_(last),
        leaving_(layers.size(), false),
        reductions_(block_, setting.sums_on_host(), layers.front()->reduced_beside) {
    std::int64_t staying = s_.place.staying;
    for (std::size_t k = layers_.size(); k-- > 0;)
      leaving_[k] = s_.activations_leave() && layers_[k]->kind == models::LayerKind::block && staying-- <= 0;
  }

  using Places = std::vector<int>;  ///< of a pass's steps over a layer
  using Uses = StepRange;           ///< places instead of steps

  [[nodiscard]] static bool recomputes(const LayerCosts& layer) { return layer.recomputation == plan::Recompute::full; }
  /// The place of the message that brings the input, or the begin of the block.
  int receive(bool forward) { return s_.receives(forward) && !s_.messages_apart() ? block_.step(false) : 0; }
  /// The layer's steps in a pass, and behind them the reductions of gradients that are whole.
  Places steps_of(const LayerCosts& layer, const Pass& pass) {
    Places places;
    for (int s = 0; s < pass.steps; ++s) {
      if (zeroes(layer, pass) && s == pass.empty_part) zeroed_ = block_.step(true);
      places.push_back(block_.step(s >= std::max(0, pass.computes.first)));
      if (last_) reduce_behind(layer, pass, s);
    }
    if (zeroes(layer, pass) && zeroed_ < 0) zeroed_ = place_of(places, pass.computes.first);
    return places;
  }
  [[nodiscard]] int place_of(const Places& places, int step) const {
    return places.empty() ? block_.last() : places[std::min(places.size() - 1, at(std::max(0, step)))];
  }
  [[nodiscard]] Uses places_of(const Places& places, const StepRange& steps) const {
    return steps.any() ? Uses{place_of(places, steps.first), place_of(places, steps.last)} : Uses{};
  }
  /// The run that copies count by: the layer's compute steps.
  void run_over(const Uses& computes) {
    if (computes.any()) block_.run(computes.first, computes.last);
  }
  /// Where what the current run reads is fetched.
  [[nodiscard]] int fetched() const {
    return block_.runs() == 0 ? 0 : block_.fetched(block_.runs() - 1, spec_.offload.prefetch);
  }
  [[nodiscard]] bool of_freed_head(const LayerCosts& layer, LifeId index) const {
    return s_.place.frees_head && leaves_with_head(layer, index);
  }
  /// A tensor received from another stage is not encoded.
  [[nodiscard]] bool is_received(std::size_t k, LifeId life) const {
    return k == 0 && life == layers_[0]->x && s_.receives(true);
  }

  // -- parameters ---------------------------------------------------------------------------------------------------
  struct Used {
    LayerBucket of{};
    bool frozen = false;
    plan::BucketShape shape = {};
  };
  [[nodiscard]] std::vector<Used> buckets_of(const LayerCosts& layer) const {
    std::vector<Used> out;
    for (const auto& [of, frozen] : layer.listed)
      out.push_back({of, frozen, frozen ? frozen_shape_of(of, layer, spec_) : shape_of(of, layer, spec_)});
    return out;
  }
  [[nodiscard]] bool gathers(const Used& bucket) const {
    return s_.zero() == 3 && bucket.shape.shard < bucket.shape.elements;
  }
  [[nodiscard]] double bytes(std::int64_t elements) const {
    return arena_bytes(elements, plan::compute_dtype(spec_.numerics.precision));
  }

  /// ZeRO-3's message for a bucket: its place, or -1 if there is none; and where a shard that lives elsewhere is
  /// fetched, `spec_.offload.prefetch` runs earlier, counted from the run after the message.
  struct Gathered {
    int from = -1, fetched = 0;
  };
  using Gathers = std::vector<Gathered>;  ///< by the layer's buckets
  Gathers gather_all(const LayerCosts& layer) {
    Gathers out;
    if (s_.zero() < 3) return out;
    for (const Used& bucket : buckets_of(layer)) {
      Gathered& one = out.emplace_back();
      if (gathers(bucket)) one = {block_.step(false), block_.fetched(block_.runs(), spec_.offload.prefetch)};
    }
    return out;
  }
  /// `passes`: what reads them. `when`: the uses of a bucket in these.
  template <class When>
  void use_buckets(const LayerCosts& layer, const Gathers& gathered, std::initializer_list<const Pass*> passes,
                   const When& when) {
    if (s_.zero() < 3 && !s_.parameters_leave()) return;
    const std::vector<Used> buckets = buckets_of(layer);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const Used& bucket = buckets[i];
      const BucketCosts& costs = layer.in(bucket.of);
      const Uses uses = when(bucket.frozen ? costs.frozen_uses : costs.parameter_uses);
      if (gathers(bucket)) {
        const auto& [from, fetched] = gathered[i];
        block_.live(from, std::max(from, uses.last), bytes(bucket.shape.elements));
        if (s_.parameters_leave()) block_.live(fetched, std::max(from, uses.first), bytes(bucket.shape.shard));
      } else if (s_.parameters_leave() && uses.any()) {
        const ParametersRead read = read_by(passes, bucket.of);
        const std::int64_t whole = s_.zero() == 3 ? bucket.shape.shard : bucket.shape.elements;
        block_.live(fetched(), uses.last, bytes(s_.zero() == 3 || read.several() ? whole : read.elements));
      }
    }
  }

  // -- gradients ----------------------------------------------------------------------------------------------------
  /// Segments of a pass that are no steps: they decode ahead of it.
  [[nodiscard]] static int ahead_of(const Pass& pass) { return static_cast<int>(pass.segments.size()) - pass.steps; }
  /// ZeRO-2's and 3's are zeroed by the first compute step, or by a step that does nothing else.
  [[nodiscard]] bool zeroes(const LayerCosts& layer, const Pass& pass) const {
    return s_.zero() >= 2 && &pass == &layer.backward;
  }
  /// In the last pass a reduction stands right after the last step that writes what it reduces.
  void reduce_behind(const LayerCosts& layer, const Pass& pass, int step) {
    for (const Used& bucket : buckets_of(layer)) {
      const bool tied = bucket.of == LayerBucket::shared && layer.kind == models::LayerKind::head &&
                        layers_.front()->kind == models::LayerKind::embedding;  // complete with the embedding
      if (!bucket.frozen && !tied && layer.whole_behind(pass, bucket.of) == step + ahead_of(pass))
        reductions_.add_in_turn(plan::reduction_of(bucket.shape, spec_, plan::Reduces::in_the_last_pass));
    }
  }

  const Layers& layers_;
  const Setting& s_;
  const plan::PlanSpec& spec_;
  bool last_;
  std::vector<bool> leaving_;
  BlockLives block_;
  ReductionLives reductions_;
  int zeroed_ = -1;  ///< where the current layer's gradients begin
};

class ForwardLives : PassLives {
 public:
  ForwardLives(const Layers& layers, const Setting& setting) : PassLives(layers, setting, false) {}

  [[nodiscard]] std::vector<plan::ScratchBuffer> take() {
    made_ = receive(true);
    const LayerCosts& top = *layers_.back();
    const bool loads = layers_.front()->kind == models::LayerKind::embedding || top.kind == models::LayerKind::head;
    if (loads) loaded_ = block_.step(true);
    plan::forward_order({0, layers_.size()}, *this);
    if (top.y.exists() && s_.sends(true) && !s_.messages_apart())
      block_.live(made_, block_.step(false), s_.bytes_of(top.lives[top.y]), true);
    return block_.take();
  }

  Gathers gather(std::size_t k) { return gather_all(*layers_[k]); }
  void run(std::size_t k, const Gathers& gathered) {
    const LayerCosts& layer = *layers_[k];
    const Places places = steps_of(layer, layer.forward);
    run_over(places_of(places, layer.forward.computes));
    use_buckets(layer, gathered, {&layer.forward}, [&](const Life& life) { return places_of(places, life.forward); });
    for (const LifeId i : layer.lives.keys())
      if (i != layer.y) live(k, i, places);
    if (layer.y.exists()) made_ = place_of(places, layer.lives[layer.y].forward.first);
  }

 private:
  void live(std::size_t k, LifeId index, const Places& places) {
    const LayerCosts& layer = *layers_[k];
    const Life& life = layer.lives[index];
    const bool input = index == layer.x;
    if (!input && !life.forward.any()) return;
    if (input && k == 0 && s_.messages_apart()) return;  // has a slab of its own
    const bool loaded = models::is_token_ids(life.role);
    const int from = input ? made_ : loaded && loaded_ >= 0 ? loaded_ : place_of(places, life.forward.first);
    const int to = place_of(places, life.forward.last);
    if (!crosses(layer, index)) return block_.live(from, to, s_.bytes_of(life));
    if (of_freed_head(layer, index)) return block_.live(from, block_.last(), s_.bytes_of(life));
    if (leaving_[k] || (s_.activations_leave() && waits_for_weights(layer, index)))
      return block_.live_behind(from, to, s_.bytes_of(life));
    if (life.encoded > 0 && !is_received(k, index)) block_.live(from, BlockLives::behind(to), s_.bytes_of(life));
  }

  int made_ = 0;     ///< the place where the current layer's input was made
  int loaded_ = -1;  ///< the step that loads the inputs
};

class BackwardLives : PassLives {
 public:
  BackwardLives(const Layers& layers, const Setting& setting, bool last) : PassLives(layers, setting, last) {}

  [[nodiscard]] std::vector<plan::ScratchBuffer> take() {
    made_ = receive(false);
    plan::backward_order({0, layers_.size()}, spec_, *this);
    if (s_.sends(false) && !s_.messages_apart() && layers_.front()->dx.exists())
      block_.live(made_, block_.step(false), made_bytes_, !last_);  // early reductions still compute after it
    reductions_.finish();
    return block_.take();
  }

  Gathers gather(std::size_t k) { return layers_[k]->backward_reads_parameters ? gather_all(*layers_[k]) : Gathers{}; }
  void begin(std::size_t /*layer*/, Gathers gathered) { gathered_ = std::move(gathered); }
  void recompute(std::size_t k) {
    again_ = recomputes(*layers_[k]) ? steps_of(*layers_[k], layers_[k]->recompute) : Places{};
  }
  void run(std::size_t k) {
    const LayerCosts& layer = *layers_[k];
    zeroed_ = -1;
    places_ = steps_of(layer, layer.backward);
    run_over(uses_of(layer, {.recompute = layer.recompute.computes, .backward = layer.backward.computes}));
    for (const LifeId i : layer.lives.keys()) live(k, i);
    pass_on(k);
    const Pass none;
    if (layer.backward_reads_parameters)
      use_buckets(layer, gathered_, {recomputes(layer) ? &layer.recompute : &none, &layer.backward},
                  [&](const Life& life) { return uses_of(layer, life); });
    if (s_.zero() < 2 && s_.sums_on_host()) gradients_leave(layer);
  }
  /// ZeRO-2 and 3: full gradients live from the layer's first step to their reduction.
  void reduce(std::size_t k) {
    if (s_.zero() < 2) return;
    for (const Used& bucket : buckets_of(*layers_[k])) {
      if (bucket.frozen) continue;
      plan::Outline outline = plan::reduction_of(bucket.shape, spec_, plan::Reduces::in_every_pass);
      spec_.compresses() ? reductions_.add_in_turn(std::move(outline), zeroed_)
                         : reductions_.add_late(std::move(outline), zeroed_);
    }
  }
  void add_up() { reductions_.add_up(); }
  void end() {
    if (!last_) reductions_.finish();
  }

 private:
  /// By recomputation or the pass itself, which follows it.
  [[nodiscard]] Uses uses_of(const LayerCosts& layer, const Life& life) const {
    const Uses again = recomputes(layer) ? places_of(again_, life.recompute) : Uses{};
    const Uses own = places_of(places_, life.backward);
    return {again.any() ? again.first : own.first, own.any() ? own.last : again.last};
  }
  void live(std::size_t k, LifeId index) {
    const LayerCosts& layer = *layers_[k];
    const Life& life = layer.lives[index];
    if (index == layer.y || index == layer.dy || index == layer.dx) return;
    const Uses uses = uses_of(layer, life);
    if (!uses.any()) return;
    if (of_freed_head(layer, index)) return block_.live(0, uses.last, s_.bytes_of(life));
    if (crosses(layer, index)) {
      if (leaving_[k] && !life.weights.any()) return block_.live(fetched(), uses.last, s_.bytes_of(life));
      if (life.encoded == 0 || life.weights.any() || is_received(k, index)) return;
      const int decoded = BlockLives::ahead(uses.first);
      if (spec_.compression.activations != plan::ActivationEncoding::none) block_.compute(decoded);
      return block_.live(decoded, uses.last, s_.bytes_of(life));
    }
    if (index != layer.x && !life.weights.any()) block_.live(uses.first, uses.last, s_.bytes_of(life));
  }
  /// The gradients of the layer's output and of its input.
  void pass_on(std::size_t k) {
    const LayerCosts& layer = *layers_[k];
    if (layer.dy.exists()) {
      const Life& dy = layer.lives[layer.dy];
      const bool outlives = dy.weights.any() || (s_.messages_apart() && k + 1 == layers_.size());
      if (!outlives)
        block_.live(made_, place_of(places_, dy.backward.last), made_bytes_ > 0 ? made_bytes_ : s_.bytes_of(dy));
    }
    if (!layer.dx.exists()) return;
    const Life& dx = layer.lives[layer.dx];
    made_ = place_of(places_, dx.backward.first);
    made_bytes_ = s_.bytes_of(dx);
  }
  /// Gradients that are accumulated on the host live on the device until the next layer has run.
  void gradients_leave(const LayerCosts& layer) {
    for (const Used& bucket : buckets_of(layer)) {
      const StepRange writes = writers_of(layer.backward.segments, bucket.of);
      if (bucket.frozen || !writes.any()) continue;
      const int ahead = ahead_of(layer.backward);
      block_.live_behind(place_of(places_, writes.first - ahead), place_of(places_, writes.last - ahead),
                         arena_bytes(bucket.shape.elements, plan::gradient_dtype(spec_.numerics.precision)));
    }
  }

  Gathers gathered_;       ///< of the current layer
  Places again_, places_;  ///< its steps
  int made_ = 0;           ///< where the gradient of its output was made
  double made_bytes_ = 0;
};

/// The second half of a split backward: gradients of the weights.
class WeightsLives : PassLives {
 public:
  WeightsLives(const Layers& layers, const Setting& setting, bool last) : PassLives(layers, setting, last) {}

  [[nodiscard]] std::vector<plan::ScratchBuffer> take() {
    plan::weights_order({0, layers_.size()}, *this);
    reductions_.finish();
    return block_.take();
  }

  void run(std::size_t k, bool last_alone) {
    const LayerCosts& layer = *layers_[k];
    const Pass& pass = last_alone ? layer.weights_last_alone : layer.weights;
    const Places places = steps_of(layer, pass);
    run_over(places_of(places, pass.computes));
    for (const LifeId i : layer.lives.keys()) {
      const Life& life = layer.lives[i];
      const bool comes_back = s_.activations_leave() && waits_for_weights(layer, i);
      const bool within =
          life.weights.any() && (!life.forward.any() || life.dropped) && !life.backward.any() && !life.recompute.any();
      if (!comes_back && !within) continue;
      const Uses uses = places_of(places, life.weights);
      block_.live(comes_back ? fetched() : uses.first, uses.last, s_.bytes_of(life));
    }
  }
};

ScratchBytes scratch_of(const Layers& layers, const Setting& setting, const EndMemory* end = nullptr) {
  std::vector<std::vector<plan::ScratchBuffer>> blocks = {ForwardLives(layers, setting).take()};
  for (const bool last : {false, true}) {
    if (last && !setting.rounds_early()) continue;
    blocks.push_back(BackwardLives(layers, setting, last).take());
    if (setting.spec.stages.splits_backward()) blocks.push_back(WeightsLives(layers, setting, last).take());
  }
  if (end != nullptr) blocks.push_back(end->device);
  return scratch_bytes(std::move(blocks), setting.packs);
}

/// Everything that PassLives reads, as numbers.
std::vector<std::int64_t> key_of(const std::vector<LayerRun>& layers, const Setting& s) {
  const plan::PlanSpec& spec = s.spec;
  std::vector<std::int64_t> key;
  key.reserve(2 * layers.size() + 32);
  const auto note = [&](auto... values) { (key.push_back(static_cast<std::int64_t>(values)), ...); };
  for (const LayerRun& run : layers) note(reinterpret_cast<std::intptr_t>(run.costs), s.distinct(run.count));
  note(-1, s.packs, s.rows, spec.compression.activations, s.messages_apart(), spec.stages.splits_backward(),
       s.receives(true), s.receives(false), s.sends(true), s.sends(false), s.place.staying, s.place.frees_head);
  if (!s.outlives_layers()) return key;
  note(s.zero(), spec.shards_of(false), spec.shards_of(true), spec.mesh.replicas(), spec.mesh.tensor, spec.copies(),
       spec.stages.mirrors(), spec.states.optimizer, spec.numerics.precision, spec.offload.activations,
       spec.offload.optimizer, spec.offload.parameters, spec.offload.prefetch);
  note(spec.compression.gradients, spec.compression.group, spec.compression.rank, s.rounds_early(),
       std::bit_cast<std::int64_t>(spec.compression.minimum_rate));
  return key;
}

}  // namespace

bool leaves_with_head(const LayerCosts& layer, LifeId index) {
  return layer.kind == models::LayerKind::head && index != layer.x && index != layer.y && crosses(layer, index);
}

bool outlives_layers(const plan::PlanSpec& spec) {
  return Setting{spec, {}}.outlives_layers();
}

double PassMemo::of_rows(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const ChunkPlace& place) {
  const Setting setting{spec, place, false, true};
  const auto [known, fresh] = known_.try_emplace(key_of(layers, setting));
  if (fresh) known->second = scratch_of(few_of_many(layers, setting), setting);
  return known->second.alive;
}

ScratchBytes PassMemo::of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const ChunkPlace& place,
                          bool packs, const EndMemory* end) {
  const Setting setting{spec, place, packs};
  if (packs && end != nullptr) return scratch_of(few_of_many(layers, setting), setting, end);
  const auto [known, fresh] = known_.try_emplace(key_of(layers, setting));
  if (fresh) known->second = scratch_of(few_of_many(layers, setting), setting);
  return known->second;
}

}  // namespace orrery::cost
