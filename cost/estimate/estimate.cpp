/// The closed form: prices layers once, sums stages, replays the pipeline by turns, adds the end of the step.
#include "cost/estimate/estimate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/asynchronous.h"
#include "cost/estimate/balancing.h"
#include "cost/estimate/block_kinds.h"
#include "cost/estimate/fold.h"
#include "cost/estimate/issue.h"
#include "cost/estimate/late_reductions.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/layer_key.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/offload.h"
#include "cost/estimate/parameter_server.h"
#include "cost/estimate/pass_lives.h"
#include "cost/estimate/pipeline.h"
#include "cost/estimate/stage_groups.h"
#include "cost/estimate/stage_times.h"
#include "cost/estimate/step_end.h"
#include "cost/estimate/update.h"
#include "cost/prices/exchange.h"
#include "models/inputs.h"
#include "plan/lower/buckets.h"
#include "plan/outline/reduction.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::cost {

namespace {

using base::Bytes;
using models::LayerKind;
using plan::CollectiveKind;

}  // namespace

struct Estimator::Memo {
  std::shared_ptr<const models::Model> model;
  const Pricing* pricing = nullptr;
  std::unique_ptr<SharedLinks> links;
  std::map<LayerKey, LayerCosts> layers;
  /// (replicas, tensor, pipeline, ranks among which ZeRO shards) -> messages of the norm and of the loss
  std::map<std::tuple<int, int, int, int>, std::pair<double, double>> agreements;
  std::optional<StepEnds> ends;
  PassMemo scratch;  ///< by layers, which are in `layers`

  const LayerCosts& layer(LayerKind kind, const plan::PlanSpec& spec, plan::Recompute recompute = plan::Recompute::none,
                          std::int64_t index = 0);
  std::vector<LayerRun> chunk(const plan::Plan& plan, int stage, int chunk);
  std::vector<std::vector<LayerRun>> chunks(const plan::Plan& plan, int stage);
  std::vector<LayerRun> stage(const plan::Plan& plan, int stage);
  StageTimes times(const plan::Plan& plan, int stage);
  void passes(StageTimes& t, const plan::Plan& plan, const std::vector<LayerRun>& layers);
  void copy_waits(StageTimes& t, const plan::Plan& plan, int stage, int chunk, const std::vector<LayerRun>& layers);
  void data_messages(StageTimes& t, const plan::PlanSpec& spec, const std::vector<LayerRun>& layers,
                     const StageGroups& groups);
  Agreements agree(const plan::Plan& plan);
  std::pair<double, int> worst(const plan::Plan& plan, MemoryQuestion question);
  StageMemory memory(const plan::Plan& plan, int stage, MemoryQuestion question);
  std::vector<StageTimes> all_times(const plan::Plan& plan);
  double hop(const plan::Plan& plan, int from, int to) const;
  SteadyStep steady(const plan::Plan& plan, const std::vector<StageTimes>& stages, const Agreements& agree);
  PipelineResult run(const plan::Plan& plan, const std::vector<StageTimes>& stages);
  double op(const models::Op& o) const { return pricing->op_time(o).value; }
  double dispatch() const { return pricing->compute_time(plan::Step{}).value; }
  Lockstep lockstep(const plan::PlanSpec& spec) const { return {pricing, links.get(), spec.ranks_per_stage()}; }
  double message(const plan::PlanSpec& spec, std::int64_t elements, models::DType dtype,
                 const std::vector<int>& group) const {
    const Bytes bytes{static_cast<double>(elements * size_of(dtype))};
    return group.size() < 2 || elements == 0
               ? 0
               : lockstep(spec).collective_time(CollectiveKind::all_reduce, bytes, group, plan::Stream::data).value;
  }
};

