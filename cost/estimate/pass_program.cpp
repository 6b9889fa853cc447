// ChunkPasses, written down step by step.
#include "cost/estimate/pass_program.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "cost/estimate/pass_writer.h"
#include "plan/outline/chunk_pass.h"
#include "plan/outline/turns.h"
#include "plan/outline/whole_matrices.h"

namespace orrery::cost {

namespace {

using plan::Stream;
using Kind = plan::Move::Kind;

class ChunkPasses {
 public:
  ChunkPasses(const std::vector<LayerRun>& layers, const PassSurroundings& around)
      : around_(around),
        spec_(around.spec),
        message_host_(around.pricing.message_host_time(around.spec.mesh.tensor, around.spec.mesh.pipeline > 1).value) {
    for (const LayerRun& run : layers)
      for (std::int64_t i = 0; i < run.count; ++i) layers_.push_back(run.costs);
    kept_.reserve(8);
    for (const LayerRun& run : layers) buckets_of_layer(*run.costs);
  }

  ChunkPrograms write() {
    ChunkPrograms out;
    out.forward = forward(false);
    if (around_.begun) out.first = forward(true);
    const bool early = spec_.reduces_early() && !spec_.stages.asynchronous();
    const bool splits = spec_.stages.splits_backward();
    out.backward = backward({});
    if (splits) out.weights = weights({});
    const bool writes = first_writes(), once = spec_.micro_batches() == (spec_.stages.mirrors() ? 2 : 1);
    if (early) out.last_backward = backward({.last = true, .first = writes && once});
    if (early && splits) out.last_weights = weights({.last = true, .first = writes && once});
    if (writes && !(early && once)) {
      out.first_backward = backward({.first = true});
      if (splits) out.first_weights = weights({.first = true});
    }
    const RankClock::Overlaps overlaps = overlaps_of(around_.pricing);
    for (PassProgram* pass : {&out.forward, &out.backward, &out.weights, &out.first, &out.first_backward,
                              &out.first_weights, &out.last_backward, &out.last_weights})
      summarise(*pass, overlaps);
    return out;
  }

 private:
  struct LayerBuckets {
    const LayerCosts* costs = nullptr;
    std::array<std::optional<plan::BucketShape>, 3> trained, frozen;
    std::array<const ReductionTimes*, 3> in_pass = {}, in_frozen = {}, late = {};  ///< as far as asked for
  };

  /// Of the passes of a step over the chunk that add to gradients.
  struct Place {
    bool last = false, first = false;  ///< first: it writes them
  };

  [[nodiscard]] int zero() const { return zero_of(spec_); }
  /// Whether a step's first pass writes gradients to which the others add, and takes another time for it. ZeRO-2 and 3
  /// have new ones in every pass; where steps overlap, or others sum up, all add.
  [[nodiscard]] bool first_writes() const {
    if (around_.pricing.stack().zero_gradients || zero() >= 2 || spec_.stages.asynchronous() ||
        spec_.states.has_server() || spec_.offload.optimizer != plan::Space::device)
      return false;
    return std::ranges::any_of(kept_, [&](const LayerBuckets& one) {
      const auto differs = [&](const Segment& s) { return s.writing(first_written(*one.costs)) != s.seconds; };
      return std::ranges::any_of(one.costs->backward.segments, differs) ||
             std::ranges::any_of(one.costs->weights.segments, differs);
    });
  }
  /// Which buckets a step's first pass over a layer then writes. In a split backward pass the product with a tied table
  /// comes after the embedding's scatter, which only adds.
  [[nodiscard]] std::array<bool, 3> first_written(const LayerCosts& c) const {
    std::array<bool, 3> out = {};
    for (const LayerBucket of : kLayerBuckets) out[static_cast<std::size_t>(of)] = c.in(of).written;
    if (spec_.stages.splits_backward() && around_.embeds) out[static_cast<std::size_t>(LayerBucket::shared)] = false;
    return out;
  }
  [[nodiscard]] PassWriter writer() const {
    constexpr std::size_t kOfLayer = 16;  // steps, roughly
    return PassWriter(message_host_, kOfLayer * layers_.size());
  }

