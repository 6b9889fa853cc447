// ChunkPasses, written down step by step.
#include "cost/estimate/pass_program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cost/estimate/chunk_buckets.h"
#include "cost/estimate/pass_reductions.h"
#include "cost/estimate/pass_writer.h"
#include "plan/outline/chunk_pass.h"
#include "plan/outline/whole_matrices.h"

namespace orrery::cost {

namespace {

using plan::Stream;
using Kind = plan::Move::Kind;

using Segments = std::vector<Segment>;

/// What all passes over a chunk have.
struct Pass {
  const std::vector<const LayerCosts*>& layers;
  ChunkBuckets& buckets;
  PassWriter& out;
  bool waits;  ///< for what another stage sends, in a step that has not come yet
  std::size_t input = 0;

  [[nodiscard]] const LayerCosts& layer(std::size_t i) const { return *layers[i]; }
  void meet_input(const Segment& s) {
    if (s.reads_input && std::exchange(waits, false)) input = out.size();
  }
};

struct ForwardPass : Pass {
  bool first_of_step;

  Gathered gather(std::size_t i) { return buckets.gather(out, layer(i), {&layer(i).forward.segments}); }
  void run(std::size_t i, Gathered gathered) {
    const PassSurroundings& around = buckets.around();
    const Segments& segments = layer(i).forward.segments;
    Gathered begun;
    if (first_of_step) begun.last = (*around.begun)[i];
    const auto ahead = [&](std::size_t s) {
      if (segments[s].kind == Segment::Kind::compute) {
        gathered.wait(out, segments[s]);
        begun.wait(out, segments[s]);
      }
      meet_input(segments[s]);
    };
    out.layer(segments, around.exchange, ahead, [](std::size_t) {});
  }
};

/// To the first compute step from `first` on.
void add(std::vector<PassStep>& steps, std::size_t first, const Zeroing& zeroing) {
  for (; first < steps.size(); ++first) {
    if (steps[first].kind != PassStep::Kind::compute) continue;
    steps[first].time += ticks(zeroing.device);
    steps[first].host += ticks(zeroing.host);
    return;
  }
}

struct BackwardPass : Pass {
  LateReductions late;
  LayerReductions sums;
  bool first;
  Gathered gathered = {};

  Gathered gather(std::size_t i) {
    const LayerCosts& c = layer(i);
    if (!c.backward_reads_parameters) return {};
    static const Segments none;
    const bool full = c.recomputation == plan::Recompute::full;
    return buckets.gather(out, c, {full ? &c.recompute.segments : &none, &c.backward.segments});
  }
  void begin(std::size_t, const Gathered& of_layer) { gathered = of_layer; }
  void behind(const Segment& segment, std::size_t s) {
    if (segment.kind == Segment::Kind::compute) late.behind(s);
  }
  void ahead(const Segment& segment) {
    if (segment.kind == Segment::Kind::compute) gathered.wait(out, segment);
    meet_input(segment);
  }
  void recompute(std::size_t i) {
    const LayerCosts& c = layer(i);
    if (c.recomputation != plan::Recompute::full) return;
    const Segments& again = c.recompute.segments;
    out.layer(
        again, buckets.around().exchange, [&](std::size_t s) { ahead(again[s]); }, [](std::size_t) {});
  }
  void run(std::size_t i) {
    const PassSurroundings& around = buckets.around();
    const LayerCosts& c = layer(i);
    const Zeroing zeroing = buckets.zeroed(c);
    if (zeroing.any && c.backward.empty_part == 0)
      out.compute(zeroing.device + around.pricing.compute_time(plan::Step{}).value, zeroing.host);
    const Segments& own = c.backward.segments;
    late.begin(c, c.backward);
    const std::size_t begin = out.size();
    out.layer(
        own, around.exchange, [&](std::size_t s) { ahead(own[s]); }, [&](std::size_t s) { behind(own[s], s); },
        first ? buckets.first_written(c) : zeroing.writes);
    if (zeroing.any && c.backward.empty_part != 0) add(out.steps(), begin, zeroing);
  }
  void reduce(std::size_t i) { sums.reduce(layer(i)); }
  void add_up() { sums.add_up(late); }
  void end() { sums.end(); }
};

struct WeightsPass : Pass {
  LateReductions late;
  bool first;

