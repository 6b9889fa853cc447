/// Memory of a stage, from intervals of steps.
#include "cost/estimate/memory.h"

#include <algorithm>

#include "cost/estimate/fold.h"
#include "cost/estimate/offload.h"
#include "cost/estimate/split_slabs.h"
#include "plan/lower/buckets.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

namespace {

/// More equal layers in a row than this do not raise the peak.
constexpr std::int64_t kDistinctInARow = 3;

struct LiveSpan {
  int from = 0, to = 0;
  double bytes = 0;
};

/// Most bytes alive at once, over steps 0 to `steps`. Spans that end later are cut at the end of the pass; those that
/// begin later are ignored.
double most_alive(const std::vector<LiveSpan>& intervals, int steps) {
  std::vector<double> change(static_cast<std::size_t>(steps) + 2, 0);
  for (const LiveSpan& i : intervals) {
    if (i.from > steps) continue;
    change[static_cast<std::size_t>(i.from)] += i.bytes;
    change[static_cast<std::size_t>(std::min(i.to, steps)) + 1] -= i.bytes;
  }
  double alive = 0, most = 0;
  for (const double c : change) {
    alive += c;
    most = std::max(most, alive);
  }
  return most;
}

/// The passes of a stage as lowering lays them out, with few of many equal layers.
class Passes {
 public:
  /// `staying`: number of blocks at the top that keep on the device what others send to the host.
  Passes(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, std::int64_t staying)
      : spec_(spec),
        messages_apart_(spec.virtual_stages > 1 || spec.splits_backward() || spec.asynchronous()),
        zero_(spec.replicas() > 1 ? spec.zero_stage : 0),
        compute_(plan::expand_options(spec).dtype),
        gradient_(plan::gradient_dtype(spec.precision)) {
    const std::int64_t distinct =
        leaves() ? std::max<std::int64_t>(kDistinctInARow, staying + spec.offload.prefetch + 2) : kDistinctInARow;
    for (const LayerRun& run : layers)
      for (std::int64_t i = 0; i < std::min(run.count, distinct); ++i) layers_.push_back(run.costs);
    leaving_.assign(layers_.size(), false);
    for (std::size_t k = layers_.size(); k-- > 0;)
      leaving_[k] = leaves() && layers_[k]->kind == models::LayerKind::block && staying-- <= 0;
  }

  [[nodiscard]] double forward() {
    begin();
    step();  // receive or load
    if (gathers()) gather(*layers_.front(), false);
    std::vector<int> starts;
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      const LayerCosts& layer = *layers_[k];
      starts.push_back(at_);
      if (gathers() && k + 1 < layers_.size()) gather(*layers_[k + 1], false);
      fetch_parameters(layer, starts, at_ + layer.forward.steps - 1);
      const bool last = k + 1 == layers_.size();
      for (std::size_t i = 0; i < layer.lives.size(); ++i) {
        const Life& life = layer.lives[i];
        const int index = static_cast<int>(i);
        if (index == layer.x && !crosses(layer, index)) {
          add(input_made(k, starts), at_ + life.forward_last, life.bytes);
        }
        if (life.forward_first < 0 || crosses(layer, index) || index == layer.x) continue;
        if (index == layer.y && (!last || messages_apart_)) continue;  // the next layer's x, or waits for its turn
        add(at_ + life.forward_first, index == layer.y ? at_ + layer.forward.steps : at_ + life.forward_last,
            life.bytes);
      }
      at_ += layer.forward.steps;
      if (gathers()) end_gathered();
    }
    leave(starts);
    wait_in_full(starts);
    step();  // send
    return most_alive(intervals_, at_);
  }