  // -- buckets
  void buckets_of_layer(const LayerCosts& c) {
    if (std::any_of(kept_.begin(), kept_.end(), [&](const LayerBuckets& one) { return one.costs == &c; })) return;
    LayerBuckets& one = kept_.emplace_back();
    one.costs = &c;
    for (const LayerBucket of : kLayerBuckets) {
      const auto at = static_cast<std::size_t>(of);
      if (c.in(of).frozen > 0) one.frozen[at] = frozen_shape_of(of, c, spec_);
      if (c.in(of).elements > 0) one.trained[at] = shape_of(of, c, spec_);
    }
  }
  [[nodiscard]] LayerBuckets& of(const LayerCosts* costs) {
    return *std::find_if(kept_.begin(), kept_.end(), [&](const LayerBuckets& one) { return one.costs == costs; });
  }
  const ReductionTimes& reduction(const plan::BucketShape& b, plan::Reduces when, const ReductionTimes*& known) {
    if (!known) known = &around_.ends.reduction(b, spec_, when, around_.groups, room_);
    return *known;
  }
  const ReductionTimes& in_every_pass(LayerBuckets& buckets, std::size_t at) {
    return reduction(*buckets.trained[at], plan::Reduces::in_every_pass, buckets.in_pass[at]);
  }

  // -- gathers of ZeRO 3: by bucket the last message of a layer's gathers; -1: none
  struct Gathered {
    std::array<int, 3> last = {-1, -1, -1};
  };
  using Segments = std::vector<Segment>;
  /// `reads`: the segments of the pass over the layer.
  Gathered gather(PassWriter& out, const LayerCosts* costs, std::initializer_list<const Segments*> reads) {
    Gathered gathered;
    if (zero() < 3) return gathered;
    LayerBuckets& buckets = of(costs);
    for (const LayerBucket bucket : kLayerBuckets)
      for (const bool frozen : {false, true}) {
        const auto at = static_cast<std::size_t>(bucket);
        const auto& b = (frozen ? buckets.frozen : buckets.trained)[at];
        if (!b) continue;
        const double time =
            reduction(*b, plan::Reduces::in_every_pass, (frozen ? buckets.in_frozen : buckets.in_pass)[at]).gather;
        if (time <= 0) continue;
        const bool read = std::ranges::any_of(reads, [at](const Segments* segments) {
          return std::ranges::any_of(*segments, [at](const Segment& s) { return s.reads_parameters[at].any(); });
        });
        gathered.last[at] = out.begin(Stream::data, lane_of(plan::Over::data, b->experts), time, !read);
      }
    return gathered;
  }
  /// Ahead of the first compute segment that reads it.
  static void wait_for(PassWriter& out, Gathered& gathered, const Segment& s) {
    for (std::size_t b = 0; b < gathered.last.size(); ++b)
      if (s.reads_parameters[b].any() && gathered.last[b] >= 0)
        out.wait(Stream::data, std::exchange(gathered.last[b], -1));
  }

  // -- passes
  /// What all passes have.
  struct Pass {
    ChunkPasses& of;
    PassWriter& out;
    bool waits;  ///< for what another stage sends, in a step that has not come yet
    std::size_t input = 0;

    [[nodiscard]] const LayerCosts& layer(std::size_t i) const { return *of.layers_[i]; }
    void meet_input(const Segment& s) {
      if (s.reads_input && std::exchange(waits, false)) input = out.size();
    }
  };

  struct ForwardPass : Pass {
    bool first_of_step;

    Gathered gather(std::size_t i) { return of.gather(out, &layer(i), {&layer(i).forward.segments}); }
    void run(std::size_t i, Gathered gathered) {
      const Segments& segments = layer(i).forward.segments;
      Gathered begun;
      if (first_of_step) begun.last = (*of.around_.begun)[i];
      const auto ahead = [&](std::size_t s) {
        if (segments[s].kind == Segment::Kind::compute) {
          wait_for(out, gathered, segments[s]);
          wait_for(out, begun, segments[s]);
        }
        meet_input(segments[s]);
      };
      out.layer(segments, of.around_.exchange, ahead, [](std::size_t) {});
    }
  };
  PassProgram forward(bool first_of_step) {
    PassWriter out = writer();
    if (first_of_step) out.has_begun(Stream::data, around_.gathers);
    if (around_.load) load(out);
    const bool embeds = layers_.front()->kind == models::LayerKind::embedding;
    ForwardPass pass{{*this, out, !embeds}, first_of_step};
    plan::forward_order(whole(), pass);
    return finish({.input = pass.input}, Kind::forward, out, pass.waits || embeds);
  }
  [[nodiscard]] plan::Chunk whole() const { return {0, layers_.size()}; }
  PassProgram finish(PassProgram program, Kind kind, PassWriter& out, bool no_input) const {
    program.reach = out.reach();
    program.steps = std::move(out.steps());
    program.freed = first_freed(program.steps, kind, spec_.stages);
    if (no_input) program.input = program.steps.size();
    return program;
  }
  void load(PassWriter& out) const {
    const std::span<const models::Op> op(around_.load, 1);
    out.compute(around_.pricing.compute_time(op).value, around_.pricing.host_time(op).value);
  }

