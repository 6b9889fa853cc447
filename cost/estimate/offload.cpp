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
std::vector<plan::Move> passes_of(const plan::PlanSpec& spec, int stage, std::int64_t micro_batches) {
  const std::int64_t few = std::min<std::int64_t>(micro_batches, 4 * static_cast<std::int64_t>(spec.pipeline));
  std::vector<plan::Move> out;
  if (spec.virtual_stages == 1 && !spec.splits_backward()) {
    for (const plan::Turn& turn : plan::turns(spec.order, stage, spec.pipeline, few))
      out.push_back({turn.forward ? Kind::forward : Kind::backward, turn.micro_batch, 0});
    return out;
  }
  const std::vector<plan::Move> moves = spec.splits_backward()
                                            ? plan::moves_of(spec, few)[static_cast<std::size_t>(stage)]
                                            : plan::interleaved(stage, spec.pipeline, spec.virtual_stages, few);
  for (const plan::Move& move : moves)
    if (move.kind == Kind::forward || move.kind == Kind::backward || move.kind == Kind::weights) out.push_back(move);
  return out;
}

}  // namespace

std::int64_t staying_blocks(const plan::PlanSpec& spec, int stage, int chunk, bool head, std::int64_t micro_batches) {
  const std::vector<plan::Move> passes = passes_of(spec, stage, micro_batches);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].kind != Kind::backward || passes[i].chunk != chunk) continue;
    const bool follows = i > 0 && passes[i - 1].kind == Kind::forward && passes[i - 1].chunk == chunk &&
                         passes[i - 1].micro_batch == passes[i].micro_batch;
    if (!follows) return 0;
  }
  return spec.offload.prefetch + (head ? 0 : 1);
}