  [[nodiscard]] double backward() {
    begin();
    std::vector<int> starts;
    int received = at_;  // the step that produced the current gradient
    double received_bytes = 0;
    step();
    if (gathers()) gather(*layers_.back(), true);
    for (std::size_t k = layers_.size(); k-- > 0;) {
      const LayerCosts& layer = *layers_[k];
      starts.push_back(at_);
      if (leaving_[k]) come_back(layer, starts);
      decode(k);
      if (gathers() && k > 0) gather(*layers_[k - 1], true);
      const int recompute = at_, backward = at_ + (recomputes(layer) ? layer.recompute.steps : 0);
      const int after = backward + layer.backward.steps;
      for (std::size_t i = 0; i < layer.lives.size(); ++i)
        live_in_backward(layer, static_cast<int>(i), recompute, backward);
      const bool kept = layer.dy >= 0 && layer.lives[static_cast<std::size_t>(layer.dy)].weights_first >= 0;
      if (layer.dy >= 0 && !kept && !(messages_apart_ && k + 1 == layers_.size())) {
        const Life& dy = layer.lives[static_cast<std::size_t>(layer.dy)];
        add(received, backward + std::max(0, dy.backward_last), received_bytes > 0 ? received_bytes : dy.bytes);
      }
      if (layer.dx >= 0) {
        received = backward + std::max(0, layer.lives[static_cast<std::size_t>(layer.dx)].backward_first);
        received_bytes = layer.lives[static_cast<std::size_t>(layer.dx)].bytes;
      }
      if (layer.backward_reads_parameters) fetch_parameters(layer, starts, after - 1);
      at_ = after;
      if (gathers() && layer.backward_reads_parameters) end_gathered();
      reduce(layer, backward);
      make_gradients(layer, backward);
    }
    for (const auto& [from, bytes] : made_) add(from, at_, bytes);
    made_.clear();
    step();  // accumulate the last gradients, or send
    if (layers_.front()->dx >= 0 && !messages_apart_) add(received, at_, received_bytes);
    step();
    return most_alive(intervals_, at_);
  }

  /// The second half of a split backward: gradients of the weights.
  [[nodiscard]] double weights() {
    begin();
    std::vector<int> starts;
    for (std::size_t k = layers_.size(); k-- > 0;) {
      starts.push_back(at_);
      for (int i = 0; leaves() && i < static_cast<int>(layers_[k]->lives.size()); ++i) {
        const Life& life = layers_[k]->lives[static_cast<std::size_t>(i)];
        if (waits_for_weights(*layers_[k], i)) add(fetched_at(starts), at_ + life.weights_last, life.bytes);
      }
      for (const Life& life : layers_[k]->lives)
        if (life.weights_first >= 0 && life.forward_first < 0 && life.backward_first < 0 && life.recompute_first < 0)
          add(at_ + life.weights_first, at_ + life.weights_last, life.bytes);
      at_ += layers_[k]->weights.steps;
    }
    return most_alive(intervals_, at_);
  }

 private:
  [[nodiscard]] bool gathers() const { return zero_ == 3; }
  [[nodiscard]] static bool recomputes(const LayerCosts& layer) { return layer.recomputation == plan::Recompute::full; }
  [[nodiscard]] bool leaves() const { return spec_.offload.activations == plan::Space::host; }

