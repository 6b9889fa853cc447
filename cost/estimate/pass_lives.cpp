/// Passes over layers: where each tensor, bucket and message begins and ends.
#include "cost/estimate/pass_lives.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "cost/estimate/fold.h"
#include "cost/estimate/offload.h"
#include "plan/lower/buckets.h"
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

class PassesOverLayers {
 public:
  PassesOverLayers(const Layers& layers, const Setting& setting)
      : layers_(layers), s_(setting), spec_(setting.spec), leaving_(layers.size(), false) {
    std::int64_t staying = s_.place.staying;
    for (std::size_t k = layers_.size(); k-- > 0;)
      leaving_[k] = s_.activations_leave() && layers_[k]->kind == models::LayerKind::block && staying-- <= 0;
  }

  [[nodiscard]] std::vector<plan::ScratchBuffer> forward() {
    begin();
    const bool receives = s_.receives(true) && !s_.messages_apart();
    int made = 0;  // the place where the current layer's input was made
    if (receives) made = block_->step(false);
    const bool loads =
        layers_.front()->kind == models::LayerKind::embedding || layers_.back()->kind == models::LayerKind::head;
    if (loads) loaded_ = block_->step(true);
    gather(0, false);
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      const LayerCosts& layer = *layers_[k];
      if (k + 1 < layers_.size()) gather(k + 1, false);
      const std::vector<int> places = steps_of(layer.forward);
      run_over(places, layer.forward);
      use_parameters(layer, places);
      for (const LifeId i : layer.lives.keys())
        if (i != layer.y) live_in_forward(k, i, places, i == layer.x ? made : -1);
      if (layer.y.exists())
        made = places.empty() ? block_->last() : places[at(std::max(0, layer.lives[layer.y].forward.first))];
      drop_gathered();
    }
    const LayerCosts& top = *layers_.back();
    if (top.y.exists() && s_.sends(true) && !s_.messages_apart())
      block_->live(made, block_->step(false), s_.bytes_of(top.lives[top.y]), true);
    return block_->take();
  }

  /// `last`: the pass in which gradients become whole, with the reductions that stand within it.
  [[nodiscard]] std::vector<plan::ScratchBuffer> backward(bool last) {
    begin();
    ReductionLives reductions(*block_, s_.sums_on_host(), layers_.front()->reduced_beside);
    const bool receives = s_.receives(false) && !s_.messages_apart();
    int made = 0;  // where the current layer's output gradient was made
    if (receives) made = block_->step(false);
    double made_bytes = 0;
    gather(layers_.size() - 1, true);
    for (std::size_t k = layers_.size(); k-- > 0;) {
      const LayerCosts& layer = *layers_[k];
      if (k > 0) gather(k - 1, true);
      const std::vector<int> again = recomputes(layer) ? steps_of(layer.recompute) : std::vector<int>{};
      const std::vector<int> places =
          last ? steps_with(layer, layer.backward, &Life::backward, reductions) : steps_that_zero(layer);
      run_over_both(layer, again, places);
      for (const LifeId i : layer.lives.keys()) live_in_backward(k, i, again, places);
      if (layer.dy.exists()) {
        const Life& dy = layer.lives[layer.dy];
        const bool outlives = dy.weights.any() || (s_.messages_apart() && k + 1 == layers_.size());
        if (!outlives)
          block_->live(made, place_of(places, dy.backward.last), made_bytes > 0 ? made_bytes : s_.bytes_of(dy));
      }
      if (layer.dx.exists()) {
        const Life& dx = layer.lives[layer.dx];
        made = place_of(places, dx.backward.first);
        made_bytes = s_.bytes_of(dx);
      }
      if (layer.backward_reads_parameters) use_parameters_in_backward(layer, again, places);
      drop_gathered();
      make_gradients(layer, places, reductions);
    }
    if (!last) reductions.finish();
    if (s_.sends(false) && !s_.messages_apart() && layers_.front()->dx.exists())
      block_->live(made, block_->step(false), made_bytes, !last);  // early reductions still compute after it
    reductions.finish();
    return block_->take();
  }

  /// The second half of a split backward: gradients of the weights.
  [[nodiscard]] std::vector<plan::ScratchBuffer> weights(bool last) {
    begin();
    ReductionLives reductions(*block_, false, false);
    for (std::size_t k = layers_.size(); k-- > 0;) {
      const LayerCosts& layer = *layers_[k];
      const std::vector<int> places =
          last ? steps_with(layer, layer.weights, &Life::weights, reductions, k == 0) : steps_of(layer.weights);
      run_over(places, layer.weights);
      for (const LifeId i : layer.lives.keys()) {
        const Life& life = layer.lives[i];
        const bool comes_back = s_.activations_leave() && waits_for_weights(layer, i);
        const bool within = life.weights.any() && (!life.forward.any() || life.dropped) && !life.backward.any() &&
                            !life.recompute.any();
        if (comes_back)
          block_->live(fetched(), place_of(places, life.weights.last), s_.bytes_of(life));
        else if (within)
          block_->live(place_of(places, life.weights.first), place_of(places, life.weights.last), s_.bytes_of(life));
      }
    }
    reductions.finish();
    return block_->take();
  }

 private:
  [[nodiscard]] static bool recomputes(const LayerCosts& layer) { return layer.recomputation == plan::Recompute::full; }

  void begin() {
    block_.emplace();
    gathered_.clear();
    loaded_ = -1;
  }

  /// The places of a pass's steps.
  std::vector<int> steps_of(const Pass& pass) {
    std::vector<int> places;
    for (int s = 0; s < pass.steps; ++s) places.push_back(block_->step(s >= std::max(0, pass.computes.first)));
    return places;
  }
  /// Backward: ZeRO-2's and 3's gradients are zeroed by its first compute step, or by a step that does nothing else.
  std::vector<int> steps_that_zero(const LayerCosts& layer) {
    const Pass& pass = layer.backward;
    zeroed_ = -1;
    if (s_.zero() < 2 || pass.empty_part < 0) return steps_of(pass);
    std::vector<int> places;
    for (int s = 0; s < pass.steps; ++s) {
      if (s == pass.empty_part) zeroed_ = block_->step(true);
      places.push_back(block_->step(s >= std::max(0, pass.computes.first)));
    }
    return places;
  }
  [[nodiscard]] int place_of(const std::vector<int>& places, int step) const {
    return places.empty() ? block_->last() : places[std::min(places.size() - 1, at(std::max(0, step)))];
  }
  /// The run that copies count by: the layer's compute steps.
  void run_over(const std::vector<int>& places, const Pass& pass) {
    if (pass.computes.any()) block_->run(places[at(pass.computes.first)], places[at(pass.computes.last)]);
  }
  void run_over_both(const LayerCosts& layer, const std::vector<int>& again, const std::vector<int>& places) {
    int first = -1, last = -1;
    for (const auto& [steps, pass] : {std::pair{&again, &layer.recompute}, {&places, &layer.backward}}) {
      if (steps->empty() || !pass->computes.any()) continue;
      if (first < 0) first = (*steps)[at(pass->computes.first)];
      last = (*steps)[at(pass->computes.last)];
    }
    if (first >= 0) block_->run(first, last);
  }
  /// Where what the current run reads is fetched.
  [[nodiscard]] int fetched() const {
    return block_->runs() == 0 ? 0 : block_->fetched(block_->runs() - 1, spec_.offload.prefetch);
  }

  [[nodiscard]] bool of_freed_head(const LayerCosts& layer, LifeId index) const {
    return s_.place.frees_head && leaves_with_head(layer, index);
  }

  // -- forward ------------------------------------------------------------------------------------------------------
  /// A tensor received from another stage is not encoded.
  [[nodiscard]] bool is_received(std::size_t k, LifeId life) const {
    return k == 0 && life == layers_[0]->x && s_.receives(true);
  }
  /// `made`: where an input was.
  void live_in_forward(std::size_t k, LifeId index, const std::vector<int>& places, int made) {
    const LayerCosts& layer = *layers_[k];
    const Life& life = layer.lives[index];
    const bool input = index == layer.x;
    if (!input && !life.forward.any()) return;
    if (input && k == 0 && s_.messages_apart()) return;  // has a slab of its own
    const bool loaded = models::is_token_ids(life.role);
    const int from = input ? made : loaded && loaded_ >= 0 ? loaded_ : place_of(places, life.forward.first);
    const int to = place_of(places, life.forward.last);
    if (!crosses(layer, index)) return block_->live(from, to, s_.bytes_of(life));
    if (of_freed_head(layer, index)) return block_->live(from, block_->last(), s_.bytes_of(life));
    if (leaving_[k] || (s_.activations_leave() && waits_for_weights(layer, index)))
      return block_->live_behind(from, to, s_.bytes_of(life));
    if (life.encoded > 0 && !is_received(k, index)) block_->live(from, BlockLives::behind(to), s_.bytes_of(life));
  }

  // -- backward -----------------------------------------------------------------------------------------------------
  void live_in_backward(std::size_t k, LifeId index, const std::vector<int>& again, const std::vector<int>& places) {
    const LayerCosts& layer = *layers_[k];
    const Life& life = layer.lives[index];
    if (index == layer.y || index == layer.dy || index == layer.dx) return;
    const bool repeats = recomputes(layer) && life.recompute.any();
    const int to = std::max(repeats ? place_of(again, life.recompute.last) : 0,
                            life.backward.any() ? place_of(places, life.backward.last) : 0);
    const int from = repeats ? place_of(again, life.recompute.first) : place_of(places, life.backward.first);
    if (of_freed_head(layer, index)) return block_->live(0, to, s_.bytes_of(life));
    if (crosses(layer, index)) {
      if (leaving_[k] && !life.weights.any()) return block_->live(fetched(), to, s_.bytes_of(life));
      if (life.encoded == 0 || life.weights.any() || is_received(k, index)) return;
      if (spec_.compression.activations != plan::ActivationEncoding::none) block_->compute(BlockLives::ahead(from));
      return block_->live(BlockLives::ahead(from), to, s_.bytes_of(life));
    }
    if (index == layer.x || life.weights.any()) return;
    if (repeats || life.backward.any()) block_->live(from, to, s_.bytes_of(life));
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

  struct Gathered {
    std::size_t layer = 0;
    Used bucket;
    int from = 0, fetched = 0;  ///< by the message, and its shard
    int read = 0, to = 0;       ///< the first and the last step that reads it
    bool used = false;
  };
  /// ZeRO-3: a message for each bucket of layer `k`, after the runs so far. Shards that live elsewhere are fetched
  /// `spec_.offload.prefetch` runs earlier, counted from the run after the message.
  void gather(std::size_t k, bool for_backward) {
    const LayerCosts& layer = *layers_[k];
    if (s_.zero() < 3 || (for_backward && !layer.backward_reads_parameters)) return;
    for (const Used& bucket : buckets_of(layer)) {
      if (!gathers(bucket)) continue;
      const int from = block_->step(false);
      gathered_.push_back({k, bucket, from, block_->fetched(block_->runs(), spec_.offload.prefetch), from, from});
    }
  }
  void drop_gathered() {
    while (!gathered_.empty() && gathered_.front().used) {
      const Gathered& one = gathered_.front();
      block_->live(one.from, one.to, bytes(one.bucket.shape.elements));
      if (s_.parameters_leave()) block_->live(one.fetched, one.read, bytes(one.bucket.shape.shard));
      gathered_.erase(gathered_.begin());
    }
  }

  void use_parameters(const LayerCosts& layer, const std::vector<int>& places) {
    use_buckets(layer, {&layer.forward}, [&](const Life& life) {
      const StepRange& uses = life.forward;
      return uses.any() ? std::pair{place_of(places, uses.first), place_of(places, uses.last)} : std::pair{-1, -1};
    });
  }
  void use_parameters_in_backward(const LayerCosts& layer, const std::vector<int>& again,
                                  const std::vector<int>& places) {
    const Pass none;
    use_buckets(layer, {recomputes(layer) ? &layer.recompute : &none, &layer.backward}, [&](const Life& uses) {
      const bool repeats = recomputes(layer) && uses.recompute.any(), reads = uses.backward.any();
      const int first = repeats ? place_of(again, uses.recompute.first)
                        : reads ? place_of(places, uses.backward.first)
                                : -1;
      const int end = reads     ? place_of(places, uses.backward.last)
                      : repeats ? place_of(again, uses.recompute.last)
                                : -1;
      return std::pair{first, end};
    });
  }
  /// `when`: the first and the last place where a bucket is used in these passes; -1: it is not.
  template <class When>
  void use_buckets(const LayerCosts& layer, std::initializer_list<const Pass*> passes, const When& when) {
    for (const Used& bucket : buckets_of(layer)) {
      const BucketCosts& costs = layer.in(bucket.of);
      const auto [first, last] = when(bucket.frozen ? costs.frozen_uses : costs.parameter_uses);
      if (gathers(bucket)) {
        const auto one = std::find_if(gathered_.begin(), gathered_.end(), [&](const Gathered& g) {
          return !g.used && layers_[g.layer] == &layer && g.bucket.of == bucket.of && g.bucket.frozen == bucket.frozen;
        });
        if (one == gathered_.end()) continue;
        one->used = true;
        if (first >= 0) one->read = first, one->to = last;
      } else if (s_.parameters_leave() && first >= 0) {
        const ParametersRead read = read_by(passes, bucket.of);
        const std::int64_t whole = s_.zero() == 3 ? bucket.shape.shard : bucket.shape.elements;
        block_->live(fetched(), last, bytes(s_.zero() == 3 || read.several() ? whole : read.elements));
      }
    }
  }

  // -- gradients ----------------------------------------------------------------------------------------------------
  /// ZeRO-2 and 3: full gradients live from the layer's first step of backward to their reduction. Gradients that are
  /// accumulated on the host live on the device until the next layer of backward has run.
  void make_gradients(const LayerCosts& layer, const std::vector<int>& places, ReductionLives& reductions) {
    if (s_.zero() < 2) {
      if (!s_.sums_on_host()) return;
      for (const Used& bucket : buckets_of(layer)) {
        const Life& uses = layer.in(bucket.of).gradient_uses;
        if (bucket.frozen || !uses.backward.any()) continue;
        block_->live_behind(place_of(places, uses.backward.first), place_of(places, uses.backward.last),
                            arena_bytes(bucket.shape.elements, plan::gradient_dtype(spec_.numerics.precision)));
      }
      return;
    }
    const int made = zeroed_ >= 0 ? zeroed_ : place_of(places, layer.backward.computes.first);
    if (!spec_.compresses()) reductions.add_up();
    for (const Used& bucket : buckets_of(layer)) {
      if (bucket.frozen) continue;
      plan::Outline outline = plan::reduction_of(bucket.shape, spec_, plan::Reduces::in_every_pass);
      spec_.compresses() ? reductions.add_in_turn(std::move(outline), made)
                         : reductions.add_late(std::move(outline), made);
    }
  }

  /// The steps of the last pass. A reduction stands right after the last step that writes what it reduces.
  /// `last_alone`: the last operator is a step of its own (LayerCosts::weights_last), without lives of its own.
  std::vector<int> steps_with(const LayerCosts& layer, const Pass& pass, StepRange Life::*pass_of,
                              ReductionLives& reductions, bool last_alone = false) {
    const bool divides = last_alone && layer.weights_last.seconds > 0;
    std::vector<int> places;
    for (int s = 0; s < pass.steps; ++s) {
      places.push_back(block_->step(s >= std::max(0, pass.computes.first)));
      const bool divided = divides && s + 1 == pass.steps;
      const auto behind = [&](const Used& bucket) {
        return divided && layer.weights_last.writes_gradients[static_cast<std::size_t>(bucket.of)];
      };
      const auto reduce = [&](bool late) {
        for (const Used& bucket : buckets_of(layer)) {
          const Life& uses = layer.in(bucket.of).gradient_uses;
          const bool later = pass_of == &Life::backward && uses.weights.any();  // complete in the pass of weights
          const bool tied = bucket.of == LayerBucket::shared && layer.kind == models::LayerKind::head &&
                            layers_.front()->kind == models::LayerKind::embedding;  // complete with the embedding
          if (!bucket.frozen && !later && !tied && (uses.*pass_of).last == s && behind(bucket) == late)
            reductions.add_in_turn(plan::reduction_of(bucket.shape, spec_, plan::Reduces::in_the_last_pass), -1);
        }
      };
      reduce(false);
      if (!divided) continue;
      block_->step(true);
      reduce(true);
    }
    return places;
  }

  const Layers& layers_;
  const Setting& s_;
  const plan::PlanSpec& spec_;
  std::vector<bool> leaving_;
  std::optional<BlockLives> block_;
  std::vector<Gathered> gathered_;
  int zeroed_ = -1;  ///< the step that zeroes a layer's gradients, if it does nothing else
  int loaded_ = -1;  ///< the step that loads the inputs
};

