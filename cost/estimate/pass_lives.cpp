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
  PassLives(const Layers& layers, const Setting& setting)
      : layers_(layers), s_(setting), spec_(setting.spec), leaving_(layers.size(), false) {
    std::int64_t staying = s_.place.staying;
    for (std::size_t k = layers_.size(); k-- > 0;)
      leaving_[k] = s_.activations_leave() && layers_[k]->kind == models::LayerKind::block && staying-- <= 0;
  }

  using Places = std::vector<int>;  ///< of a pass's steps over a layer
  /// The first and the last place where something is used; -1: nowhere.
  struct Uses {
    int first = -1, last = -1;
  };

  [[nodiscard]] static bool recomputes(const LayerCosts& layer) { return layer.recomputation == plan::Recompute::full; }
  /// The place of the message that brings the input, or the begin of the block.
  int receive(bool forward) { return s_.receives(forward) && !s_.messages_apart() ? block_.step(false) : 0; }
  Places steps_of(const Pass& pass) {
    Places places;
    for (int s = 0; s < pass.steps; ++s) places.push_back(block_.step(s >= std::max(0, pass.computes.first)));
    return places;
  }
  [[nodiscard]] int place_of(const Places& places, int step) const {
    return places.empty() ? block_.last() : places[std::min(places.size() - 1, at(std::max(0, step)))];
  }
  /// The run that copies count by: the layer's compute steps.
  void run_over(const Places& places, const Pass& pass) {
    if (pass.computes.any()) block_.run(places[at(pass.computes.first)], places[at(pass.computes.last)]);
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
    const std::vector<Used> buckets = buckets_of(layer);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const Used& bucket = buckets[i];
      const BucketCosts& costs = layer.in(bucket.of);
      const Uses uses = when(bucket.frozen ? costs.frozen_uses : costs.parameter_uses);
      if (gathers(bucket)) {
        const auto& [from, fetched] = gathered[i];
        block_.live(from, std::max(from, uses.last), bytes(bucket.shape.elements));
        if (s_.parameters_leave()) block_.live(fetched, std::max(from, uses.first), bytes(bucket.shape.shard));
      } else if (s_.parameters_leave() && uses.first >= 0) {
        const ParametersRead read = read_by(passes, bucket.of);
        const std::int64_t whole = s_.zero() == 3 ? bucket.shape.shard : bucket.shape.elements;
        block_.live(fetched(), uses.last, bytes(s_.zero() == 3 || read.several() ? whole : read.elements));
      }
    }
  }

  // -- gradients ----------------------------------------------------------------------------------------------------
  /// The steps of a pass that write a bucket's gradients; what is decoded ahead of it is no step.
  [[nodiscard]] static StepRange writers(const Pass& pass, LayerBucket bucket) {
    StepRange steps = writers_of(pass.segments, bucket);
    const int ahead = static_cast<int>(pass.segments.size()) - pass.steps;
    if (steps.any()) steps.first -= ahead, steps.last -= ahead;
    return steps;
  }
  /// The steps of the last pass. A reduction stands right after the last step that writes what it reduces.
  Places steps_with(const LayerCosts& layer, const Pass& pass, ReductionLives& reductions) {
    Places places;
    for (int s = 0; s < pass.steps; ++s) {
      places.push_back(block_.step(s >= std::max(0, pass.computes.first)));
      for (const Used& bucket : buckets_of(layer)) {
        const bool later = &pass == &layer.backward && writers_of(layer.weights.segments, bucket.of).any();
        const bool tied = bucket.of == LayerBucket::shared && layer.kind == models::LayerKind::head &&
                          layers_.front()->kind == models::LayerKind::embedding;  // complete with the embedding
        if (!bucket.frozen && !later && !tied && writers(pass, bucket.of).last == s)
          reductions.add_in_turn(plan::reduction_of(bucket.shape, spec_, plan::Reduces::in_the_last_pass));
      }
    }
    return places;
  }

  const Layers& layers_;
  const Setting& s_;
  const plan::PlanSpec& spec_;
  std::vector<bool> leaving_;
  BlockLives block_;
};