  /// Forward: the step that makes layer k's input, or receives it.
  [[nodiscard]] int input_made(std::size_t k, const std::vector<int>& starts) const {
    if (k == 0) return 0;
    const LayerCosts& before = *layers_[k - 1];
    return starts[k - 1] + std::max(0, before.lives[static_cast<std::size_t>(before.y)].forward_first);
  }
  /// Forward: what leaves for the host lives until the layer after its own has run.
  void leave(const std::vector<int>& starts) {
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      const LayerCosts& layer = *layers_[k];
      const int end = k + 2 < starts.size() ? starts[k + 2] : at_;
      for (std::size_t i = 0; i < layer.lives.size(); ++i) {
        const int index = static_cast<int>(i);
        if (index == layer.y || !crosses(layer, index)) continue;
        if (!leaving_[k] && !(leaves() && waits_for_weights(layer, index))) continue;
        int from = starts[k] + std::max(0, layer.lives[i].forward_first);
        if (index == layer.x) from = input_made(k, starts);
        add(from, end, layer.lives[i].bytes);
      }
    }
  }
  /// When the copy begins that brings back what the last layer of `starts` reads.
  [[nodiscard]] int fetched_at(const std::vector<int>& starts) const {
    const auto ahead = static_cast<std::size_t>(spec_.offload.prefetch);
    return starts.size() > ahead ? starts[starts.size() - 1 - ahead] : 0;
  }
  /// Backward: offloaded tensors are back when the layer that is `prefetch` layers ahead of their own begins.
  void come_back(const LayerCosts& layer, const std::vector<int>& starts) {
    const int from = fetched_at(starts);
    const int backward = at_ + (recomputes(layer) ? layer.recompute.steps : 0);
    for (std::size_t i = 0; i < layer.lives.size(); ++i) {
      const Life& life = layer.lives[i];
      if (static_cast<int>(i) == layer.y || !crosses(layer, static_cast<int>(i))) continue;
      if (life.weights_first >= 0) continue;  // lives beyond this pass, or comes back in that of the weights
      const int read_again = recomputes(layer) ? at_ + std::max(0, life.recompute_last) : 0;
      const int read = life.backward_last >= 0 ? backward + life.backward_last : 0;
      add(from, std::max(read_again, read), life.bytes);
    }
  }

  /// A tensor received from another stage is not encoded.
  [[nodiscard]] bool is_received(std::size_t k, int life) const { return k == 0 && life == layers_[0]->x; }
  /// Forward: an encoded tensor exists in full until its last use; a layer's output until the next layer's.
  void wait_in_full(const std::vector<int>& starts) {
    for (std::size_t k = 0; k < layers_.size(); ++k)
      for (std::size_t i = 0; i < layers_[k]->lives.size(); ++i) {
        const Life& life = layers_[k]->lives[i];
        if (life.encoded == 0 || is_received(k, static_cast<int>(i))) continue;
        int from = starts[k] + std::max(0, life.forward_first);
        if (static_cast<int>(i) == layers_[k]->x) from = input_made(k, starts);
        add(from, starts[k] + std::max(0, life.forward_last), life.bytes);
      }
  }
  /// Backward: the decoded tensor exists from its first use to its last.
  void decode(std::size_t k) {
    const LayerCosts& layer = *layers_[k];
    const int backward = at_ + (recomputes(layer) ? layer.recompute.steps : 0);
    for (std::size_t i = 0; i < layer.lives.size(); ++i) {
      const Life& life = layer.lives[i];
      if (life.encoded == 0 || is_received(k, static_cast<int>(i))) continue;
      const bool again = recomputes(layer) && life.recompute_first >= 0;
      const int read_again = again ? at_ + life.recompute_last : 0;
      const int read = life.backward_last >= 0 ? backward + life.backward_last : 0;
      add(again ? at_ + life.recompute_first : backward + std::max(0, life.backward_first), std::max(read_again, read),
          life.bytes);
    }
  }

  void begin() {
    intervals_.clear();
    gathered_.clear();
    at_ = 0;
  }
  void step() { ++at_; }
  void add(int from, int to, double bytes) { intervals_.push_back({from, std::max(from, to), bytes}); }

  void live_in_backward(const LayerCosts& layer, int index, int recompute, int backward) {
    const Life& life = layer.lives[static_cast<std::size_t>(index)];
    if (index == layer.x || index == layer.dy || index == layer.dx || life.weights_first >= 0) return;
    if (recomputes(layer) && life.recompute_first >= 0) {
      add(recompute + life.recompute_first,
          std::max(recompute + life.recompute_last, life.backward_last >= 0 ? backward + life.backward_last : 0),
          life.bytes);
    } else if (life.backward_first >= 0 && !crosses(layer, index)) {
      add(backward + life.backward_first, backward + life.backward_last, life.bytes);
    }
  }

  [[nodiscard]] std::int64_t padded(std::int64_t elements, int shards) const {
    return plan::round_up(elements, shards * plan::parameter_alignment(spec_.optimizer));
  }
  /// Offloaded parameters are fetched ahead of a layer's pass; under ZeRO-3 as shards, ahead of their gather.
  void fetch_parameters(const LayerCosts& layer, const std::vector<int>& starts, int last) {
    if (spec_.offload.parameters == plan::Space::device) return;
    const auto ahead = static_cast<std::size_t>(spec_.offload.prefetch) + (gathers() ? 1 : 0);
    const int from = starts.size() > ahead ? starts[starts.size() - 1 - ahead] : 0;
    add(from, last, gathers() ? shard(layer, compute_) : full(layer, compute_));
  }
  /// Gradients that are accumulated on the host live on the device until the next layer of backward has run.
  void make_gradients(const LayerCosts& layer, int backward) {
    if (spec_.offload.optimizer == plan::Space::device || zero_ >= 2) return;
    if (made_.size() >= 2) {
      add(made_.front().first, at_ - 1, made_.front().second);
      made_.erase(made_.begin());
    }
    made_.emplace_back(backward, full(layer, gradient_));
  }
  [[nodiscard]] double full(const LayerCosts& layer, models::DType dtype) const {
    double sum = 0;
    each_bucket(layer, [&](std::int64_t elements, int) { sum += arena_bytes(elements, dtype); });
    return sum;
  }
  [[nodiscard]] double shard(const LayerCosts& layer, models::DType dtype) const {
    double sum = 0;
    each_bucket(layer, [&](std::int64_t elements, int shards) { sum += arena_bytes(elements, dtype) / shards; });
    return sum;
  }
  /// Of each bucket that a layer uses its elements, padded, and among how many ranks they are partitioned: of those
  /// that train, or of the frozen ones.
  template <class Visit>
  void each_bucket(const LayerCosts& layer, const Visit& visit, bool frozen = false) const {
    for (const LayerBucket of : kLayerBuckets) {
      const int shards = spec_.shards_of(of == LayerBucket::experts);
      const std::int64_t elements = frozen ? layer.frozen_of(of) : layer.elements_of(of);
      if (elements > 0) visit(padded(elements, shards), shards);
    }
  }

  void gather(const LayerCosts& layer, bool for_backward) {
    if (for_backward && !layer.backward_reads_parameters) return;
    // Buckets that are not sharded need no gather.
    double bytes = 0;
    for (const bool frozen : {false, true})
      each_bucket(
          layer,
          [&](std::int64_t elements, int shards) {
            if (shards > 1) bytes += arena_bytes(elements, compute_);
          },
          frozen);
    gathered_.push_back({at_, 0, bytes});
    step();
  }
  void end_gathered() {
    gathered_.front().to = at_ - 1;
    intervals_.push_back(gathered_.front());
    gathered_.erase(gathered_.begin());
  }

  /// ZeRO-2 and 3: full gradients live from the first backward step to their reduction; the reduced shard until the
  /// next layer's is accumulated.
  void reduce(const LayerCosts& layer, int backward) {
    if (zero_ < 2) return;
    step();  // accumulates the previous layer's
    if (layer.partial_elements > 0) step();
    if (spec_.exchanges_by_node()) return reduce_by_node(layer, backward);
    if (spec_.compresses()) {
      const double half = full(layer, models::DType::bf16);
      const int next = 1 + layer.backward.steps + (recomputes(layer) ? layer.recompute.steps : 0);
      const bool rounds = gradient_ == models::DType::fp32;
      add(backward, at_ + (rounds ? 0 : 1), full(layer, gradient_));
      if (rounds) add(at_, at_ + 1, half);
      add(at_ + 1, at_ + 1 + next, half);
      step();
      return step();
    }
    const int added = at_ + 1 + layer.backward.steps + (recomputes(layer) ? layer.recompute.steps : 0);
    add(backward, layer.reduced_beside ? added : at_, full(layer, gradient_));
    add(at_, added, shard(layer, gradient_));
    step();
  }

  /// Gradients reduced within the node wait for the next layer's backward before they are rounded and exchanged, and
  /// the result of the exchange waits for one more layer before it is accumulated.
  void reduce_by_node(const LayerCosts& layer, int backward) {
    const int between = layer.backward.steps + (recomputes(layer) ? layer.recompute.steps : 0);
    const auto part = static_cast<double>(spec_.compression.group);
    step();  // the previous layer's are rounded
    step();  // and exchanged
    const int rounded = at_ + between + 2;
    add(backward, at_, full(layer, gradient_));
    add(at_, rounded, full(layer, gradient_) / part);
    add(rounded, rounded + 1, full(layer, models::DType::bf16) / part);
    add(rounded + 1, rounded + between + 3, full(layer, models::DType::bf16) / part);
    step();
  }

  const plan::PlanSpec& spec_;
  std::vector<bool> leaving_;
  bool messages_apart_;  ///< received and sent tensors live between blocks, not within one
  int zero_;
  models::DType compute_, gradient_;
  std::vector<const LayerCosts*> layers_;
  std::vector<LiveSpan> intervals_, gathered_;
  std::vector<std::pair<int, double>> made_;  ///< gradients in transit to the host: start, bytes
  int at_ = 0;
};

}  // namespace

