/// The closed form: prices layers once, sums stages, replays the pipeline by turns, adds the end of the step.
#include "cost/estimate/estimate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/balancing.h"
#include "cost/estimate/block_kinds.h"
#include "cost/estimate/fold.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/layer_key.h"
#include "cost/estimate/layer_store.h"
#include "cost/estimate/least_copies.h"
#include "cost/estimate/least_end.h"
#include "cost/estimate/least_work.h"
#include "cost/estimate/lowered_passes.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/offload.h"
#include "cost/estimate/parameter_server.h"
#include "cost/estimate/pass_lives.h"
#include "cost/estimate/pass_program.h"
#include "cost/estimate/pipeline.h"
#include "cost/estimate/stage_groups.h"
#include "cost/estimate/stage_layers.h"
#include "cost/estimate/stage_streams.h"
#include "cost/estimate/stage_times.h"
#include "cost/estimate/step_end.h"
#include "cost/estimate/update.h"
#include "cost/prices/exchange.h"
#include "models/layers/inputs.h"
#include "plan/lower/buckets.h"
#include "plan/outline/reduction.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/partners.h"
#include "plan/spec/expert_rules.h"

namespace orrery::cost {

namespace {

using base::Bytes;
using models::LayerKind;
using plan::CollectiveKind;

/// A chunk's passes over one micro-batch, and seconds of what they compute.
struct ChunkTimes {
  std::shared_ptr<const ChunkPrograms> programs;
  double input = 0, forward = 0, recompute = 0, backward = 0;  ///< as StageTimes has them
  double writing = 0, within = 0;
};

}  // namespace

struct Estimator::Impl {
  std::shared_ptr<const models::Model> model;
  const Pricing* pricing = nullptr;
  std::unique_ptr<SharedLinks> links;
  std::optional<StageLayers> layers;
  /// (replicas, tensor, pipeline, ranks among which ZeRO shards, places) -> messages of the norm and of the loss
  std::map<std::tuple<int, int, int, int, plan::MeshAxes>, std::pair<double, double>> agreements;
  std::optional<StepEnds> ends;
  PassMemo scratch;  ///< by layers, which stay
  LoweredMemo lowered;
  MovesMemo moves;
  RatesMemo rates;