  Gathered backward_gather(PassWriter& out, const LayerCosts* costs) {
    if (!costs->backward_reads_parameters) return {};
    static const Segments none;
    const bool full = costs->recomputation == plan::Recompute::full;
    return gather(out, costs, {full ? &costs->recompute.segments : &none, &costs->backward.segments});
  }
  /// ZeRO-2 and 3 zero a pass's gradients in the first step of a layer's backward pass; seconds.
  struct Zeroing {
    bool any = false;
    std::array<bool, 3> writes = {};  ///< by bucket: operators write gradients instead of adding to zeros
    double device = 0, host = 0;
  };
  [[nodiscard]] Zeroing zeroed(const LayerCosts& c) {
    Zeroing out;
    if (zero() < 2) return out;
    for (const LayerBucket bucket : kLayerBuckets) {
      const auto& b = of(&c).trained[static_cast<std::size_t>(bucket)];
      if (!b) continue;
      models::Op op = plan::zeroed_in_pass(*b, spec_).items.front().ops.front();
      op.m = around_.pricing.stack().zero_gradients ? b->elements : c.zeroed_by_pass(bucket, b->elements);
      out.writes[static_cast<std::size_t>(bucket)] = op.m < b->elements;
      if (op.m == 0) continue;
      out.any = true;
      out.device += around_.pricing.op_time(op).value;
      out.host += around_.pricing.host_time({&op, 1}).value;
    }
    return out;
  }
  /// To the first compute step from `first` on.
  static void add(std::vector<PassStep>& steps, std::size_t first, const Zeroing& zeroing) {
    for (; first < steps.size(); ++first) {
      if (steps[first].kind != PassStep::Kind::compute) continue;
      steps[first].time += ticks(zeroing.device);
      steps[first].host += ticks(zeroing.host);
      return;
    }
  }

  /// Reductions within the last pass, each behind the last step that adds to its gradients.
  class Late {
   public:
    Late(ChunkPasses& passes, PassWriter& out, bool any, bool backward)
        : passes_(passes), out_(out), any_(any), backward_(backward), turns_(WriteReduction{&out}) {}

    /// The segments that run next.
    void begin(const LayerCosts& c, const Segments& segments) {
      if (!any_) return;
      costs_ = &c;
      last_ = {};
      for (std::size_t i = 0; i < segments.size(); ++i)
        for (std::size_t b = 0; b < last_.size(); ++b)
          if (segments[i].kind == Segment::Kind::compute && segments[i].writes_gradients[b]) last_[b] = i;
      // In a split pass a weights pass adds to them later, unless only backward does.
      for (const Segment& s : c.weights.segments)
        for (std::size_t b = 0; b < last_.size() && backward_; ++b)
          if (s.kind == Segment::Kind::compute && s.writes_gradients[b]) last_[b].reset();
    }
    void behind(std::size_t segment) {
      if (!any_ || passes_.zero() >= 2) return;
      for (const LayerBucket b : kLayerBuckets)
        if (last_[static_cast<std::size_t>(b)] == segment) reduce(*costs_, b);
    }
    /// ZeRO-2 and 3 with sub-groups: what has been added up of a layer is summed over them.
    void accumulated(const LayerCosts& c) {
      if (!any_) return;
      for (const LayerBucket b : kLayerBuckets) reduce(c, b);
    }
    void end() { turns_.flush(); }

   private:
    void reduce(const LayerCosts& c, LayerBucket bucket) {
      if (bucket == LayerBucket::shared && c.kind == models::LayerKind::head && passes_.around_.embeds) return;
      LayerBuckets& buckets = passes_.of(&c);
      const auto at = static_cast<std::size_t>(bucket);
      if (!buckets.trained[at]) return;
      const ReductionTimes& times =
          passes_.reduction(*buckets.trained[at], plan::Reduces::in_the_last_pass, buckets.late[at]);
      TimedReduction r{&times.items};
      if (passes_.spec_.compresses()) return turns_.add(r, times.parts);
      for (int part = 0; part < times.parts; ++part) write_part(out_, r, part);
    }