const LayerCosts& Estimator::Memo::layer(LayerKind kind, const plan::PlanSpec& spec, plan::Recompute recompute,
                                         std::int64_t index) {
  const models::ExpandOptions options = plan::expand_options(spec);
  const bool block = kind == LayerKind::block;
  LayerGroups groups{strided(0, 1, spec.tensor), strided(0, spec.tensor, spec.context),
                     strided(0, spec.expert_stride(), spec.expert), lockstep(spec)};
  // Groups within a node share its links with no other node's.
  const int per_node = std::max(1, pricing->cluster().devices_per_node);
  if (spec.tensor * spec.context <= per_node && spec.expert_stride() * spec.expert <= per_node)
    groups.lockstep.ranks = std::min(groups.lockstep.ranks, per_node);
  const LayerKey key = layer_key(kind, block ? model->variant(index) : models::BlockVariant{}, options, spec, recompute,
                                 links ? groups.lockstep.ranks : 0);
  if (const auto found = layers.find(key); found != layers.end()) return found->second;
  return layers
      .emplace(key, layer_costs(models::expand(*model, kind, index, options), recompute, *pricing, groups,
                                spec.splits_backward(), spec.optimizer, spec.compression, spec.partition_checkpoints))
      .first->second;
}

std::vector<LayerRun> Estimator::Memo::chunk(const plan::Plan& plan, int stage, int chunk) {
  const plan::PlanSpec& spec = plan.spec();
  std::vector<LayerRun> out;
  if (spec.begins(stage, chunk)) out.push_back({&layer(LayerKind::embedding, spec), 1});
  const std::int64_t blocks = plan.chunk_layers(stage, chunk);
  const std::int64_t again = spec.recompute_layers < 0 ? blocks : std::min(blocks, spec.recompute_layers);
  const std::int64_t first = plan.first_layer(stage, chunk);
  for (const BlockKind& kind : block_kinds(*model, first, again))
    out.push_back({&layer(LayerKind::block, spec, spec.recompute_of(0), kind.index), kind.count});
  for (const BlockKind& kind : block_kinds(*model, first + again, blocks - again))
    out.push_back({&layer(LayerKind::block, spec, plan::Recompute::none, kind.index), kind.count});
  if (spec.ends(stage, chunk)) out.push_back({&layer(LayerKind::head, spec), 1});
  return out;
}

std::vector<std::vector<LayerRun>> Estimator::Memo::chunks(const plan::Plan& plan, int stage) {
  std::vector<std::vector<LayerRun>> out;
  for (int c = 0; c < plan.spec().virtual_stages; ++c) out.push_back(chunk(plan, stage, c));
  return out;
}

std::vector<LayerRun> Estimator::Memo::stage(const plan::Plan& plan, int stage) {
  std::vector<LayerRun> out;
  for (int c = 0; c < plan.spec().virtual_stages; ++c)
    for (const LayerRun& run : chunk(plan, stage, c)) out.push_back(run);
  return out;
}