std::vector<BucketSize> buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  const auto add = [&](std::int64_t elements, std::int64_t count, plan::BucketShape shape, bool written) {
    if (elements == 0) return;
    const int shards = spec.shards_of(shape.experts);
    shape.elements = plan::round_up(elements, shards * plan::parameter_alignment(spec.optimizer));
    shape.shard = shape.elements / shards;
    out.push_back({shape, count, written});
  };
  // The head first writes a tied table's gradient; in a split backward its product comes after the embedding's scatter.
  const LayerCosts &bottom = *layers.front().costs, &top = *layers.back().costs;
  const bool tables = top.kind == models::LayerKind::head && top.shared_written &&
                      !(spec.splits_backward() && bottom.kind == models::LayerKind::embedding);
  for (const LayerRun& run : layers) {
    const LayerCosts& c = *run.costs;
    if (!shared && c.shared_elements > 0) {
      add(c.shared_elements, 1,
          {.parameters = c.shared_parameters,
           .factors = c.shared_factors,
           .embedding = true,
           .matrices = &c.shared_matrices},
          tables);
      shared = true;
    }
    add(c.own_elements, run.count,
        {.partial = c.partial_elements,
         .parameters = c.own_parameters,
         .factors = c.own_factors,
         .embedding = c.kind == models::LayerKind::embedding,
         .matrices = &c.own_matrices,
         .whole = c.whole.matrices.empty() ? nullptr : &c.whole},
        c.own_written);
    add(c.expert_elements, run.count,
        {.parameters = c.expert_parameters,
         .factors = c.expert_factors,
         .experts = true,
         .matrices = &c.expert_matrices},
        c.expert_written);
  }
  return out;
}