ScratchBytes scratch_of(const Layers& layers, const Setting& setting, const std::vector<plan::ScratchBuffer>& end) {
  PassesOverLayers passes(layers, setting);
  std::vector<std::vector<plan::ScratchBuffer>> blocks = {passes.forward(), passes.backward(false)};
  const bool splits = setting.spec.stages.splits_backward();
  if (splits) blocks.push_back(passes.weights(false));
  if (setting.rounds_early()) {
    blocks.push_back(passes.backward(true));
    if (splits) blocks.push_back(passes.weights(true));
  }
  if (!end.empty()) blocks.push_back(end);
  return scratch_bytes(std::move(blocks), setting.packs);
}

/// Everything that PassesOverLayers reads, as numbers.
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
  if (fresh) known->second = scratch_of(few, setting, {});
  return known->second.alive;
}

ScratchBytes PassMemo::of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const ChunkPlace& place,
                          bool packs, const std::vector<plan::ScratchBuffer>& end) {
  const Setting setting{spec, place, packs};
  const Layers few = few_of_many(layers, setting);
  if (!end.empty()) return scratch_of(few, setting, end);
  const auto [known, fresh] = known_.try_emplace(key_of(few, setting));
  if (fresh) known->second = scratch_of(few, setting, {});
  return known->second;
}

}  // namespace orrery::cost
