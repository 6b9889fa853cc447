// Copies, run by run.
#include "cost/estimate/pass_copies.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cost/estimate/offload.h"
#include "plan/lower/buckets.h"

namespace orrery::cost {

using plan::Stream;

namespace {

/// A part of the passes that lead back over a layer, in their order.
enum class Back : std::uint8_t { again, backward, weights };

/// The part and the segment of it that first uses a saved tensor.
std::pair<Back, int> first_use(const LayerCosts& c, const Life& life) {
  if (c.recomputation == plan::Recompute::full && life.recompute.any()) return {Back::again, life.recompute.first};
  if (life.backward.any()) return {Back::backward, life.backward.first};
  return {Back::weights, life.weights.first};
}

}  // namespace

PassCopies::PassCopies(const PassSurroundings& around, const std::vector<const LayerCosts*>& layers, Pass pass,
                       PassWriter& out)
    : around_(around),
      layers_(layers),
      pass_(pass),
      out_(out),
      any_(around.spec.offload.any()),
      activations_(around.spec.offload.activations == plan::Space::host),
      parameters_(around.spec.offload.parameters != plan::Space::device && pass != Pass::weights),
      sums_on_host_(around.spec.offload.optimizer != plan::Space::device),
      prefetch_(static_cast<std::size_t>(around.spec.offload.prefetch)) {
  if (!any_) return;
  left_.assign(layers.size(), -1);
  leaves_.assign(layers.size(), false);
  shards_.resize(layers.size());
  std::int64_t staying = around.staying;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const std::size_t run = pass == Pass::forward ? i : layers.size() - 1 - i;
    leaves_[run] = activations_ && layers[i]->kind == models::LayerKind::block && staying-- <= 0;
  }
}

const LayerCosts& PassCopies::layer(std::size_t run) const {
  return *layers_[pass_ == Pass::forward ? run : layers_.size() - 1 - run];
}

double PassCopies::copy(Stream stream, double bytes, bool accumulate) const {
  return around_.groups.lockstep.copy_time(stream, base::Bytes{bytes}, accumulate).value;
}

void PassCopies::begin() {
  if (!any_) return;
  // A gather stands one layer before its use, and what it reads is fetched `prefetch_` layers before that.
  for (std::size_t run = 0; run < layers_.size() && run <= prefetch_ + 1; ++run) fetch_shards(run);
  for (std::size_t run = 0; run < layers_.size() && run <= prefetch_; ++run) fetch(run);
}

void PassCopies::before(std::size_t run, Part part, std::size_t segment, bool first) {
  if (!any_) return;
  if (first) {
    if (run >= 2) release(run - 2);
    if (run > 0) fetch_shards(run + prefetch_ + 1);
    if (run > 0 && run + prefetch_ < layers_.size()) fetch(run + prefetch_);
  }
  for (const Wait& wait : waits_)
    if (wait.run == run && (wait.part == part && wait.segment == segment)) out_.wait(wait.stream, wait.message);
}

void PassCopies::before_message(std::size_t run, Part part, std::size_t segment) {
  for (const Wait& wait : waits_)
    if (wait.run == run && wait.part == part && wait.segment == segment) out_.after(wait.stream, wait.message);
}

void PassCopies::behind(std::size_t run, std::size_t segment, bool last) {
  if (!any_) return;
  if (last) release_ahead(run);
  if (!activations_ || layer(run).kind != models::LayerKind::block) return;
  const auto step = static_cast<int>(segment);
  for (const Life* life : saved(run)) {
    if (life->forward.last != step) continue;
    const Segment& one = layer(run).forward.segments[segment];
    const bool message = one.kind != Segment::Kind::compute;
    if (message && (life->forward.first == step || one.message.kind == plan::CollectiveKind::all_reduce))
      out_.after_last(one.message.stream);  // which brings it
    leave(run, copy(Stream::to_host, life->bytes));
  }
}

std::vector<const Life*> PassCopies::saved(std::size_t run) const {
  const LayerCosts& c = layer(run);
  std::vector<const Life*> out;
  for (const LifeId i : c.lives.keys())
    if (i != c.y && crosses(c, i) && (leaves_[run] || waits_for_weights(c, i))) out.push_back(&c.lives[i]);
  std::ranges::stable_sort(out, {}, [&](const Life* life) { return first_use(c, *life); });
  return out;
}

void PassCopies::leave(std::size_t run, double seconds) {
  left_[run] = out_.begin(Stream::to_host, seconds, run + 1 == layers_.size());
}

void PassCopies::behind_layer(std::size_t run) {
  if (!any_) return;
  release_ahead(run);
  if (!sums_on_host_ || pass_ == Pass::forward || zero_of(around_.spec) >= 2) return;
  const bool completes = pass_ == (around_.spec.stages.splits_backward() ? Pass::weights : Pass::backward);
  if (!completes) return;
  const models::DType dtype = plan::gradient_dtype(around_.spec.numerics.precision);
  for (const LayerBucket bucket : kLayerBuckets) {
    const std::int64_t elements = padded_elements(layer(run), bucket, around_.spec);
    if (elements > 0) leave(run, copy(Stream::to_host, static_cast<double>(elements * models::size_of(dtype)), true));
  }
}