void Estimator::Memo::passes(StageTimes& t, const plan::Plan& plan, const std::vector<LayerRun>& layers_of) {
  const plan::PlanSpec& spec = plan.spec();
  if (layers_of.front().costs->kind == LayerKind::embedding || layers_of.back().costs->kind == LayerKind::head) {
    t.input = op(models::load_of(plan.model(), spec.micro_batch, spec.tokens_per_rank(), spec.context)) + dispatch();
  }
  double tensor_forward = 0, tensor_backward = 0, tensor_weights = 0;
  double host_forward = 0, host_backward = 0;
  double weights = 0, host_weights = 0;
  double sent_forward = 0, sent_backward = 0;  // all-to-alls of tokens
  const double issue = pricing->message_host_time(spec.tensor, spec.pipeline > 1).value;
  for (const LayerRun& run : layers_of) {
    const auto count = static_cast<double>(run.count);
    t.forward += count * run.costs->forward.compute;
    tensor_forward += count * run.costs->forward.messages;
    t.backward += count * run.costs->backward.compute;
    tensor_backward += count * run.costs->backward.messages;
    sent_forward += count * run.costs->forward.exchanges;
    sent_backward += count * (run.costs->backward.exchanges + run.costs->weights.exchanges);
    host_forward += count * (run.costs->forward.host + issue * run.costs->forward.tensor_messages);
    host_backward += count * (run.costs->backward.host + issue * run.costs->backward.tensor_messages);
    t.recompute += count * run.costs->backward.recomputed;
    weights += count * (run.costs->weights.compute + run.costs->weights.messages);
    t.weights += count * run.costs->weights.compute;
    tensor_weights += count * run.costs->weights.messages;
    host_weights += count * (run.costs->weights.host + issue * run.costs->weights.tensor_messages);
    if (run.costs->recomputation == plan::Recompute::full) {
      t.recompute += count * run.costs->recompute.compute;
      host_backward += count * (run.costs->recompute.host + issue * run.costs->recompute.tensor_messages);
      tensor_backward += count * run.costs->recompute.messages;
      sent_backward += count * run.costs->recompute.exchanges;
    }
  }
  // Beside another micro-batch's compute, exchanges cost only a part of the device.
  const double computed = t.forward + t.backward + t.recompute + t.weights;
  const double left = exchange_left(*pricing, sent_forward + sent_backward, computed);
  tensor_forward -= (1 - left) * sent_forward;
  tensor_backward -= (1 - left) * sent_backward;
  t.exchange = left * (sent_forward + sent_backward);
  t.tensor = tensor_forward + tensor_backward + tensor_weights - t.exchange;
  double forward_pass = t.input + t.forward + tensor_forward + t.data_forward;
  double backward_pass = t.backward + t.recompute + tensor_backward + t.data_backward;
  const Pass* ahead = run_ahead(*layers_of.back().costs);
  if (ahead) t.prelude = ahead->compute + ahead->messages - (1 - left) * ahead->exchanges;
  double late_weights = std::max(0.0, host_weights - weights);
  if (!spec.asynchronous() && !spec.has_server()) {
    t.forward_issue = {forward_issue(layers_of, issue, left, t.waits_forward)};
    t.backward_issue = {backward_issue(layers_of, issue, left, t.prelude, t.waits_backward)};
    t.weights_issue = {{host_weights, host_weights}};
    late_weights = 0;
  } else {
    // The host waits only for other stages, so with one stage its lead in one pass offsets delay in the other.
    double late_forward = host_forward - forward_pass, late_backward = host_backward - backward_pass;
    if (spec.pipeline == 1) late_backward += std::exchange(late_forward, 0.0);
    t.forward += std::max(0.0, late_forward);
    forward_pass += std::max(0.0, late_forward);
    t.backward += std::max(0.0, late_backward);
    backward_pass += std::max(0.0, late_backward);
  }
  t.weights_pass = {weights + late_weights};
  t.backward += t.weights + late_weights;  // only for the breakdown from here on
  t.forward_pass = {forward_pass};
  t.backward_pass = {backward_pass};
}

void Estimator::Memo::copy_waits(StageTimes& t, const plan::Plan& plan, int stage, int chunk,
                                 const std::vector<LayerRun>& layers_of) {
  if (!plan.spec().offload.any()) return;
  const bool head = layers_of.back().costs->kind == LayerKind::head;
  const std::int64_t staying = staying_blocks(plan.spec(), stage, chunk, head, plan.micro_batches());
  const CopyWaits waits = cost::copy_waits(layers_of, plan.spec(), staying, lockstep(plan.spec()));
  t.copies = waits.forward + waits.backward;
  t.forward_pass.front() += waits.forward;
  t.backward_pass.front() += waits.backward;
  t.ahead_forward += waits.ahead_forward;
  t.ahead_backward += waits.ahead_backward;
  t.tail_forward = waits.tail_forward;
  t.tail_backward = waits.tail_backward;
}