  std::vector<double> values_by_stage(const plan::Plan& plan);  ///< of its parameters on a rank
  /// Whether streams of a rank that share links slow each other down. A lower bound does without.
  enum class Streams { alone, shared };
  StageTimes times(const plan::Plan& plan, plan::StageId stage, Streams streams);
  ChunkTimes chunk_times(const plan::Plan& plan, plan::StageId stage, int chunk,
                         const std::vector<std::vector<LayerRun>>& chunks, const StageGroups& groups,
                         const BegunGathers& begun, Streams streams);
  double paired(const plan::Plan& plan, plan::StageId stage);
  void pass_alone(StageTimes& t) const;
  Agreements agree(const plan::Plan& plan);
  template <class Bytes>
  std::pair<double, plan::StageId> worst(const plan::Plan& plan, bool first_holds_most, const Bytes& bytes_of);
  std::pair<double, plan::StageId> worst_memory(const plan::Plan& plan, MemoryQuestion question);
  MemoryRecipe recipe_of(const plan::Plan& plan) const;
  StageMemory memory(const plan::Plan& plan, plan::StageId stage, MemoryQuestion question);
  bool keeps_rows(const plan::Plan& plan) const;
  double by_rows(const plan::Plan& plan, Bound bound);
  double least_work(const plan::Plan& plan, const plan::PlanSpec& sized, double times);
  std::vector<StageTimes> all_times(const plan::Plan& plan, Streams streams);
  double hop(const plan::Plan& plan, plan::StageId from, plan::StageId to) const;
  PipelineTimes passes(const plan::Plan& plan, const std::vector<StageTimes>& stages, const Agreements& agree);
  double op(const models::Op& o) const { return pricing->op_time(o).value; }
  bool one_copy() const { return pricing->calibration().get("stack.one_copy", 0) != 0; }
  double dispatch() const { return pricing->compute_time(plan::Step{}).value; }
  Lockstep lockstep(const plan::PlanSpec& spec) const {
    return {pricing, links.get(), spec.mesh.ranks_per_stage(), plan::axes_of(pricing->cluster(), spec)};
  }
  StageGroups groups_of(const plan::Plan& plan, plan::StageId stage) const {
    StageGroups groups = stage_groups(plan, stage);
    groups.lockstep = lockstep(plan.spec());
    return groups;
  }
  double message(const plan::PlanSpec& spec, Bytes bytes, const std::vector<int>& group) const {
    return group.size() < 2 || bytes.value == 0
               ? 0
               : lockstep(spec).collective_time(CollectiveKind::all_reduce, bytes, group, plan::Stream::data).value;
  }
};

std::vector<double> Estimator::Impl::values_by_stage(const plan::Plan& plan) {
  std::vector<double> out;
  for (const plan::StageId s : plan.spec().mesh.stages()) {
    double values = 0;
    for (const BucketSize& b : buckets_of(layers->of(plan, s), plan.spec()))
      values += static_cast<double>(b.count) * static_cast<double>(b.elements);
    out.push_back(values);
  }
  return out;
}

namespace {

double compute_seconds(const PassProgram& program) {
  Ticks sum = 0;
  for (const PassStep& step : program.steps)
    if (step.kind == PassStep::Kind::compute) sum += step.time;
  return seconds(sum);
}

}  // namespace

/// The share of a stage's passes beside whose partner's compute all-to-alls run.
double Estimator::Impl::paired(const plan::Plan& plan, plan::StageId stage) {
  if (!model->experts.any() || !(hides_exchanges(*pricing, plan.spec()) || plan::runs_beside(plan.spec()))) return 0;
  if (plan.spec().stages.asynchronous()) return 1;
  return plan::paired_share(moves.of(plan.spec(), plan.micro_batches(), 1)->at(stage.index()));
}

ChunkTimes Estimator::Impl::chunk_times(const plan::Plan& plan, plan::StageId stage, int chunk,
                                        const std::vector<std::vector<LayerRun>>& chunks, const StageGroups& groups,
                                        const BegunGathers& begun, Streams streams) {
  const plan::PlanSpec& spec = plan.spec();
  const std::vector<LayerRun>& layers_of = chunks[static_cast<std::size_t>(chunk)];
  ChunkTimes t;
  PassSurroundings around{spec, *pricing, *ends, groups};
  const bool head = layers_of.back().costs->kind == LayerKind::head;
  models::Op load;
  if (layers_of.front().costs->kind == LayerKind::embedding || head) {
    load = models::load_of(plan.model(), spec.shape.micro_batch, spec.tokens_per_rank(), spec.mesh.context);
    around.load = &load;
    t.input = op(load) + dispatch();
  }
  double sent = 0, busy = 0, recompute = 0;
  for (const LayerRun& run : layers_of) {
    const auto count = static_cast<double>(run.count);
    const LayerCosts& c = *run.costs;
    sent += count * (c.forward.exchanges + c.backward.exchanges + c.weights.exchanges);
    recompute += count * (c.backward.recomputed + c.weights.recomputed);
    busy += count * (c.forward.compute + c.backward.compute + c.weights.compute);
    if (c.recomputation != plan::Recompute::full) continue;
    sent += count * c.recompute.exchanges;
    recompute += count * c.recompute.compute;
  }
  const double share = paired(plan, stage), hidden = hides_exchanges(*pricing, spec) ? share : 0;
  around.exchange = {exchange_left(*pricing, sent, busy + recompute, hidden), exchange_taken(*pricing, spec, share)};
  for (int c = 0; c < spec.stages.virtual_stages; ++c) around.embeds = around.embeds || spec.begins(stage, c);
  if (!begun.steps.empty()) {
    around.begun = &begun.of[static_cast<std::size_t>(chunk)];
    around.gathers = static_cast<int>(begun.steps.size());
  }
  // A lower bound does without copies.
  const bool copies = spec.offload.any() && streams == Streams::shared;
  const auto out = copies ? lowered.of(plan, stage, chunk, chunks, around, moves)
                          : std::make_shared<const ChunkPrograms>(programs_of(layers_of, around));
  const double backward = compute_seconds(out->backward), weights = compute_seconds(out->weights);
  t.forward = compute_seconds(out->forward) - t.input;
  t.recompute = recompute;
  t.backward = backward + weights - recompute;
  const auto special = [&](const PassProgram& one, double usual) {
    return one.steps.empty() ? 0 : compute_seconds(one) - usual;
  };
  t.writing = special(out->first_backward, backward) + special(out->first_weights, weights);
  t.within = special(out->last_backward, backward) + special(out->last_weights, weights);
  t.programs = out;
  return t;
}

/// A parameter server's worker, whose host waits for nothing: its lead in one pass offsets delay in the other.
void Estimator::Impl::pass_alone(StageTimes& t) const {
  const ChunkPrograms& chunk = *t.program.chunks.front();
  double late = 0;
  const auto alone = [&](const PassProgram& program) {
    RankClock clock(overlaps_of(*pricing), program.reach);
    clock.state.host = -ticks(1e3);  // the host is far ahead
    const Ticks before = clock.state.host;
    clock.run(program.steps);
    const double time = seconds(clock.settle());
    for (std::size_t s = 0; s < t.exposed.size(); ++s) t.exposed[s] += seconds(clock.waits.exposed[s]);
    late += seconds(clock.state.host - before) - time;
    return time;
  };
  t.forward_pass = alone(chunk.forward);
  t.backward_pass = alone(chunk.backward);
  late = std::max(0.0, late);
  t.backward += late;
  t.backward_pass += late;
}

StageTimes Estimator::Impl::times(const plan::Plan& plan, plan::StageId stage, Streams streams) {
  const plan::PlanSpec& spec = plan.spec();
  StageGroups groups = groups_of(plan, stage);
  const std::vector<double> mirrored = spec.stages.mirrors() ? values_by_stage(plan) : std::vector<double>{};
  groups.lockstep.mirrored = mirrored;
  StageTimes t;
  const std::vector<LayerRun> layers_of = layers->of(plan, stage);
  if (streams == Streams::shared) t.program.lanes = stream_lanes(spec, groups, layers_of);
  t.program.rates = stream_rates(t.program.lanes, rates);
  const bool elsewhere = spec.offload.states();
  const Agreements agreed = elsewhere ? agree(plan) : Agreements{};
  const auto end = [&] { ends->add(t, plan, stage, buckets_of(layers_of, spec), groups, agreed, t.program.rates); };
  if (!spec.states.has_server()) end();
  BegunGathers begun;
  const std::vector<std::vector<LayerRun>> chunks = layers->chunks(plan, stage, Asked::priced);
  if (spec.offload.any() && streams == Streams::alone)
    t.program.copies = least_copies(plan, stage, chunks, groups.lockstep, moves);
  if (t.next.any()) begun = begun_gathers(chunks, spec, t.next);
  ChunkTimes one;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    // What leaves for the host depends on a chunk's place in the order, and gathers that have begun have numbers.
    const bool leaves = spec.offload.activations == plan::Space::host && streams == Streams::shared;
    const bool alone = c == 0 || !begun.steps.empty() || leaves;
    if (alone || chunks[c] != chunks[c - 1])
      one = chunk_times(plan, stage, static_cast<int>(c), chunks, groups, begun, streams);
    t.input += one.input, t.forward += one.forward, t.recompute += one.recompute;
    t.backward += one.backward, t.writing += one.writing, t.within += one.within;
    t.program.chunks.push_back(one.programs);
  }
  if (model->experts.any()) t.begin += op(zeroed_tally(model->experts, layers_of));
  t.program.begin = std::move(begun.steps);
  t.program.begin.push_back({.time = ticks(t.begin)});
  if (spec.states.has_server()) {
    pass_alone(t);
    end();  // overlaps what it can with a forward pass
  }
  if (!elsewhere)  // where its end has it, but for what stands between passes
    t.rounds += balancing_time(*pricing, *model, spec, layers_of, groups);
  else if (plan::balances_by_step(*model, spec))
    t.rounds += pooling_time(*pricing, *model, spec, layers_of, groups);
  if (spec.reduces_early() && !elsewhere) t.reduce = 0, t.reduce_issued = 0, t.keep = 0;  // the passes have it
  if (plan::weight_delay(spec, stage) > 0) {  // a version of the weights is copied
    t.keep += dispatch();
    for (const BucketSize& b : buckets_of(layers->of(plan, stage), spec))
      t.keep +=
          static_cast<double>(b.count) * op(flat(models::OpKind::copy, plan::expand_options(spec).dtype, b.elements));
  }
  return t;
}