    ChunkPasses& passes_;
    PassWriter& out_;
    bool any_, backward_;
    const LayerCosts* costs_ = nullptr;
    std::array<std::optional<std::size_t>, 3> last_ = {};  ///< by bucket
    plan::Turns<TimedReduction, WriteReduction> turns_;
  };

  struct Reduced {
    const ReductionTimes* times = nullptr;
    int message = -1;  ///< its last one
  };
  /// What a layer's reductions bring, until it is added to the shards.
  struct Sums {
    const LayerCosts* of = nullptr;
    std::vector<Reduced> reductions;
  };
  /// ZeRO-2 and 3: reduces a layer's gradients.
  void reduce(PassWriter& out, const LayerCosts& c, Sums& sums) {
    sums.of = &c;
    LayerBuckets& buckets = of(&c);
    for (const LayerBucket bucket : kLayerBuckets) {
      const auto at = static_cast<std::size_t>(bucket);
      if (!buckets.trained[at]) continue;
      Reduced r{&in_every_pass(buckets, at)};
      for (const TimedItem& item : r.times->items)
        if (item.is_message)
          r.message = out.begin(Stream::data, item.lane, item.seconds, item.frees && !c.reduced_beside);
      sums.reductions.push_back(r);
    }
  }
  void accumulate(PassWriter& out, Sums& sums, Late& late) const {
    if (sums.reductions.empty()) return;
    if (spec_.offload.optimizer == plan::Space::device) add_up(out, sums);  // else the host does
    sums.reductions.clear();
    late.accumulated(*sums.of);
  }
  void add_up(PassWriter& out, const Sums& sums) const {
    double device = around_.pricing.compute_time(plan::Step{}).value, host = 0;
    int message = -1;
    for (const Reduced& r : sums.reductions) {
      message = std::max(message, r.message);
      device += r.times->joined;
      host += r.times->joined_host;
    }
    if (message >= 0) out.wait(Stream::data, message);
    out.compute(device, host);
  }
  /// The same in fewer bits.
  void reduce(plan::Turns<TimedReduction, WriteReduction>& turns, const LayerCosts& c) {
    LayerBuckets& buckets = of(&c);
    for (const LayerBucket bucket : kLayerBuckets) {
      const auto at = static_cast<std::size_t>(bucket);
      if (!buckets.trained[at]) continue;
      const ReductionTimes& times = in_every_pass(buckets, at);
      turns.add({&times.items}, times.parts);
    }
  }

  struct BackwardPass : Pass {
    Late late;
    bool first;
    Sums sums = {};
    plan::Turns<TimedReduction, WriteReduction> turns;
    Gathered gathered = {};

    Gathered gather(std::size_t i) { return of.backward_gather(out, &layer(i)); }
    void begin(std::size_t, const Gathered& of_layer) { gathered = of_layer; }
    void behind(const Segment& segment, std::size_t s) {
      if (segment.kind == Segment::Kind::compute) late.behind(s);
    }
    void ahead(const Segment& segment) {
      if (segment.kind == Segment::Kind::compute) wait_for(out, gathered, segment);
      meet_input(segment);
    }
    void recompute(std::size_t i) {
      const LayerCosts& c = layer(i);
      if (c.recomputation != plan::Recompute::full) return;
      const Segments& again = c.recompute.segments;
      out.layer(
          again, of.around_.exchange, [&](std::size_t s) { ahead(again[s]); }, [](std::size_t) {});
    }
    void run(std::size_t i) {
      const LayerCosts& c = layer(i);
      const Zeroing zeroing = of.zeroed(c);
      if (zeroing.any && c.backward.empty_part == 0)
        out.compute(zeroing.device + of.around_.pricing.compute_time(plan::Step{}).value, zeroing.host);
      const Segments& own = c.backward.segments;
      late.begin(c, own);
      const std::size_t begin = out.size();
      out.layer(
          own, of.around_.exchange, [&](std::size_t s) { ahead(own[s]); }, [&](std::size_t s) { behind(own[s], s); },
          first ? of.first_written(c) : zeroing.writes);
      if (zeroing.any && c.backward.empty_part != 0) add(out.steps(), begin, zeroing);
    }
    void reduce(std::size_t i) { of.spec_.compresses() ? of.reduce(turns, layer(i)) : of.reduce(out, layer(i), sums); }
    void add_up() { of.accumulate(out, sums, late); }
    void end() { turns.flush(); }
  };
  PassProgram backward(Place place) {
    PassWriter out = writer();
    const bool heads = layers_.back()->kind == models::LayerKind::head;
    BackwardPass pass{{*this, out, !heads},
                      Late(*this, out, place.last, true),
                      place.first,
                      {},
                      plan::Turns<TimedReduction, WriteReduction>(WriteReduction{&out})};
    plan::backward_order(whole(), spec_, pass);
    const bool in_moves =
        spec_.stages.virtual_stages > 1 || spec_.stages.splits_backward();  // messages are between passes
    const std::size_t sent = place.last && !in_moves ? out.size() : PassProgram{}.sent;
    pass.late.end();
    return finish({.input = pass.input, .sent = sent}, Kind::backward, out, pass.waits || heads);
  }