namespace {

/// A run of equal layers whose parameters are gathered while the layer before them runs: seconds of one.
struct Gathers {
  double gather = 0, forward = 0, backward = 0;  ///< the message; the passes that hide the next one's
  std::int64_t count = 1;
  bool in_backward = false;
};

/// What a pass over these layers waits for, in their order: for each, seconds of all its layers.
std::vector<double> waits_for(const std::vector<Gathers>& layers, double Gathers::*pass) {
  std::vector<double> waits;
  double hidden = 0;
  for (const Gathers& g : layers) {
    waits.push_back(std::max(0.0, g.gather - hidden) +
                    static_cast<double>(g.count - 1) * std::max(0.0, g.gather - g.*pass));
    hidden = g.*pass;
  }
  return waits;
}

}  // namespace

/// ZeRO-2 and 3 communicate for every micro-batch. A layer's parameters are gathered while the previous layer runs; its
/// gradients are reduced before the next layer begins, because their memory is freed.
void Estimator::Memo::data_messages(StageTimes& t, const plan::PlanSpec& spec, const std::vector<LayerRun>& layers_of,
                                    const StageGroups& groups) {
  const int zero = spec.replicas() > 1 ? spec.zero_stage : 0;
  if (zero < 2) return;
  const bool overlaps = pricing->overlaps(plan::Stream::data);
  const bool beside = overlaps && pricing->calibration().get("stack.reduce_beside", 0) != 0;
  std::vector<Gathers> gathers;
  std::vector<double> reduced;
  for (const LayerRun& run : layers_of) {
    const LayerCosts& c = *run.costs;
    const auto count = static_cast<double>(run.count);
    double gather = 0, reduce = 0, cleared = 0, add = 0;
    bool added = false;
    for (const LayerBucket of : kLayerBuckets) {
      const std::int64_t own = c.elements_of(of);
      plan::BucketShape b;
      b.experts = of == LayerBucket::experts;
      const int shards = spec.shards_of(b.experts);
      const std::int64_t unit = shards * plan::parameter_alignment(spec.optimizer);
      const auto resize = [&](std::int64_t elements) {
        b.elements = plan::round_up(elements, unit);
        b.shard = b.elements / shards;
      };
      if (c.frozen_of(of) > 0) {
        resize(c.frozen_of(of));
        gather += ends->reduction(b, spec, plan::Reduces::in_every_pass, groups).gather;
      }
      if (own == 0) continue;
      resize(own);
      if (of == LayerBucket::own) b.partial = c.partial_elements;
      const std::int64_t zeroed = pricing->stack().zero_gradients ? b.elements : c.zeroed_by_pass(of, b.elements);
      if (zeroed > 0) {
        models::Op zeroing = plan::zeroed_in_pass(b, spec).items.front().ops.front();
        zeroing.m = zeroed;
        cleared += op(zeroing);
      }
      const ReductionTimes times = ends->reduction(b, spec, plan::Reduces::in_every_pass, groups);
      gather += times.gather;
      reduce += times.all.over_tensor + times.all.messages;
      // Uncompressed, the sums of a layer's buckets are added up in one step.
      add += spec.compresses() ? times.all.compute : times.joined;
      if (!spec.compresses() && !std::exchange(added, true)) add += dispatch();
    }
    t.backward += count * (cleared + add);
    const double beneath = beside ? cleared + add : 0;
    const double backward = overlaps ? backward_seconds(c) + beneath : 0;
    // The reduction overlaps with the next layer's backward pass. It comes behind the gather of the layer after that,
    // and behind the step that adds up what the one before it has summed.
    const double exposed = beside ? std::max(0.0, reduce + std::max(gather, add) - std::max(gather, backward)) : reduce;
    t.data_backward += count * exposed;
    reduced.push_back(count * (cleared + add + exposed));
    gathers.push_back({gather, overlaps ? forward_seconds(c) : 0, backward, run.count, c.backward_reads_parameters});
  }
  t.waits_forward = waits_for(gathers, &Gathers::forward);
  t.data_forward = std::accumulate(t.waits_forward.begin(), t.waits_forward.end(), 0.0);
  t.ahead_forward = gathers.front().gather;
  t.waits_backward = std::move(reduced);
  std::vector<Gathers> backward;
  for (auto g = gathers.rbegin(); g != gathers.rend(); ++g)
    if (g->in_backward) backward.push_back(*g);
  const std::vector<double> waits = waits_for(backward, &Gathers::backward);
  t.data_backward += std::accumulate(waits.begin(), waits.end(), 0.0);
  t.ahead_backward = backward.empty() ? 0 : backward.front().gather;
  auto wait = waits.rbegin();
  for (std::size_t i = 0; i < gathers.size(); ++i)
    if (gathers[i].in_backward) t.waits_backward[i] += *wait++;
  if (spec.pipeline == 1) return;
  // The first gathers of a pass run while the stage waits for its input, from whose arrival on its host is clocked.
  t.waits_forward.front() -= t.ahead_forward;
  for (std::size_t i = gathers.size(); i-- > 0;)
    if (gathers[i].in_backward) {
      t.waits_backward[i] -= t.ahead_backward;
      break;
    }
}