// Stands behind the layer after it, whose run hides the reduction.
void PassCopies::add_on_host(std::size_t run, std::int64_t elements, int reduced) {
  const models::DType dtype = plan::gradient_dtype(around_.spec.numerics.precision);
  if (reduced >= 0) out_.after(Stream::data, reduced);
  leave(std::min(run + 1, layers_.size() - 1),
        copy(Stream::to_host, static_cast<double>(elements * models::size_of(dtype)), true));
}

// A step that waits until what leaves layer `run` has left, and frees it. It stands after the next layer.
void PassCopies::release(std::size_t run) {
  if (left_[run] < 0) return;
  out_.wait(Stream::to_host, left_[run]);
  out_.compute(around_.pricing.compute_time(plan::Step{}).value, 0);
  left_[run] = -1;
}

// What the layer before has left is freed right before the next layer's first step. If no message stands in between,
// that is also before anything of this layer leaves.
void PassCopies::release_ahead(std::size_t run) {
  if (run == 0) return;
  const bool forward = pass_ == Pass::forward, last = run + 1 == layers_.size();
  const std::vector<Segment>& segments = (forward ? layer(run).forward : layer(run).backward).segments;
  const int zero = zero_of(around_.spec);
  const bool message = !segments.empty() && segments.back().kind != Segment::Kind::compute;
  const bool gather = zero == 3 && run + 2 < layers_.size(), reduction = zero >= 2 && !forward;
  if (last || !(message || gather || reduction)) release(run - 1);
}

void PassCopies::fetch(std::size_t run) {
  if (activations_ && pass_ != Pass::forward && layer(run).kind == models::LayerKind::block) fetch_activations(run);
  if (parameters_ && zero_of(around_.spec) < 3) fetch_parameters(run);
}

void PassCopies::fetch_activations(std::size_t run) {
  for (const Life* life : saved(run)) {
    const auto [back, segment] = first_use(layer(run), *life);
    if ((back == Back::weights) != (pass_ == Pass::weights)) continue;
    waits_.push_back({run, back == Back::again ? Part::again : Part::own, static_cast<std::size_t>(segment),
                      Stream::from_host, out_.begin(Stream::from_host, copy(Stream::from_host, life->bytes))});
  }
}

// Through the host's memory, if from files.
int PassCopies::come(std::int64_t elements) {
  const models::DType dtype = plan::expand_options(around_.spec).dtype;
  const auto bytes = static_cast<double>(elements * models::size_of(dtype));
  if (around_.spec.offload.parameters == plan::Space::nvme)
    out_.after(Stream::from_nvme, out_.begin(Stream::from_nvme, copy(Stream::from_nvme, bytes)));
  return out_.begin(Stream::from_host, copy(Stream::from_host, bytes));
}

// Fetches each bucket for the first segment that reads it; of a bucket of which the pass over the layer reads a single
// tensor, that one alone. A bucket that it does not read is not fetched.
void PassCopies::fetch_parameters(std::size_t run) {
  const LayerCosts& c = layer(run);
  const bool forward = pass_ == Pass::forward;
  const cost::Pass none;
  const cost::Pass& own = forward ? c.forward : c.backward;
  const cost::Pass& again = forward || c.recomputation != plan::Recompute::full ? none : c.recompute;
  for (const LayerBucket bucket : kLayerBuckets) {
    const auto reads = [bucket](const Segment& s) {
      return s.reads_parameters[static_cast<std::size_t>(bucket)].any();
    };
    const ParametersRead read = read_by({&own, &again}, bucket);
    if (!read.any()) continue;
    const auto in_again = std::ranges::find_if(again.segments, reads);
    const bool first = in_again != again.segments.end();
    const auto segment =
        first ? in_again - again.segments.begin() : std::ranges::find_if(own.segments, reads) - own.segments.begin();
    waits_.push_back({run, first ? Part::again : Part::own, static_cast<std::size_t>(segment), Stream::from_host,
                      come(read.several() ? padded_elements(c, bucket, around_.spec) : read.elements)});
  }
}

void PassCopies::fetch_shards(std::size_t run) {
  if (!parameters_ || zero_of(around_.spec) < 3 || run >= layers_.size()) return;
  const LayerCosts& c = layer(run);
  if (pass_ == Pass::backward && !c.backward_reads_parameters) return;
  for (const LayerBucket bucket : kLayerBuckets) {
    if (c.in(bucket).elements == 0) continue;
    // Nothing writes it before the pass ends, so that the tied table comes once for both of its layers.
    const bool is_here = bucket == LayerBucket::shared && table_.has_value();
    const int message =
        is_here
            ? *table_
            : come(padded_elements(c, bucket, around_.spec) / around_.spec.shards_of(bucket == LayerBucket::experts));
    if (bucket == LayerBucket::shared) table_ = message;
    shards_[run].push_back(message);
  }
}

void PassCopies::await_shard(std::size_t run) {
  if (!any_ || shards_[run].empty()) return;
  out_.after(Stream::from_host, shards_[run].front());
  shards_[run].erase(shards_[run].begin());
}

}  // namespace orrery::cost