Agreements Estimator::Impl::agree(const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  Agreements a;
  const auto key =
      std::make_tuple(spec.mesh.replicas(), spec.mesh.tensor, spec.stages.asynchronous() ? 1 : spec.mesh.pipeline,
                      partitions(spec) ? spec.shards() : 0, plan::axes_of(pricing->cluster(), spec));
  const auto found = agreements.find(key);
  if (found != agreements.end()) {
    std::tie(a.norm, a.loss) = found->second;
  } else {
    constexpr Bytes kNumber{sizeof(float)};
    a.norm = message(spec, kNumber, norm_members(spec));
    a.loss = message(spec, kNumber, loss_members(spec));
    agreements.emplace(key, std::make_pair(a.norm, a.loss));
  }
  const std::int64_t table = layers->one(LayerKind::embedding, spec).in(LayerBucket::shared).elements;
  if (spec.head_stage() != plan::kFirstStage && table > 0) {
    const std::vector<BucketSize> buckets = buckets_of({{&layers->one(LayerKind::embedding, spec), 1}}, spec);
    const std::int64_t elements = partitions(spec) ? buckets.front().shard : buckets.front().elements;
    const models::DType kept = plan::gradient_dtype(spec.numerics.precision);
    const Bytes sum{static_cast<double>(elements * size_of(kept))};
    a.embedding = message(spec, pricing->as_reduced(sum, plan::Phase::gradient_reduce, kept, spec.numerics.precision),
                          {plan.rank(plan::kFirstStage, 0, 0), plan.rank(spec.mesh.last_stage(), 0, 0)});
  }
  return a;
}