StageTimes Estimator::Memo::times(const plan::Plan& plan, int stage) {
  const plan::PlanSpec& spec = plan.spec();
  StageGroups groups = stage_groups(plan, stage);
  groups.lockstep = lockstep(spec);
  StageTimes t;
  for (int c = 0; c < spec.virtual_stages; ++c) {
    const std::vector<LayerRun> layers_of = chunk(plan, stage, c);
    StageTimes one;
    data_messages(one, spec, layers_of, groups);
    passes(one, plan, layers_of);
    copy_waits(one, plan, stage, c, layers_of);
    for (double StageTimes::*part :
         {&StageTimes::input, &StageTimes::forward, &StageTimes::recompute, &StageTimes::backward, &StageTimes::tensor,
          &StageTimes::exchange, &StageTimes::data_forward, &StageTimes::data_backward, &StageTimes::prelude,
          &StageTimes::copies})
      t.*part += one.*part;
    t.forward_pass.push_back(one.forward_pass.front());
    t.backward_pass.push_back(one.backward_pass.front());
    t.weights_pass.push_back(one.weights_pass.front());
    t.preludes.push_back(one.prelude);
    t.aheads_forward.push_back(one.ahead_forward);
    t.aheads_backward.push_back(one.ahead_backward);
    t.tails_forward.push_back(one.tail_forward);
    t.tails_backward.push_back(one.tail_backward);
    for (std::vector<Issue> StageTimes::*all :
         {&StageTimes::forward_issue, &StageTimes::backward_issue, &StageTimes::weights_issue})
      (t.*all).insert((t.*all).end(), (one.*all).begin(), (one.*all).end());
  }
  const std::vector<LayerRun> layers_of = this->stage(plan, stage);
  ends->add(t, spec, buckets_of(layers_of, spec), groups);
  if (spec.offload.optimizer == plan::Space::device)
    t.norm += balancing_time(*pricing, model->experts, spec, layers_of, groups);
  if (spec.reduces_early() && pricing->overlaps(plan::Stream::data))
    t.reduce = late_reductions(chunks(plan, stage), spec, [&](const BucketSize& b) {
      const FoldTimes one = ends->reduction(b, spec, reduces(spec), groups).all;
      return one.over_tensor + one.messages;
    });
  if (spec.reduces_early() && !spec.asynchronous())
    for (int c = 0; c < spec.virtual_stages; ++c) {
      double within = 0;
      for (const BucketSize& b : buckets_of(chunk(plan, stage, c), spec))
        within += static_cast<double>(b.count) * ends->reduction(b, spec, reduces(spec), groups).all.compute;
      t.within.push_back(std::min(within, t.keep));
      t.keep -= t.within.back();
    }
  if (plan::weight_delay(spec, stage) > 0) {  // a version of the weights is copied
    t.keep += dispatch();
    for (const BucketSize& b : buckets_of(this->stage(plan, stage), spec))
      t.keep +=
          static_cast<double>(b.count) * op(flat(models::OpKind::copy, plan::expand_options(spec).dtype, b.elements));
  }
  return t;
}