  void run(std::size_t i, bool last_alone) {
    const LayerCosts& c = layer(i);
    const cost::Pass& pass = last_alone ? c.weights_last_alone : c.weights;
    const Segments& segments = pass.segments;
    late.begin(c, pass);
    out.layer(
        segments, buckets.around().exchange, [](std::size_t) {},
        [&](std::size_t s) {
          if (segments[s].kind == Segment::Kind::compute) late.behind(s);
        },
        first ? buckets.first_written(c) : buckets.zeroed(c).writes);
  }
};

class ChunkPasses {
 public:
  ChunkPasses(const std::vector<LayerRun>& layers, const PassSurroundings& around)
      : around_(around),
        spec_(around.spec),
        message_host_(around.pricing.message_host_time(around.spec.mesh.tensor, around.spec.mesh.pipeline > 1).value),
        buckets_(layers, around) {
    for (const LayerRun& run : layers)
      for (std::int64_t i = 0; i < run.count; ++i) layers_.push_back(run.costs);
  }

  ChunkPrograms write() {
    ChunkPrograms out;
    out.forward = forward(false);
    if (around_.begun) out.first = forward(true);
    const bool early = spec_.reduces_early() && !spec_.stages.asynchronous();
    const bool splits = spec_.stages.splits_backward();
    out.backward = backward({});
    if (splits) out.weights = weights({});
    const bool writes = buckets_.first_writes(), once = spec_.micro_batches() == (spec_.stages.mirrors() ? 2 : 1);
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
  /// Of the passes of a step over the chunk that add to gradients.
  struct Place {
    bool last = false, first = false;  ///< first: it writes them
  };

  [[nodiscard]] PassWriter writer() const {
    constexpr std::size_t kOfLayer = 16;  // steps, roughly
    return PassWriter(message_host_, kOfLayer * layers_.size());
  }
  [[nodiscard]] plan::Chunk whole() const { return {0, layers_.size()}; }

  PassProgram forward(bool first_of_step) {
    PassWriter out = writer();
    if (first_of_step) out.has_begun(Stream::data, around_.gathers);
    if (around_.load) load(out);
    const bool embeds = layers_.front()->kind == models::LayerKind::embedding;
    ForwardPass pass{{layers_, buckets_, out, !embeds}, first_of_step};
    plan::forward_order(whole(), pass);
    return finish({.input = pass.input}, Kind::forward, out, pass.waits || embeds);
  }
  PassProgram backward(Place place) {
    PassWriter out = writer();
    const bool heads = layers_.back()->kind == models::LayerKind::head;
    BackwardPass pass{{layers_, buckets_, out, !heads},
                      LateReductions(buckets_, out, place.last),
                      LayerReductions(buckets_, out),
                      place.first};
    plan::backward_order(whole(), spec_, pass);
    const bool in_moves =
        spec_.stages.virtual_stages > 1 || spec_.stages.splits_backward();  // messages are between passes
    const std::size_t sent = place.last && !in_moves ? out.size() : PassProgram{}.sent;
    pass.late.end();
    return finish({.input = pass.input, .sent = sent}, Kind::backward, out, pass.waits || heads);
  }
  PassProgram weights(Place place) {
    PassWriter out = writer();
    WeightsPass pass{{layers_, buckets_, out, false}, LateReductions(buckets_, out, place.last), place.first};
    plan::weights_order(whole(), pass);
    pass.late.end();
    return finish({}, Kind::weights, out, true);
  }

  void load(PassWriter& out) const {
    const std::span<const models::Op> op(around_.load, 1);
    out.compute(around_.pricing.compute_time(op).value, around_.pricing.host_time(op).value);
  }
  PassProgram finish(PassProgram program, Kind kind, PassWriter& out, bool no_input) const {
    program.reach = out.reach();
    program.steps = std::move(out.steps());
    program.freed = first_freed(program.steps, kind, spec_.stages);
    if (no_input) program.input = program.steps.size();
    return program;
  }

  const PassSurroundings& around_;
  const plan::PlanSpec& spec_;
  double message_host_;
  ChunkBuckets buckets_;
  std::vector<const LayerCosts*> layers_;
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