class ForwardLives : PassLives {
 public:
  ForwardLives(const Layers& layers, const Setting& setting) : PassLives(layers, setting) {}

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
    const Places places = steps_of(layer.forward);
    run_over(places, layer.forward);
    use_buckets(layer, gathered, {&layer.forward}, [&](const Life& life) {
      return life.forward.any() ? Uses{place_of(places, life.forward.first), place_of(places, life.forward.last)}
                                : Uses{};
    });
    for (const LifeId i : layer.lives.keys())
      if (i != layer.y) live(k, i, places);
    if (layer.y.exists())
      made_ = places.empty() ? block_.last() : places[at(std::max(0, layer.lives[layer.y].forward.first))];
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
  /// `last`: the pass in which gradients become whole, with the reductions that stand within it.
  BackwardLives(const Layers& layers, const Setting& setting, bool last)
      : PassLives(layers, setting),
        last_(last),
        reductions_(block_, setting.sums_on_host(), layers.front()->reduced_beside) {}

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
  void recompute(std::size_t k) { again_ = recomputes(*layers_[k]) ? steps_of(layers_[k]->recompute) : Places{}; }
  void run(std::size_t k) {
    const LayerCosts& layer = *layers_[k];
    places_ = last_ ? steps_with(layer, layer.backward, reductions_) : steps_that_zero(layer);
    if (const Uses computes =
            uses_of(layer, {.recompute = layer.recompute.computes, .backward = layer.backward.computes});
        computes.first >= 0)
      block_.run(computes.first, computes.last);
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
  /// ZeRO-2's and 3's gradients are zeroed by the first compute step, or by a step that does nothing else.
  Places steps_that_zero(const LayerCosts& layer) {
    const Pass& pass = layer.backward;
    zeroed_ = -1;
    Places places;
    for (int s = 0; s < pass.steps; ++s) {
      if (s_.zero() >= 2 && s == pass.empty_part) zeroed_ = block_.step(true);
      places.push_back(block_.step(s >= std::max(0, pass.computes.first)));
    }
    if (zeroed_ < 0) zeroed_ = place_of(places, pass.computes.first);
    return places;
  }
  /// By recomputation or the pass itself, which follows it.
  [[nodiscard]] Uses uses_of(const LayerCosts& layer, const Life& life) const {
    const bool repeats = recomputes(layer) && life.recompute.any(), reads = life.backward.any();
    if (!repeats && !reads) return {};
    return {repeats ? place_of(again_, life.recompute.first) : place_of(places_, life.backward.first),
            reads ? place_of(places_, life.backward.last) : place_of(again_, life.recompute.last)};
  }
  void live(std::size_t k, LifeId index) {
    const LayerCosts& layer = *layers_[k];
    const Life& life = layer.lives[index];
    if (index == layer.y || index == layer.dy || index == layer.dx) return;
    const Uses uses = uses_of(layer, life);
    if (uses.first < 0) return;
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
      const StepRange writes = writers(layer.backward, bucket.of);
      if (bucket.frozen || !writes.any()) continue;
      block_.live_behind(place_of(places_, writes.first), place_of(places_, writes.last),
                         arena_bytes(bucket.shape.elements, plan::gradient_dtype(spec_.numerics.precision)));
    }
  }

  bool last_;
  ReductionLives reductions_;
  Gathers gathered_;       ///< of the current layer
  Places again_, places_;  ///< its steps
  int zeroed_ = -1;        ///< where its gradients begin
  int made_ = 0;           ///< where the gradient of its output was made
  double made_bytes_ = 0;
};

/// The second half of a split backward: gradients of the weights.
class WeightsLives : PassLives {
 public:
  WeightsLives(const Layers& layers, const Setting& setting, bool last)
      : PassLives(layers, setting), last_(last), reductions_(block_) {}

  [[nodiscard]] std::vector<plan::ScratchBuffer> take() {
    plan::weights_order({0, layers_.size()}, *this);
    reductions_.finish();
    return block_.take();
  }

  void run(std::size_t k, bool last_alone) {
    const LayerCosts& layer = *layers_[k];
    const Pass& pass = last_alone ? layer.weights_last_alone : layer.weights;
    const Places places = last_ ? steps_with(layer, pass, reductions_) : steps_of(pass);
    run_over(places, pass);
    for (const LifeId i : layer.lives.keys()) {
      const Life& life = layer.lives[i];
      const bool comes_back = s_.activations_leave() && waits_for_weights(layer, i);
      const bool within =
          life.weights.any() && (!life.forward.any() || life.dropped) && !life.backward.any() && !life.recompute.any();
      if (!comes_back && !within) continue;
      const int from = comes_back ? fetched() : place_of(places, life.weights.first);
      block_.live(from, place_of(places, life.weights.last), s_.bytes_of(life));
    }
  }

 private:
  bool last_;
  ReductionLives reductions_;
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
std::vector<std::int64_t> key_of(const Layers& layers, const Setting& s) {
  const plan::PlanSpec& spec = s.spec;
  std::vector<std::int64_t> key;
  key.reserve(layers.size() + 24);
  const auto note = [&](auto... values) { (key.push_back(static_cast<std::int64_t>(values)), ...); };
  for (const LayerCosts* layer : layers) note(reinterpret_cast<std::intptr_t>(layer));
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
  const Layers few = few_of_many(layers, setting);
  const auto [known, fresh] = known_.try_emplace(key_of(few, setting));
  if (fresh) known->second = scratch_of(few, setting);
  return known->second.alive;
}

ScratchBytes PassMemo::of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const ChunkPlace& place,
                          bool packs, const EndMemory* end) {
  const Setting setting{spec, place, packs};
  const Layers few = few_of_many(layers, setting);
  if (packs && end != nullptr) return scratch_of(few, setting, end);
  const auto [known, fresh] = known_.try_emplace(key_of(few, setting));
  if (fresh) known->second = scratch_of(few, setting);
  return known->second;
}

}  // namespace orrery::cost