namespace {

/// Whether a stage has the same layers as the previous one, chunk by chunk; no_more_layers: at most as many of each.
bool no_more_layers(const plan::Plan& plan, plan::StageId stage) {
  const plan::StageId before = stage.previous();
  for (int c = 0; c < plan.spec().stages.virtual_stages; ++c) {
    const std::int64_t count = plan.chunk_layers(stage, c);
    if (count > plan.chunk_layers(before, c) ||
        !same_kinds(plan.model(), plan.first_layer(stage, c), plan.first_layer(before, c), count))
      return false;
  }
  return true;
}
/// Whether a stage has the same layers as the previous one, and neither has an end of the model.
bool like_previous(const plan::Plan& plan, plan::StageId stage) {
  if (stage.number() < 2 || stage == plan.spec().mesh.last_stage()) return false;
  for (int c = 0; c < plan.spec().stages.virtual_stages; ++c)
    if (plan.chunk_layers(stage, c) != plan.chunk_layers(stage.previous(), c)) return false;
  return no_more_layers(plan, stage);
}

}  // namespace

MemoryRecipe Estimator::Impl::recipe_of(const plan::Plan& plan) const {
  MemoryRecipe recipe = pricing->stack().memory;
  // Transformer Engine, pytorch/utils.py, is_non_tn_fp8_gemm_supported: compute capability 10 and later.
  recipe.one_rounded_copy = !recipe.scales_blocks && plan.spec().numerics.precision == models::DType::fp8 &&
                            pricing->cluster().device().architecture == clusters::Architecture::blackwell;
  return recipe;
}