namespace {

/// Most bytes of the slabs of interleaved chunks (plan/schedule/place.h): what each keeps per micro-batch, and the
/// messages that wait for their turn. `saved`: by chunk, including the received input.
double interleaved_slabs(const std::vector<double>& saved, double boundary, const plan::PlanSpec& spec, int stage,
                         std::int64_t micro_batches) {
  using Kind = plan::Move::Kind;
  enum Slab { kept, input, output, gradient, input_gradient, slabs };
  const auto chunks = static_cast<int>(saved.size());
  std::vector<std::int64_t> sizes;
  for (int c = 0; c < chunks; ++c) {
    const double received = stage > 0 || c > 0 ? boundary : 0;
    sizes.push_back(static_cast<std::int64_t>(saved[static_cast<std::size_t>(c)] - received));
    sizes.insert(sizes.end(), slabs - 1, static_cast<std::int64_t>(boundary));
  }
  const std::vector<int> pool_of = plan::slab_pools(sizes);
  std::vector<std::int64_t> alive(sizes.size(), 0), most(sizes.size(), 0), bytes(sizes.size(), 0);
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  for (std::size_t i = 0; i < sizes.size(); ++i) bytes[at(pool_of[i])] = std::max(bytes[at(pool_of[i])], sizes[i]);
  const auto change = [&](int chunk, Slab slab, int by) {
    const std::size_t pool = at(pool_of[at(chunk * slabs + slab)]);
    alive[pool] += by;
    most[pool] = std::max(most[pool], alive[pool]);
  };
  std::vector<std::pair<int, Slab>> leaving;      // sent, but no pass has waited for it yet
  const std::int64_t enough = 3 * spec.pipeline;  // by then the most micro-batches are in flight
  for (const plan::Move& move : plan::interleaved(stage, spec.pipeline, chunks, std::min(micro_batches, enough))) {
    const int c = move.chunk;
    const bool begins = stage == 0 && c == 0, ends = stage + 1 == spec.pipeline && c + 1 == chunks;
    if (move.kind == Kind::forward || move.kind == Kind::backward) {
      for (const auto& [chunk, slab] : leaving) change(chunk, slab, -1);
      leaving.clear();
    }
    switch (move.kind) {
      case Kind::weights: break;  // only in other orders
      case Kind::receive_activation: change(c, input, 1); break;
      case Kind::forward:
        change(c, kept, 1);
        if (!ends) change(c, output, 1);
        break;
      case Kind::send_activation: leaving.emplace_back(c, output); break;
      case Kind::receive_gradient: change(c, gradient, 1); break;
      case Kind::backward:
        if (!ends) change(c, gradient, -1);
        if (!begins) change(c, input_gradient, 1);
        change(c, kept, -1);
        if (!begins) change(c, input, -1);
        break;
      case Kind::send_gradient: leaving.emplace_back(c, input_gradient); break;
    }
  }
  double sum = 0;
  for (std::size_t i = 0; i < most.size(); ++i) sum += static_cast<double>(most[i]) * static_cast<double>(bytes[i]);
  return sum;
}

/// Elements of a stage's parameters: all, those that this rank optimizes, and the largest matrix outside the blocks.
struct Elements {
  double all = 0, optimized = 0, largest = 0;
};

/// Adds the framework's memory besides weights, optimizer states and activations, as `kind` counts it.
void add_framework(StageMemory& m, const Elements& elements, const plan::PlanSpec& spec, const MemoryRecipe& recipe,
                   MemoryKind kind, double in_flight) {
  const models::DType compute = plan::expand_options(spec).dtype, gradient = plan::gradient_dtype(spec.precision);
  const bool beside = recipe.gradients_beside && gradient != compute && spec.zero_stage < 3;
  if (beside) m.gradients += elements.all * static_cast<double>(models::size_of(compute));
  double bucket = 0;
  if (spec.replicas() > 1 && recipe.reduce_bucket > 0) {
    bucket = std::min(elements.all, static_cast<double>(recipe.reduce_bucket));
    if (beside) bucket = std::max(bucket, elements.largest);
    bucket *= static_cast<double>(models::size_of(gradient));
  }
  const double per_parameter = compute == models::DType::fp16   ? recipe.update_fp16
                               : compute == models::DType::bf16 ? recipe.update_bf16
                                                                : 0;
  const double update = elements.optimized * per_parameter, passes = m.activations + m.workspace;
  if (kind == MemoryKind::allocated) {
    m.communication = std::max(0.0, update + bucket - passes);
  } else {
    m.communication = bucket + (recipe.update_in_one_piece ? update : std::max(0.0, update - passes));
  }
  const double lost = kind == MemoryKind::needed ? recipe.stuck : recipe.fragmentation;
  const double between = recipe.pipeline_fragmentation * m.activations * (1 - 1 / std::max(1.0, in_flight));
  if (kind != MemoryKind::allocated) m.communication += lost * passes + between;
  if (kind != MemoryKind::device && kind != MemoryKind::needed) m.software = 0;
}

/// A pipeline that never drains keeps p - s micro-batches, one more received input and one gradient, a buffer for each
/// message that it sends, and versions of its weights.
void add_asynchronous(StageMemory& m, double saved, double boundary, const plan::PlanSpec& spec, int stage) {
  const bool first = stage == 0, last = stage + 1 == spec.pipeline;
  m.activations = saved * (spec.pipeline - stage) + (first ? 0 : boundary) + (last ? 0 : boundary);
  m.communication += (first ? 0 : boundary) + (last ? 0 : boundary);
  m.parameters *= 1 + plan::weight_delay(spec, stage);
}

/// A parameter server's worker keeps versions of weights and of gradients in flight and, for its shard of the server,
/// what the workers have sent; also one coefficient per worker, and losses.
void add_server(StageMemory& m, const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  m.parameters *= 1 + spec.staleness;
  for (const BucketSize& b : buckets)
    m.communication += static_cast<double>(b.count) * arena_bytes(b.elements, plan::gradient_dtype(spec.precision));
  m.gradients *= std::max(1, spec.staleness);
  m.input += arena_bytes(spec.data, models::DType::fp32) + static_cast<double>(spec.staleness * plan::kAlignment);
}

}  // namespace