  struct WeightsPass : Pass {
    Late late;
    bool first;

    void run(std::size_t i, bool last_alone) {
      const LayerCosts& c = layer(i);
      Segments segments = c.weights.segments;
      if (last_alone && c.weights_last.seconds > 0 && !segments.empty()) {
        Segment most = segments.back(), one = segments.back();
        const auto take = [](Segment& to, const Segment& from) {
          to.seconds = from.seconds, to.saved = from.saved, to.host = from.host;
          to.writes_gradients = from.writes_gradients;
        };
        take(most, c.weights_but_last);
        take(one, c.weights_last);
        one.shifts = 0;
        segments.back() = most;
        segments.push_back(one);
      }
      late.begin(c, segments);
      out.layer(
          segments, of.around_.exchange, [](std::size_t) {},
          [&](std::size_t s) {
            if (segments[s].kind == Segment::Kind::compute) late.behind(s);
          },
          first ? of.first_written(c) : of.zeroed(c).writes);
    }
  };
  PassProgram weights(Place place) {
    PassWriter out = writer();
    WeightsPass pass{{*this, out, false}, Late(*this, out, place.last, false), place.first};
    plan::weights_order(whole(), pass);
    pass.late.end();
    return finish({}, Kind::weights, out, true);
  }

  const PassSurroundings& around_;
  const plan::PlanSpec& spec_;
  double message_host_;
  std::vector<const LayerCosts*> layers_;
  std::vector<LayerBuckets> kept_;
  StepEnds::Room room_;
};

}  // namespace

BegunGathers begun_gathers(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                           const NextGathers& next) {
  BegunGathers out;
  int shared = -1;
  for (const std::vector<LayerRun>& chunk : chunks) {
    auto& layers = out.of.emplace_back();
    for (const LayerRun& run : chunk)
      for (std::int64_t i = 0; i < run.count; ++i) {
        std::array<int, 3>& begun = layers.emplace_back(std::array{-1, -1, -1});
        for (const LayerBucket of : kLayerBuckets) {
          const bool is_shared = of == LayerBucket::shared;
          if (run.costs->in(of).elements == 0) continue;
          int& message = begun[static_cast<std::size_t>(of)];
          if (is_shared && shared >= 0) {
            message = shared;
            continue;
          }
          const plan::BucketShape bucket = shape_of(of, *run.costs, spec);
          const double time = next.time(bucket);
          if (time <= 0) continue;
          message = static_cast<int>(out.steps.size());
          out.steps.push_back({.kind = PassStep::Kind::begin,
                               .stream = Stream::data,
                               .time = ticks(time),
                               .lane = lane_of(plan::Over::data, bucket.experts)});
          if (is_shared) shared = message;
        }
      }
  }
  return out;
}

std::size_t first_freed(const std::vector<PassStep>& steps, Kind kind, const plan::Stages& stages) {
  const bool late = stages.asynchronous() || (kind != Kind::forward && stages.splits_backward());
  const auto compute = [](const PassStep& step) { return step.kind == PassStep::Kind::compute; };
  const auto first = std::ranges::find_if(steps, compute);
  if (!late || first == steps.end()) return static_cast<std::size_t>(first - steps.begin());
  const auto behind = std::find_if(steps.rbegin(), steps.rend(), compute).base();
  return static_cast<std::size_t>(behind - steps.begin()) - 1;
}

ChunkPrograms programs_of(const std::vector<LayerRun>& layers, const PassSurroundings& surroundings) {
  return ChunkPasses(layers, surroundings).write();
}

}  // namespace orrery::cost