StageMemory Estimator::Impl::memory(const plan::Plan& plan, plan::StageId stage, MemoryQuestion question) {
  std::shared_ptr<const EndProgram> end;
  if (plan.spec().offload.states())
    end = ends->lowered(plan, stage, buckets_of(layers->of(plan, stage, Asked::sized), plan.spec()),
                        groups_of(plan, stage));
  return stage_memory(layers->chunks(plan, stage, Asked::sized), plan.spec(), stage, plan.micro_batches(),
                      pricing->software_memory().value, end ? &end->memory : nullptr,
                      pair_bytes(plan, stage, moves, pricing->stack()), {scratch, moves}, recipe_of(plan), question,
                      one_copy());
}

/// Bytes of the stage that needs most, and which it is. `first_holds_most`: of stages with equal layers, the earliest.
template <class Bytes>
std::pair<double, plan::StageId> Estimator::Impl::worst(const plan::Plan& plan, bool first_holds_most,
                                                        const Bytes& bytes_of) {
  std::pair<double, plan::StageId> out{0, plan::kFirstStage};
  const plan::Mesh& mesh = plan.spec().mesh;
  for (const plan::StageId s : mesh.stages()) {
    if (first_holds_most && s.number() >= 2 && s != mesh.last_stage() && no_more_layers(plan, s)) continue;
    const double bytes = bytes_of(s);
    if (bytes > out.first) out = {bytes, s};
  }
  return out;
}

std::pair<double, plan::StageId> Estimator::Impl::worst_memory(const plan::Plan& plan, MemoryQuestion question) {
  const plan::Stages& stages = plan.spec().stages;
  // Among equal stages, the earlier one holds more micro-batches, unless they enter at both ends or as a table says.
  // But a later one has more of them between the two halves of a split backward, where recomputed tensors wait, too.
  const bool first_holds_most = !stages.splits_backward() && !stages.mirrors() && stages.order != plan::Order::custom &&
                                question.zero_bubble == plan::ZeroBubble::none;
  return worst(plan, first_holds_most, [&](plan::StageId stage) { return memory(plan, stage, question).total(); });
}

namespace {

/// Whether products of one sequence are rounded to fewer bits if those of several are (models/operators/fp8.h).
bool rounds_alike(const plan::PlanSpec& spec) {
  constexpr std::int64_t kRows = 16;
  if (plan::compute_dtype(spec.numerics.precision) == spec.numerics.precision) return true;
  return spec.tokens_per_rank() % (kRows * (spec.mesh.shards_rows() ? spec.mesh.tensor : 1)) == 0;
}

}  // namespace

bool Estimator::Impl::keeps_rows(const plan::Plan& plan) const {
  const MemoryRecipe& recipe = pricing->stack().memory;
  return recipe.stated && recipe.blocks_on_host == 0 && cost::keeps_rows(plan.spec(), *model) &&
         rounds_alike(plan.spec());
}

/// A bound of the worst rank's memory, by layers of a micro-batch of one sequence.
double Estimator::Impl::by_rows(const plan::Plan& plan, Bound bound) {
  plan::PlanSpec one = plan.spec();
  one.shape.micro_batch = 1;
  const MemoryRecipe recipe = recipe_of(plan);
  const double software = pricing->software_memory().value;
  return worst(plan, true,
               [&](plan::StageId stage) {
                 return bound_of_stage(bound, layers->chunks(plan, one, stage, Asked::sized), plan.spec(), stage,
                                       software, {scratch, moves}, recipe, one_copy());
               })
      .first;
}