Agreements Estimator::Memo::agree(const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  Agreements a;
  const auto key = std::make_tuple(spec.replicas(), spec.tensor, spec.asynchronous() ? 1 : spec.pipeline,
                                   partitions(spec) ? spec.shards() : 0);
  const auto found = agreements.find(key);
  if (found != agreements.end()) {
    std::tie(a.norm, a.loss) = found->second;
  } else {
    a.norm = message(spec, 1, models::DType::fp32, norm_members(spec));
    a.loss = message(spec, 1, models::DType::fp32, loss_members(spec));
    agreements.emplace(key, std::make_pair(a.norm, a.loss));
  }
  const std::int64_t table = layer(LayerKind::embedding, spec).shared_elements;
  if (spec.head_stage() > 0 && table > 0) {
    const std::vector<BucketSize> buckets = buckets_of({{&layer(LayerKind::embedding, spec), 1}}, spec);
    const std::int64_t elements = partitions(spec) ? buckets.front().shard : buckets.front().elements;
    a.embedding = message(spec, elements, plan::gradient_dtype(spec.precision),
                          {plan.rank(0, 0, 0), plan.rank(spec.pipeline - 1, 0, 0)});
  }
  return a;
}

namespace {

/// Whether a stage has the same layers as the previous one, chunk by chunk; no_more_layers: at most as many of each.
bool no_more_layers(const plan::Plan& plan, int stage) {
  for (int c = 0; c < plan.spec().virtual_stages; ++c) {
    const std::int64_t count = plan.chunk_layers(stage, c);
    if (count > plan.chunk_layers(stage - 1, c) ||
        !same_kinds(plan.model(), plan.first_layer(stage, c), plan.first_layer(stage - 1, c), count))
      return false;
  }
  return true;
}
bool same_layers(const plan::Plan& plan, int stage) {
  for (int c = 0; c < plan.spec().virtual_stages; ++c)
    if (plan.chunk_layers(stage, c) != plan.chunk_layers(stage - 1, c)) return false;
  return no_more_layers(plan, stage);
}

}  // namespace

StageMemory Estimator::Memo::memory(const plan::Plan& plan, int stage, MemoryQuestion question) {
  return stage_memory(chunks(plan, stage), plan.spec(), stage, plan.micro_batches(), pricing->software_memory().value,
                      scratch, pricing->stack().memory, question);
}

/// Bytes of the stage that needs most, and its index.
std::pair<double, int> Estimator::Memo::worst(const plan::Plan& plan, MemoryQuestion question) {
  std::pair<double, int> out{0, 0};
  const int last = plan.spec().pipeline - 1;
  for (int s = 0; s <= last; ++s) {
    // Among equal stages, the earlier one holds more micro-batches, unless they enter at both ends or as a table says.
    const bool first_holds_most = !plan.spec().mirrors() && plan.spec().order != plan::Order::custom;
    if (first_holds_most && s >= 2 && s < last && no_more_layers(plan, s)) continue;
    const double bytes = memory(plan, s, question).total();
    if (bytes > out.first) out = {bytes, s};
  }
  return out;
}

/// Seconds of a transfer between two stages.
double Estimator::Memo::hop(const plan::Plan& plan, int from, int to) const {
  const plan::PlanSpec& spec = plan.spec();
  const std::int64_t rows = spec.micro_batch * spec.tokens_per_rank() / (spec.shards_rows() ? spec.tensor : 1);
  const Bytes boundary{static_cast<double>(rows * model->hidden * models::size_of(plan::expand_options(spec).dtype))};
  const int per_node = std::max(1, pricing->cluster().devices_per_node);
  const int first = plan.rank(from, 0, 0), second = plan.rank(to, 0, 0);
  const Pricing::Boundary b =
      pricing->boundary(boundary, spec.tensor, !spec.shards_rows(), first / per_node == second / per_node);
  return lockstep(spec).send_time(b.sent, first, second).value + b.gather.value;
}