std::int64_t most_in_flight(const plan::PlanSpec& spec, int stage, int chunk, std::int64_t micro_batches) {
  if (spec.order == plan::Order::gpipe) return micro_batches;
  std::int64_t now = 0, most = 0;
  for (const plan::Move& pass : passes_of(spec, stage, micro_batches)) {
    if (pass.chunk != chunk || pass.kind == Kind::weights) continue;
    now += pass.kind == Kind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

bool crosses(const LayerCosts& layer, int index) {
  const Life& life = layer.lives[static_cast<std::size_t>(index)];
  if (index == layer.x) {  // a head that selects rows from it does not bring it back
    const bool again = layer.recomputation == plan::Recompute::full && life.recompute_first >= 0;
    return again || life.backward_first >= 0 || life.weights_first >= 0;
  }
  if (layer.recomputation == plan::Recompute::full || life.dropped) return false;
  return life.forward_first >= 0 && (life.backward_first >= 0 || life.weights_first >= 0);
}

bool waits_for_weights(const LayerCosts& layer, int index) {
  if (layer.kind != models::LayerKind::block || index == layer.y || !crosses(layer, index)) return false;
  const Life& life = layer.lives[static_cast<std::size_t>(index)];
  const bool again = layer.recomputation == plan::Recompute::full && life.recompute_first >= 0;
  return life.weights_first >= 0 && life.backward_first < 0 && !again;
}

double saved_bytes(const LayerCosts& layer) {
  double sum = 0;
  for (std::size_t i = 0; i < layer.lives.size(); ++i)
    if (static_cast<int>(i) != layer.y && crosses(layer, static_cast<int>(i)))
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

double copy_seconds(const LayerCosts& layer, plan::Stream stream, const Lockstep& lockstep) {
  double sum = 0;
  for (std::size_t i = 0; i < layer.lives.size(); ++i)
    if (static_cast<int>(i) != layer.y && crosses(layer, static_cast<int>(i)))
      sum += lockstep.copy_time(stream, base::Bytes{layer.lives[i].bytes}).value;
  return sum;
}

std::int64_t padded(std::int64_t elements, int shards) {
  const std::int64_t unit = shards * plan::kParameterAlignment;
  return (elements + unit - 1) / unit * unit;
}

/// Elements of each bucket that a layer uses.
std::vector<std::int64_t> elements_of(const LayerCosts& layer, const plan::PlanSpec& spec) {
  std::vector<std::int64_t> out;
  for (const LayerBucket of : {LayerBucket::own, LayerBucket::experts, LayerBucket::shared})
    if (layer.elements_of(of) > 0)
      out.push_back(padded(layer.elements_of(of), spec.shards_of(of == LayerBucket::experts)));
  return out;
}

/// A layer in one pass, as copies see it: seconds.
struct Layer {
  double computing = 0;
  double files = 0, fetched = 0;  ///< from NVMe, and to the device, before the pass
  double leaving = 0;             ///< to the host, after it
};

/// Seconds of a pass. Data that leaves a layer is waited for after the next layer; at the end of the pass, for all.
struct Seconds {
  double all = 0, ahead = 0, tail = 0;  ///< before the first layer's compute, and behind the last one's
};
Seconds seconds_of(const std::vector<Layer>& layers, std::size_t prefetch) {
  const std::size_t n = layers.size();
  std::vector<double> come(n, 0), left(n, 0);
  double now = 0, files = 0, in = 0, out = 0;
  std::size_t next = 0;  // the next layer to fetch
  for (std::size_t r = 0; r < n; ++r) {
    for (; next < n && next <= r + prefetch; ++next) {
      double begin = now;
      if (layers[next].files > 0) begin = files = std::max(now, files) + layers[next].files;
      if (layers[next].fetched > 0) come[next] = in = std::max(begin, in) + layers[next].fetched;
    }
    if (r >= 2) now = std::max(now, left[r - 2]);
    now = std::max(now, come[r]) + layers[r].computing;
    if (layers[r].leaving > 0) left[r] = out = std::max(now, out) + layers[r].leaving;
  }
  if (n == 0) return {};
  if (n >= 2) now = std::max(now, left[n - 2]);
  const double tail = std::max(0.0, left.back() - now);
  return {now + tail, come.front(), tail};
}

/// Seconds of a pass whose copies make no progress while it computes.
double seconds_apart(const std::vector<Layer>& layers) {
  double sum = 0;
  for (const Layer& l : layers) sum += l.computing + l.files + l.fetched + l.leaving;
  return sum;
}

class Passing {
 public:
  Passing(const plan::PlanSpec& spec, const Lockstep& lockstep) : spec_(spec), lockstep_(lockstep) {}

  [[nodiscard]] Layer forward(const LayerCosts& layer, bool leaves) const {
    Layer out{forward_seconds(layer)};
    if (leaves) out.leaving = copy_seconds(layer, plan::Stream::to_host, lockstep_);
    add_parameters(out, layer);
    return out;
  }
  [[nodiscard]] Layer backward(const LayerCosts& layer, bool leaves) const {
    Layer out{backward_seconds(layer)};
    if (leaves) out.fetched = copy_seconds(layer, plan::Stream::from_host, lockstep_);
    if (layer.backward_reads_parameters) add_parameters(out, layer);
    if (spec_.offload.optimizer == plan::Space::device) return out;
    const models::DType dtype = plan::gradient_dtype(spec_.precision);
    for (const std::int64_t elements : elements_of(layer, spec_)) {
      const std::int64_t made = zero_of(spec_) >= 2 ? elements / spec_.shards() : elements;
      out.leaving += lockstep_.copy_time(plan::Stream::to_host, bytes(made, dtype), true).value;
    }
    return out;
  }

 private:
  static base::Bytes bytes(std::int64_t elements, models::DType dtype) {
    return base::Bytes{static_cast<double>(elements * models::size_of(dtype))};
  }
  void add_parameters(Layer& out, const LayerCosts& layer) const {
    if (spec_.offload.parameters == plan::Space::device) return;
    const models::DType dtype = plan::expand_options(spec_).dtype;
    for (const std::int64_t elements : elements_of(layer, spec_)) {
      const base::Bytes one = bytes(zero_of(spec_) == 3 ? elements / spec_.shards() : elements, dtype);
      out.fetched += lockstep_.copy_time(plan::Stream::from_host, one).value;
      if (spec_.offload.parameters == plan::Space::nvme)
        out.files += lockstep_.copy_time(plan::Stream::from_nvme, one).value;
    }
  }

  const plan::PlanSpec& spec_;
  const Lockstep& lockstep_;
};

}  // namespace

CopyWaits copy_waits(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, std::int64_t staying,
                     const Lockstep& lockstep) {
  const Passing passing(spec, lockstep);
  const bool leaves = spec.offload.activations == plan::Space::host;
  std::vector<Layer> forward, backward;
  double forward_alone = 0, backward_alone = 0;
  for (auto run = layers.rbegin(); run != layers.rend(); ++run)
    for (std::int64_t i = 0; i < run->count; ++i) {
      const bool leaving = leaves && run->costs->kind == models::LayerKind::block && staying-- <= 0;
      forward.push_back(passing.forward(*run->costs, leaving));
      backward.push_back(passing.backward(*run->costs, leaving));
      forward_alone += forward.back().computing;
      backward_alone += backward.back().computing;
    }
  std::reverse(forward.begin(), forward.end());
  if (!lockstep.pricing->overlaps(plan::Stream::to_host))
    return {seconds_apart(forward) - forward_alone, seconds_apart(backward) - backward_alone};
  const auto prefetch = static_cast<std::size_t>(spec.offload.prefetch);
  const Seconds there = seconds_of(forward, prefetch), back = seconds_of(backward, prefetch);
  return {there.all - forward_alone, back.all - backward_alone, there.ahead, back.ahead, there.tail, back.tail};
}

HostUpdate host_update(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec,
                       const std::vector<double>& reduce, const Lockstep& lockstep) {
  const int zero = zero_of(spec);
  const models::DType compute = plan::expand_options(spec).dtype, gradient = plan::gradient_dtype(spec.precision);
  const auto copy = [&](plan::Stream stream, std::int64_t elements, models::DType dtype) {
    return lockstep.copy_time(stream, base::Bytes{static_cast<double>(elements * models::size_of(dtype))}).value;
  };
  HostUpdate out;
  double in = 0, net = 0, back = 0;                      // end times for gradients that are reduced on the device
  double read = 0, computed = 0, written = 0, home = 0;  // end times for updates
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const BucketSize& b = buckets[i];
    const std::int64_t optimized = zero >= 1 ? b.shard : b.elements;
    models::Op adamw;
    adamw.kind = models::OpKind::adamw;
    adamw.dtype = gradient;
    adamw.m = optimized;
    adamw.out.assign(compute == models::DType::fp32 ? 3 : 4, 0);
    std::vector<models::Op> ops = {adamw};
    if (compute == models::DType::fp32) {
      models::Op values;
      values.kind = models::OpKind::copy;
      values.m = optimized;
      ops.push_back(values);
    }
    const double update = lockstep.pricing->on_host_time(ops).value;
    const bool files = spec.offload.optimizer == plan::Space::nvme;
    for (std::int64_t k = 0; k < b.count; ++k) {
      if (reduce[i] > 0) {
        in += copy(plan::Stream::from_host, zero >= 2 ? b.shard : b.elements, gradient);
        net = std::max(net, in) + reduce[i];
        back = std::max(back, net) + copy(plan::Stream::to_host, optimized, gradient);
        in = std::max(in, back - 2 * reduce[i]);  // two buckets at a time
      }
      if (files) read += 3 * copy(plan::Stream::from_nvme, optimized, models::DType::fp32);
      computed = std::max(computed, read) + update;
      if (files)
        written = std::max(written, computed) + 3 * copy(plan::Stream::to_nvme, optimized, models::DType::fp32);
      if (files) read = std::max(read, computed - update);  // one bucket ahead
      if (spec.offload.parameters == plan::Space::device)
        home = std::max(home, computed) + copy(plan::Stream::from_host, optimized, compute);
      if (spec.offload.parameters == plan::Space::nvme)
        home = std::max(home, computed) + copy(plan::Stream::to_nvme, optimized, compute);
    }
  }
  double alone = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) alone += static_cast<double>(buckets[i].count) * reduce[i];
  out.reduce = std::max(0.0, back - alone);
  out.update = std::max({computed, written, home});
  return out;
}

}  // namespace orrery::cost