StageMemory stage_memory(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec, int stage,
                         std::int64_t micro_batches, double software, const MemoryRecipe& recipe,
                         MemoryQuestion question) {
  std::vector<LayerRun> layers;
  for (const std::vector<LayerRun>& chunk : chunks) layers.insert(layers.end(), chunk.begin(), chunk.end());
  const int zero = spec.replicas() > 1 ? spec.zero_stage : 0;
  const models::DType compute = plan::expand_options(spec).dtype;
  const models::DType gradient = plan::gradient_dtype(spec.precision);
  StageMemory m;
  Elements elements;
  const std::vector<BucketSize> buckets = buckets_of(layers, spec);
  for (const BucketSize& b : buckets) {
    const auto count = static_cast<double>(b.count);
    const std::int64_t optimized = optimized_of(b, spec);
    if (spec.offload.parameters == plan::Space::device)
      m.parameters += count * arena_bytes(zero == 3 ? b.shard : b.elements, compute);
    if (spec.offload.optimizer == plan::Space::device) {
      m.gradients += count * arena_bytes(zero >= 2 ? b.shard : b.elements, gradient);
      m.optimizer_states += count * state_bytes(b, spec, recipe.moment_bytes);
    }
    elements.all += count * static_cast<double>(b.elements);
    elements.optimized += count * static_cast<double>(optimized);
  }
  for (const BucketSize& b : frozen_buckets_of(layers, spec))
    m.parameters += static_cast<double>(b.count) * arena_bytes(zero == 3 ? b.shard : b.elements, compute);
  const double reduced = reduction_bytes(buckets, spec);
  std::vector<double> saved;
  std::vector<std::int64_t> stay;
  double boundary = 0;
  m.optimizer_states += factor_bytes(buckets, spec);
  const StatesElsewhere elsewhere = states_elsewhere(buckets, spec);
  m.host += elsewhere.host;
  m.nvme += elsewhere.nvme;
  m.workspace = std::max({reduced, update_bytes(buckets, spec), elsewhere.finish});
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::vector<LayerRun>& chunk = chunks[c];
    const bool leaves = spec.offload.activations == plan::Space::host;
    const bool head = chunk.back().costs->kind == models::LayerKind::head;
    const std::int64_t staying = leaves ? staying_blocks(spec, stage, static_cast<int>(c), head, micro_batches) : 0;
    stay.push_back(staying);
    Passes passes(chunk, spec, staying);
    double slab = leaves ? -leaving_bytes(chunk, staying) : 0;
    if (leaves)
      m.host += leaving_bytes(chunk, staying) *
                static_cast<double>(most_in_flight(spec, stage, static_cast<int>(c), micro_batches));
    for (const LayerRun& run : chunk) {
      slab += static_cast<double>(run.count) * saved_bytes(*run.costs);
      if (run.costs->x >= 0) boundary = run.costs->lives[static_cast<std::size_t>(run.costs->x)].bytes;
      const bool block = run.costs->kind == models::LayerKind::block;
      const std::int64_t table = std::max(run.costs->shared_elements, block ? 0 : run.costs->own_elements);
      elements.largest = std::max(elements.largest, static_cast<double>(table));
    }
    const LayerCosts& first = *chunk.front().costs;
    if (first.x >= 0 && first.lives[static_cast<std::size_t>(first.x)].encoded > 0)  // received: not encoded
      slab +=
          first.lives[static_cast<std::size_t>(first.x)].bytes - first.lives[static_cast<std::size_t>(first.x)].encoded;
    saved.push_back(slab);
    const double beside = spec.reduces_early() ? reduced : 0;  // while the last passes run
    m.workspace = std::max({m.workspace, passes.forward(), passes.backward() + beside, passes.weights() + beside});
  }
  if (recipe.keeps_messages)
    for (std::size_t c = 0; c < saved.size(); ++c) {
      const bool begins = stage == 0 && c == 0, ends = stage + 1 == spec.pipeline && c + 1 == saved.size();
      saved[c] += (begins ? 0 : boundary) + (ends ? 0 : boundary);
    }
  if (spec.virtual_stages == 1 && question.zero_bubble != plan::ZeroBubble::none) {
    // A framework frees what it has sent, and what the weights' gradients do not read.
    const plan::Held held = plan::held(question.zero_bubble, stage, spec.pipeline, micro_batches);
    double half = 0;
    for (const LayerRun& run : layers) half += static_cast<double>(run.count) * run.costs->weight_inputs;
    m.activations = saved.front() * static_cast<double>(held.whole) + half * static_cast<double>(held.for_weights);
  } else if (spec.splits_backward()) {
    m.activations = split_slabs(chunks, spec, stage, micro_batches, stay);
  } else if (spec.asynchronous()) {
    add_asynchronous(m, saved.front(), boundary, spec, stage);
  } else if (spec.virtual_stages > 1) {
    m.activations = interleaved_slabs(saved, boundary, spec, stage, micro_batches);
  } else {
    m.activations =
        saved.front() * static_cast<double>(plan::in_flight(spec.order, stage, spec.pipeline, micro_batches));
  }
  // Loss, gradient norm, its square, clip coefficient, and loss scaling.
  m.input = (spec.precision == models::DType::fp16 ? 5 : 4) * static_cast<double>(plan::kAlignment);
  if (spec.has_server()) add_server(m, buckets, spec);
  m.software = software;
  const std::int64_t in_flight = spec.splits_backward() || spec.asynchronous() || spec.virtual_stages > 1
                                     ? std::int64_t{spec.pipeline}
                                     : plan::in_flight(spec.order, stage, spec.pipeline, micro_batches);
  if (recipe.stated) add_framework(m, elements, spec, recipe, question.kind, static_cast<double>(in_flight));
  return m;
}

}  // namespace orrery::cost