/// A training step of a pipeline that never drains.
SteadyStep Estimator::Memo::steady(const plan::Plan& plan, const std::vector<StageTimes>& stages,
                                   const Agreements& agree) {
  AsynchronousTimes times;
  times.overlaps = pricing->overlaps(plan::Stream::pipeline_recv);
  times.tied = agree.embedding > 0;
  const std::size_t last = stages.size() - 1;
  for (std::size_t s = 0; s <= last; ++s) {
    const StageTimes& t = stages[s];
    times.forward.push_back(t.forward_pass.front());
    times.backward.push_back(t.backward_pass.front());
    times.prelude.push_back(t.prelude);
    times.update.push_back(t.begin + t.reduce + t.keep + t.norm + agree.norm + t.update + t.gather +
                           (s == last ? agree.loss : 0) + (s == 0 || s == last ? agree.embedding : 0));
    if (s < last) times.hop.push_back(hop(plan, static_cast<int>(s), static_cast<int>(s) + 1));
  }
  return asynchronous_pipeline(times, plan.micro_batches());
}

/// Replays the passes of all stages in their order.
PipelineResult Estimator::Memo::run(const plan::Plan& plan, const std::vector<StageTimes>& stages) {
  const plan::PlanSpec& spec = plan.spec();
  const int last = spec.pipeline - 1;
  if (spec.virtual_stages > 1 || spec.splits_backward()) {
    InterleavedTimes times;
    times.overlaps = !spec.splits_backward() || pricing->overlaps(plan::Stream::pipeline_recv);
    for (int s = 0; s <= last; ++s) {
      times.forward.push_back(stages[static_cast<std::size_t>(s)].forward_pass);
      times.backward.push_back(stages[static_cast<std::size_t>(s)].backward_pass);
      times.weights.push_back(stages[static_cast<std::size_t>(s)].weights_pass);
      times.prelude.push_back(stages[static_cast<std::size_t>(s)].preludes);
      times.forward_issue.push_back(stages[static_cast<std::size_t>(s)].forward_issue);
      times.backward_issue.push_back(stages[static_cast<std::size_t>(s)].backward_issue);
      times.weights_issue.push_back(stages[static_cast<std::size_t>(s)].weights_issue);
      times.ahead_forward.push_back(stages[static_cast<std::size_t>(s)].aheads_forward);
      times.ahead_backward.push_back(stages[static_cast<std::size_t>(s)].aheads_backward);
      times.tail_forward.push_back(stages[static_cast<std::size_t>(s)].tails_forward);
      times.tail_backward.push_back(stages[static_cast<std::size_t>(s)].tails_backward);
      times.hop.push_back(hop(plan, s, s < last ? s + 1 : 0));
      times.begin.push_back(stages[static_cast<std::size_t>(s)].begin);
      if (spec.reduces_early()) times.last.push_back(stages[static_cast<std::size_t>(s)].within);
    }
    return moves_pipeline(times, spec, plan.micro_batches());
  }
  PipelineTimes times;
  times.overlaps = pricing->overlaps(plan::Stream::pipeline_recv);
  for (int s = 0; s <= last; ++s) {
    const StageTimes& t = stages[static_cast<std::size_t>(s)];
    times.forward.push_back(t.forward_pass.front());
    times.backward.push_back(t.backward_pass.front());
    times.prelude.push_back(t.prelude);
    times.begin.push_back(t.begin);
    if (spec.reduces_early()) times.last.push_back(t.within.front());
    times.ahead_forward.push_back(t.aheads_forward.front());
    times.ahead_backward.push_back(t.aheads_backward.front());
    times.tail_forward.push_back(t.tails_forward.front());
    times.tail_backward.push_back(t.tails_backward.front());
    if (!t.forward_issue.empty()) {
      times.forward_issue.push_back(t.forward_issue.front());
      times.backward_issue.push_back(t.backward_issue.front());
    }
    if (s < last) times.hop.push_back(hop(plan, s, s + 1));
  }
  return pipeline(times, spec.order, plan.micro_batches());
}