/// Seconds of a transfer between two stages.
double Estimator::Impl::hop(const plan::Plan& plan, plan::StageId from, plan::StageId to) const {
  const plan::PlanSpec& spec = plan.spec();
  const std::int64_t rows =
      spec.shape.micro_batch * spec.tokens_per_rank() / (spec.mesh.shards_rows() ? spec.mesh.tensor : 1);
  const Bytes boundary{static_cast<double>(rows * model->hidden * models::size_of(plan::expand_options(spec).dtype))};
  const int per_node = std::max(1, pricing->cluster().devices_per_node);
  const int first = plan.rank(from, 0, 0), second = plan.rank(to, 0, 0);
  const Pricing::Boundary b =
      pricing->boundary(boundary, spec.mesh.tensor, !spec.mesh.shards_rows(), first / per_node == second / per_node);
  return lockstep(spec).send_time(b.sent, first, second).value + b.gather.value;
}

/// The passes of all stages, and what carries messages between them.
PipelineTimes Estimator::Impl::passes(const plan::Plan& plan, const std::vector<StageTimes>& stages,
                                      const Agreements& agree) {
  PipelineTimes times;
  times.overlaps = overlaps_of(*pricing);
  times.tied = agree.embedding > 0;
  const plan::StageId first = plan::kFirstStage, last = plan.spec().mesh.last_stage();
  for (const plan::StageId s : plan.spec().mesh.stages()) {
    const StageTimes& t = stages[s.index()];
    times.stages.push_back(t.program);
    const double reduced = std::max(t.reduce + t.keep, t.reduce_issued);
    times.stages.back().gather = t.gather;
    times.stages.back().update = t.begin + reduced + t.norm + agree.norm + t.rounds + t.update +
                                 (s == last ? agree.loss : 0) + (s == first || s == last ? agree.embedding : 0);
    if (last != first && (s != last || plan.spec().stages.virtual_stages > 1))
      times.hop.push_back(hop(plan, s, s != last ? s.next() : first));
  }
  times.neighbours = neighbours_of(plan, times.stages, std::max(1, pricing->cluster().devices_per_node), rates);
  return times;
}

/// Times of every stage; copies those of the previous stage if both are alike.
std::vector<StageTimes> Estimator::Impl::all_times(const plan::Plan& plan, Streams streams) {
  const int per_node = std::max(1, pricing->cluster().devices_per_node);
  std::vector<StageTimes> out;
  const auto in_node = [&](plan::StageId s) { return plan.rank(s, 0, 0) % per_node; };
  for (const plan::StageId s : plan.spec().mesh.stages()) {
    // Mirrored stages each have a different distance to their image.
    const bool same = like_previous(plan, s) && !plan.spec().stages.mirrors() && in_node(s) == in_node(s.previous()) &&
                      paired(plan, s) == paired(plan, s.previous());
    out.push_back(same ? out.back() : times(plan, s, streams));
  }
  return out;
}

std::shared_ptr<LayerStore> make_layer_store(std::unique_ptr<Lock> lock) {
  return std::make_shared<LayerStore>(std::move(lock));
}

Estimator::Estimator(std::shared_ptr<const models::Model> model, const Pricing& pricing,
                     std::unique_ptr<SharedLinks> links, std::shared_ptr<LayerStore> store)
    : impl_(std::make_unique<Impl>()) {
  impl_->model = std::move(model);
  impl_->pricing = &pricing;
  impl_->links = std::move(links);
  impl_->layers.emplace(*impl_->model, pricing, impl_->links.get(), store ? std::move(store) : make_layer_store());
  impl_->ends.emplace(pricing);
}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const plan::Plan& plan, MemoryQuestion question) {
  Estimate e = time(plan);
  std::tie(e.memory_peak, e.worst_stage) = impl_->worst_memory(plan, question);
  return e;
}