/// Times of every stage; copies those of the previous stage if both are alike.
std::vector<StageTimes> Estimator::Memo::all_times(const plan::Plan& plan) {
  const int count = plan.spec().pipeline;
  const int per_node = std::max(1, pricing->cluster().devices_per_node);
  std::vector<StageTimes> out;
  for (int s = 0; s < count; ++s) {
    // Mirrored stages each have a different distance to their image.
    const bool like_previous = s >= 2 && s + 1 < count && same_layers(plan, s) && !plan.spec().mirrors() &&
                               plan.rank(s, 0, 0) % per_node == plan.rank(s - 1, 0, 0) % per_node;
    out.push_back(like_previous ? out.back() : times(plan, s));
  }
  return out;
}

Estimator::Estimator(std::shared_ptr<const models::Model> model, const Pricing& pricing,
                     std::unique_ptr<SharedLinks> links)
    : memo_(std::make_unique<Memo>()) {
  memo_->model = std::move(model);
  memo_->pricing = &pricing;
  memo_->links = std::move(links);
  memo_->ends.emplace(pricing);
}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const plan::Plan& plan, MemoryQuestion question) {
  Estimate e = time(plan);
  std::tie(e.memory_peak, e.worst_stage) = memo_->worst(plan, question);
  return e;
}

Estimate Estimator::time(const plan::Plan& plan) {
  Memo& memo = *memo_;
  std::vector<StageTimes> stages = memo.all_times(plan);
  Agreements agree = memo.agree(plan);
  const std::size_t last = stages.size() - 1;
  Estimate e;
  const double overhead = memo.pricing->step_overhead().value;
  if (plan.spec().asynchronous() || plan.spec().has_server()) {
    SteadyStep step = plan.spec().has_server() ? served_step(plan, *memo.pricing, stages.front(), agree)
                                               : memo.steady(plan, stages, agree);
    const auto m = static_cast<double>(plan.micro_batches());
    e.step_time = step.period + overhead;
    e.breakdown = breakdown_of(stages, {{}, std::move(step.transfer)}, agree, m, e.step_time, overhead);
    e.bubble = e.breakdown.bubble + e.breakdown.imbalance;
    return e;
  }
  const PipelineResult passes = memo.run(plan, stages);

  std::vector<double> reduced;
  for (std::size_t s = 0; s <= last; ++s) reduced.push_back(passes.end[s] + stages[s].reduce + stages[s].keep);
  if (agree.embedding > 0) reduced[0] = reduced[last] = std::max(reduced[0], reduced[last]) + agree.embedding;
  double normed = 0, updated = 0;
  for (std::size_t s = 0; s <= last; ++s) normed = std::max(normed, reduced[s] + stages[s].norm);
  normed += agree.norm;
  for (const StageTimes& t : stages) updated = std::max(updated, normed + t.update + t.gather);

  e.step_time = updated + agree.loss + overhead;
  e.breakdown = breakdown_of(stages, passes, agree, static_cast<double>(plan.micro_batches()), e.step_time, overhead);
  e.bubble = e.breakdown.bubble + e.breakdown.imbalance;
  return e;
}

double Estimator::memory_peak(const plan::Plan& plan, MemoryQuestion question) {
  return memo_->worst(plan, question).first;
}

StageMemory Estimator::memory(const plan::Plan& plan, int stage, MemoryQuestion question) {
  return memo_->memory(plan, stage, question);
}

bool Estimator::fits_beside(const plan::Plan& plan) {
  if (!plan.spec().offload.any()) return true;
  const clusters::Cluster& cluster = memo_->pricing->cluster();
  const auto fits = [&](double rank, base::Bytes capacity) {
    const int ranks = std::min(cluster.devices_per_node, plan.spec().ranks());
    return capacity.value == 0 || rank * ranks <= capacity.value;
  };
  for (int stage = 0; stage < plan.spec().pipeline; ++stage) {
    const StageMemory m = memory(plan, stage);
    if (!fits(m.host, cluster.host_memory.capacity) || !fits(m.nvme, cluster.nvme.capacity)) return false;
  }
  return true;
}

}  // namespace orrery::cost