namespace {

/// Seconds of a step. `ends`: when each stage has ended its passes; mirrored stages wait for each other.
double step_time(const plan::PlanSpec& spec, std::vector<double>& ends, const std::vector<StageTimes>& stages,
                 const Agreements& agree, double overhead) {
  const std::size_t last = stages.size() - 1;
  if (spec.stages.mirrors())  // the two stages that hold the same parameters reduce together
    for (std::size_t s = 0; s <= last; ++s) ends[s] = ends[last - s] = std::max(ends[s], ends[last - s]);
  std::vector<double> reduced;
  for (std::size_t s = 0; s <= last; ++s) reduced.push_back(ends[s] + stages[s].reduce + stages[s].keep);
  if (agree.embedding > 0) reduced[0] = reduced[last] = std::max(reduced[0], reduced[last]) + agree.embedding;
  double normed = 0, updated = 0;
  for (std::size_t s = 0; s <= last; ++s) normed = std::max(normed, reduced[s] + stages[s].norm);
  normed += agree.norm;
  for (const StageTimes& t : stages) updated = std::max(updated, normed + t.rounds + t.update + t.gather);
  return updated + agree.loss + overhead;
}

}  // namespace

double Estimator::least_time(const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  if (spec.stages.asynchronous() || spec.states.has_server()) return time(plan).step_time;
  const std::vector<StageTimes> stages = impl_->all_times(plan, Impl::Streams::alone);
  const Agreements agree = impl_->agree(plan);
  std::vector<double> ends = least_end(impl_->passes(plan, stages, agree), spec, plan.micro_batches());
  return step_time(spec, ends, stages, agree, impl_->pricing->step_overhead().value);
}

/// `sized`: the plan, or one that differs in the size of its micro-batches alone; what its layers take counts `times`.
double Estimator::Impl::least_work(const plan::Plan& plan, const plan::PlanSpec& sized, double times) {
  const plan::PlanSpec& spec = plan.spec();
  if (spec.stages.asynchronous() || spec.states.has_server()) return 0;
  std::vector<std::vector<ChunkWork>> stages;
  for (const plan::StageId s : spec.mesh.stages()) {
    if (like_previous(plan, s)) {
      stages.push_back(stages.back());
      continue;
    }
    std::vector<ChunkWork>& work = stages.emplace_back();
    for (const std::vector<LayerRun>& chunk : layers->chunks(plan, sized, s, Asked::priced))
      work.push_back(work_of(chunk, plan::runs_beside(spec)));
  }
  return times * cost::least_work(stages, spec, plan.micro_batches()) + pricing->step_overhead().value;
}

double Estimator::least_work(const plan::Plan& plan) {
  return impl_->least_work(plan, plan.spec(), 1);
}

// Operators and messages take time ahead of their work, and tiles leave multiprocessors idle: the more rows, the less
// of both is left for each. CPU ranks lose their caches instead.
double Estimator::least_rate(const plan::Plan& plan) {
  const bool gpu = impl_->pricing->cluster().device().kind != clusters::DeviceKind::cpu;
  if (!gpu || !cost::keeps_rows(plan.spec(), *impl_->model)) return least_work(plan);
  constexpr std::int64_t kRows = std::int64_t{1} << 22;
  // Sequences: what runs faster in multiples of some number of rows or heads (products in fp8, fused softmax) does.
  constexpr std::int64_t kMultiple = 64;
  constexpr double kLeft = 0.99;  // the last tiles: 1.0006 of the work at worst in 71,000 plans without this
  plan::PlanSpec large = plan.spec();
  large.shape.micro_batch = plan::round_up(kRows / large.tokens_per_rank() + 1, kMultiple);
  const double share =
      static_cast<double>(plan.spec().shape.micro_batch) / static_cast<double>(large.shape.micro_batch);
  return impl_->least_work(plan, large, kLeft * share);
}

Estimate Estimator::time(const plan::Plan& plan) {
  Impl& impl = *impl_;
  const plan::PlanSpec& spec = plan.spec();
  std::vector<StageTimes> stages = impl.all_times(plan, Impl::Streams::shared);
  Agreements agree = impl.agree(plan);
  Estimate e;
  PipelineResult passes;
  const double overhead = impl.pricing->step_overhead().value;
  // Where the stages hold the model twice, each half of the micro-batches runs through one of a stage's two chunks.
  const double each = static_cast<double>(plan.micro_batches()) / (spec.stages.mirrors() ? 2 : 1);
  if (spec.states.has_server()) {
    e.step_time = served_step(plan, *impl.pricing, stages.front(), agree) + overhead;
    passes.reduced = passes.transfer = passes.late_forward = passes.late_backward = {0};
    passes.exposed = {stages.front().exposed};
    for (double& exposed : passes.exposed.front()) exposed *= each;
  } else {
    const PipelineTimes times = impl.passes(plan, stages, agree);
    passes = pipeline(times, spec, plan.micro_batches(), impl.moves);
    if (spec.offload.states() && !spec.stages.asynchronous() && !times.neighbours.empty())
      impl.ends->together(stages, times.neighbours, passes.end, agree);
    if (spec.stages.asynchronous())  // whose passes have waited for gathers
      for (StageTimes& t : stages) t.gather = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {  // the host may be too late for the reductions
      StageTimes& t = stages[s];
      if (t.reduce_issued == 0) continue;
      t.keep += std::max(0.0, passes.issued[s] + t.reduce_issued - passes.end[s] - t.reduce - t.keep);
    }
    e.step_time = spec.stages.asynchronous() ? *std::max_element(passes.end.begin(), passes.end.end()) + overhead
                                             : step_time(spec, passes.end, stages, agree, overhead);
  }
  e.breakdown = breakdown_of(stages, passes, agree, each, e.step_time, overhead);
  e.bubble = e.breakdown.bubble + e.breakdown.imbalance;
  return e;
}

double Estimator::memory_peak(const plan::Plan& plan, MemoryQuestion question) {
  return impl_->worst_memory(plan, question).first;
}

double Estimator::least_memory(const plan::Plan& plan) {
  return impl_->keeps_rows(plan) ? impl_->by_rows(plan, Bound::least) : least_states(plan);
}

double Estimator::most_memory(const plan::Plan& plan) {
  const bool known = impl_->keeps_rows(plan) && plan.spec().stages.virtual_stages == 1;
  return known ? impl_->by_rows(plan, Bound::most) : std::numeric_limits<double>::infinity();
}

double Estimator::least_states(const plan::Plan& plan) {
  Impl& impl = *impl_;
  const double software = impl.pricing->software_memory().value;
  const auto states = [&](plan::StageId stage) {
    return states_of_stage(impl.layers->of(plan, stage, Asked::parameters), plan.spec(), software, impl.recipe_of(plan),
                           impl.one_copy());
  };
  return impl.worst(plan, true, states).first;
}

StageMemory Estimator::memory(const plan::Plan& plan, plan::StageId stage, MemoryQuestion question) {
  return impl_->memory(plan, stage, question);
}

NodeMemory Estimator::beside(const plan::Plan& plan) {
  NodeMemory out;
  if (!plan.spec().offload.any()) return out;
  const int ranks = std::min(impl_->pricing->cluster().devices_per_node, plan.spec().mesh.ranks());
  for (const plan::StageId stage : plan.spec().mesh.stages()) {
    const StageMemory m = memory(plan, stage);
    out.host = std::max(out.host, m.host * ranks);
    out.nvme = std::max(out.nvme, m.nvme * ranks);
  }
  return out;
}

bool Estimator::fits_beside(const plan::Plan& plan) {
  const NodeMemory needed = beside(plan);
  const clusters::Cluster& cluster = impl_->pricing->cluster();
  const auto fits = [](double bytes, base::Bytes capacity) { return capacity.value == 0 || bytes <= capacity.value; };
  return fits(needed.host, cluster.host_memory.capacity) && fits(needed.nvme, cluster.nvme.capacity);
}

}  // namespace orrery::cost
