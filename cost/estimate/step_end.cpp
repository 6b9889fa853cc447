// Prices of outlines over a stage's buckets.
#include "cost/estimate/step_end.h"

#include <algorithm>
#include <utility>

#include "cost/estimate/fold.h"
#include "cost/estimate/lowered_end.h"
#include "cost/estimate/parameter_server.h"
#include "cost/estimate/pass_writer.h"
#include "cost/estimate/update.h"
#include "cost/parameters/habits.h"
#include "plan/outline/turns.h"
#include "plan/outline/update.h"
#include "plan/spec/expert_rules.h"

namespace orrery::cost {

namespace {

/// What the stages agree on is added where all have come to it.
void set_end(StageTimes& t, const LoweredEnd& end, const Agreements& agree, bool tied) {
  const auto of_data = [](const EndPart& part) { return part.exposed[static_cast<std::size_t>(plan::Stream::data)]; };
  const double norm = agree.norm + agree.loss, table = tied ? agree.embedding : 0;
  t.reduce = std::max(0.0, of_data(end.squared) - table);
  t.norm = end.squared.all - of_data(end.squared);
  t.gather = std::max(0.0, of_data(end.updated) - norm);
  t.update = end.updated.all - of_data(end.updated);
  t.copies = end.squared.copies() + end.updated.copies();
}

class End {
 public:
  End(const Pricing& pricing, const plan::PlanSpec& spec, const std::vector<BucketSize>& buckets,
      const StageGroups& groups)
      : pricing_(pricing),
        spec_(spec),
        buckets_(buckets),
        groups_(groups),
        fold_(pricing, groups),
        gathers_next_(number_of(pricing.stack(), "stack.gathers_next", 0) != 0 && !spec.stages.asynchronous() &&
                      !spec.states.has_server() && !spec.exchanges_by_node()) {}

  [[nodiscard]] const NextGathers& next() const { return next_; }
  /// Gradients are zeroed.
  void begin(StageTimes& t) const {
    const bool on_host = spec_.offload.optimizer != plan::Space::device;
    const bool adds_up = zero_of(spec_) >= 2 || on_host;  // sums micro-batches elsewhere
    t.begin = dispatch() + 2 * op(flat(models::OpKind::fill_zero, models::DType::fp32, 1));
    std::vector<models::Op> zeroed;  // on the host
    for (const BucketSize& b : buckets_)
      if (adds_up || pricing_.stack().zero_gradients || !b.written)
        on_host ? add_ops(zeroed, plan::zeroed_at_start(b, spec_), b.count)
                : void(t.begin += static_cast<double>(b.count) * fold_.joined(plan::zeroed_at_start(b, spec_)));
    if (!zeroed.empty()) t.begin += pricing_.on_host_time(zeroed).value;
  }
  /// Reduces, clips, updates and gathers, all on the device.
  void finish(StageTimes& t) {
    t.norm = clip_time();
    for (const BucketSize& b : buckets_) {
      const auto count = static_cast<double>(b.count);
      reduced_.push_back(fold_.times(plan::reduction_of(b, spec_, reduces(spec_))));
      t.reduce += count * (reduced_.back().over_tensor + reduced_.back().messages);
      t.keep += count * reduced_.back().compute;
      t.norm += count * fold_.joined(plan::squared(b, spec_));
      add_to(totals_, b, spec_, b.count);
    }
    if (spec_.compresses() && zero_of(spec_) < 2 && !spec_.reduces_early()) overlap_reductions(t);
    for (int round = 0; round < plan::update_rounds(spec_); ++round) run(t, round);
    std::tie(t.update, t.gather) = chain_.times(pricing_.overlaps(plan::Stream::data));
    if (spec_.states.has_server()) serve(t, served_, spec_, pricing_);
  }
  /// The same where states or parameters live elsewhere.
  void finish_elsewhere(StageTimes& t, plan::StageId stage, const Agreements& agree,
                        std::shared_ptr<StreamRates> rates) {
    EndsRun run({t.end.get()}, overlaps_of(pricing_), std::move(rates), {0});
    const EndPart squared = run.squared().front(), updated = run.updated(0).front();
    set_end(t, {squared, updated}, agree, stage == plan::kFirstStage || stage == spec_.mesh.last_stage());
    if (!gathers_next_) return;
    for (const BucketSize& b : buckets_) {
      add_to(totals_, b, spec_, b.count);
      const plan::Outline outline = plan::update_of(b, totals_, spec_, plan::update_rounds(spec_) - 1, false);
      next_.add(b, gather_time(outline));
    }
  }

 private:
  static void add_ops(std::vector<models::Op>& to, const plan::Outline& outline, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      for (const plan::Item& item : outline.items) to.insert(to.end(), item.ops.begin(), item.ops.end());
  }
  /// In fewer bits a bucket's messages move while the next one's gradients are made.
  void overlap_reductions(StageTimes& t) const {
    std::vector<std::vector<TimedItem>> items;
    items.reserve(buckets_.size());
    PassWriter out(0);
    plan::Turns<TimedReduction, WriteReduction> turns(WriteReduction{&out});
    for (auto b = buckets_.begin(), next = b; b != buckets_.end(); b = next) {
      std::vector<std::pair<TimedReduction, int>> of_layer;  // and its parts
      for (next = b; next == b || (next != buckets_.end() && next->alternates); ++next) {
        const plan::Outline outline = plan::reduction_of(*next, spec_, plan::Reduces::at_the_end);
        items.push_back(fold_.items(outline, false));
        of_layer.emplace_back(TimedReduction{&items.back()}, outline.parts);
      }
      for (std::int64_t i = 0; i < b->count; ++i)
        for (const auto& [reduction, parts] : of_layer) turns.add(reduction, parts);
    }
    turns.flush();
    const auto end = [&](Ticks host) {
      RankClock clock(overlaps_of(pricing_), out.reach());
      clock.state.host = host;
      clock.run(out.steps());
      return clock.settle();
    };
    // The end is the later of two: behind the device's passes, and behind all that the host has issued for them.
    constexpr Ticks kFar = Ticks{1} << 60;
    t.reduce = seconds(end(-kFar)) - t.keep;
    t.reduce_issued = seconds(end(kFar) - kFar);
  }

  /// Seconds of the steps that take the norm of the gradients and clip them, without the sums of squares.
  double clip_time() const {
    double clip = 2 * dispatch() + op(flat(models::OpKind::clip_coefficient, models::DType::fp32, 1));
    if (spec_.numerics.precision != models::DType::fp16) return clip;
    clip += dispatch() + op(flat(models::OpKind::overflow, models::DType::fp32, 1)) +
            op(flat(models::OpKind::loss_scale, models::DType::fp32, 4));
    const std::vector<int>& others = zero_of(spec_) == 0 ? groups_.data : groups_.copies;
    const base::Bytes flag{static_cast<double>(sizeof(float))};
    if (others.size() > 1)
      clip += pricing_.collective_time(plan::CollectiveKind::all_reduce, flag, others, plan::Stream::data).value;
    return clip;
  }

  /// A round over all buckets, and what ranks agree on after it; the last round updates and gathers.
  void run(StageTimes& t, int round) {
    const bool last = round + 1 == plan::update_rounds(spec_);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const BucketSize& b = buckets_[i];
      const plan::Outline outline = plan::update_of(b, totals_, spec_, round, false);
      if (last) {
        update(i, outline);
        continue;
      }
      t.rounds += static_cast<double>(b.count) * fold_.times(outline).compute;
      if (i == 0)  // and clears what all add to
        t.rounds += fold_.joined(plan::update_of(b, totals_, spec_, round, true)) - fold_.joined(outline);
    }
    const FoldTimes agreed = fold_.times(plan::agreement_of(totals_, spec_, round));
    t.rounds += agreed.compute + agreed.over_tensor + agreed.messages;
  }

  void update(std::size_t i, const plan::Outline& outline) {
    const BucketSize& b = buckets_[i];
    UpdateChain::Part part{.count = b.count, .gather = gather_time(outline)};
    for (const plan::Item& item : outline.items) {
      const double seconds = fold_.time(outline, item);
      if (!item.is_message())
        part.directions += std::exchange(part.update, seconds);  // the last one updates
      else if (item.phase != plan::Phase::parameter_gather)
        part.meet += seconds;
    }
    served_.push_back({b.count, reduced_[i].over_tensor + reduced_[i].messages, part.update, part.gather});
    if (gathers_next_) next_.add(b, std::exchange(part.gather, 0));
    chain_.add(part);
  }
  [[nodiscard]] double gather_time(const plan::Outline& outline) const {
    double sum = 0;
    for (const plan::Item& item : outline.items)
      if (item.is_message() && item.phase == plan::Phase::parameter_gather) sum += fold_.time(outline, item);
    return sum;
  }

  double op(const models::Op& o) const { return pricing_.op_time(o).value; }
  double dispatch() const { return pricing_.compute_time(plan::Step{}).value; }

  const Pricing& pricing_;
  const plan::PlanSpec& spec_;
  const std::vector<BucketSize>& buckets_;
  const StageGroups& groups_;
  Fold fold_;
  std::vector<FoldTimes> reduced_;  ///< by bucket
  plan::StageTotals totals_;
  UpdateChain chain_;
  NextGathers next_;
  bool gathers_next_;
  std::vector<ServedBucket> served_;
};

}  // namespace

namespace {

/// All of a bucket that an outline without low rank or whole matrices reads; a new member does not compile here until
/// it is in the key.
void add_to_key(std::vector<std::int64_t>& key, const plan::BucketShape& b) {
  const auto& [elements, shard, partial, parameters, factors, embedding, experts, matrices, whole] = b;
  key.insert(key.end(), {elements, shard, partial, parameters, factors.elements, factors.met,
                         std::int64_t{embedding} | std::int64_t{experts} << 1});
}

}  // namespace

/// What these times depend on besides buckets: the plan, and where the stage's ranks are. An empty key means that they
/// depend on more than that. A new member of a plan does not compile here until it is named, and belongs in the key if
/// an outline reads it.
StepEnds::Key StepEnds::key_of(const plan::PlanSpec& spec, const StageGroups& groups, std::size_t more) const {
  const auto& [mesh, stages, shape, states, recomputation, offload, compression, numerics, embedding, tokens] = spec;
  const auto& [data, tensor, pipeline, context, expert, expert_tensor, sequence_parallel] = mesh;
  const auto& [virtual_stages, layers_per_stage, ends_as_layers, order, passes] = stages;
  const auto& [zero_stage, zero_group, overlap_gradients, staleness, optimizer, momentum] = states;
  const auto& [gradients, activations, rank, minimum_rate, capacity, group, start] = compression;
  const auto& [precision, rounding, flash, loss_chunks, vocab_multiple] = numerics;
  Key key;
  const bool by_shape = spec.low_rank() || plan::traits_of(optimizer).whole_matrices();
  if (by_shape || staleness || spec.stages.mirrors()) return key;
  const int per_node = std::max(1, pricing_.cluster().devices_per_node);
  const auto flags = std::int64_t{overlap_gradients} | std::int64_t{momentum} << 1 |
                     static_cast<std::int64_t>(rounding) << 8 | static_cast<std::int64_t>(gradients) << 16 |
                     static_cast<std::int64_t>(optimizer) << 24 | static_cast<std::int64_t>(precision) << 32 |
                     static_cast<std::int64_t>(order) << 40 | std::int64_t{zero_stage} << 48;
  key.reserve(10 + more);
  key = {groups.tensor.front() % per_node,
         data,
         tensor,
         context,
         expert,
         expert_tensor,
         zero_group,
         group,
         flags,
         groups.lockstep.axes.placed() ? pipeline : 0};
  if (offload.states())
    key.insert(key.end(), {static_cast<std::int64_t>(offload.activations), static_cast<std::int64_t>(offload.optimizer),
                           static_cast<std::int64_t>(offload.parameters), offload.prefetch});
  return key;
}

/// The same for a stage's buckets.
StepEnds::Key StepEnds::key_of(const plan::Plan& plan, plan::StageId stage, const std::vector<BucketSize>& buckets,
                               const StageGroups& groups) const {
  const plan::PlanSpec& spec = plan.spec();
  Key key = key_of(spec, groups, 16 + 9 * buckets.size());
  if (key.empty()) return key;
  for (const BucketSize& b : buckets) {
    add_to_key(key, b);
    key.insert(key.end(), {b.count, std::int64_t{b.written}});
  }
  if (spec.offload.states())
    key.insert(key.end(),
               {stage.number(), spec.mesh.pipeline, std::int64_t{plan::balances_by_step(plan.model(), spec)}});
  return key;
}

std::shared_ptr<const EndProgram> StepEnds::lowered(const plan::Plan& plan, plan::StageId stage,
                                                    const std::vector<BucketSize>& buckets, const StageGroups& groups) {
  const auto make = [&] { return std::make_shared<const EndProgram>(lowered_end(plan, stage, pricing_, groups)); };
  Key key = key_of(plan, stage, buckets, groups);
  if (key.empty()) return make();
  std::shared_ptr<const EndProgram>& known = lowered_[std::move(key)];
  if (known == nullptr) known = make();
  return known;
}

void StepEnds::add(StageTimes& t, const plan::Plan& plan, plan::StageId stage, const std::vector<BucketSize>& buckets,
                   const StageGroups& groups, const Agreements& agree, std::shared_ptr<StreamRates> rates) {
  const plan::PlanSpec& spec = plan.spec();
  Key key = key_of(plan, stage, buckets, groups);
  const bool keeps = !key.empty(), elsewhere = spec.offload.states();
  if (keeps) {
    key.push_back(std::int64_t{rates != nullptr});
    if (const auto found = ends_.find(key); found != ends_.end()) {
      std::tie(t.begin, t.reduce, t.reduce_issued, t.keep, t.norm, t.rounds, t.update, t.gather, t.copies, t.end,
               t.next) = found->second;
      return;
    }
  }
  End end(pricing_, spec, buckets, groups);
  end.begin(t);
  if (elsewhere) t.end = lowered(plan, stage, buckets, groups);
  elsewhere ? end.finish_elsewhere(t, stage, agree, std::move(rates)) : end.finish(t);
  if (keeps)
    ends_.emplace(std::move(key), Ends(t.begin, t.reduce, t.reduce_issued, t.keep, t.norm, t.rounds, t.update, t.gather,
                                       t.copies, t.end, end.next()));
  t.next = end.next();
}

void StepEnds::together(std::vector<StageTimes>& stages, const std::vector<PipelineTimes::Neighbours>& neighbours,
                        const std::vector<double>& passed, const Agreements& agree) const {
  std::vector<EndsRun> runs;
  std::vector<std::vector<EndPart>> squared;
  double agreed = 0;
  for (std::size_t s = 0; s < stages.size(); ++s)
    agreed = std::max(agreed, passed[s] + stages[s].reduce + stages[s].norm);
  for (const PipelineTimes::Neighbours& some : neighbours) {
    std::vector<const EndProgram*> programs;
    std::vector<double> begins;
    for (std::size_t s = some.first; s < some.first + some.count; ++s)
      programs.push_back(stages[s].end.get()), begins.push_back(passed[s]);
    squared.push_back(runs.emplace_back(std::move(programs), overlaps_of(pricing_), some.rates, begins).squared());
    for (std::size_t i = 0; i < some.count; ++i) agreed = std::max(agreed, begins[i] + squared.back()[i].all);
  }
  for (std::size_t n = 0; n < neighbours.size(); ++n) {
    const std::vector<EndPart> updated = runs[n].updated(agreed);
    for (std::size_t i = 0; i < updated.size(); ++i) {
      const std::size_t s = neighbours[n].first + i;
      set_end(stages[s], {squared[n][i], updated[i]}, agree, s == 0 || s + 1 == stages.size());
    }
  }
}

const ReductionTimes& StepEnds::reduction(const plan::BucketShape& b, const plan::PlanSpec& spec, plan::Reduces when,
                                          const StageGroups& groups, Room& room) {
  Key key = key_of(spec, groups, 8);
  const bool keeps = !key.empty();
  if (keeps) {
    key.push_back(static_cast<std::int64_t>(when));
    add_to_key(key, b);
    if (const auto found = reductions_.find(key); found != reductions_.end()) return found->second;
  }
  const Fold fold(pricing_, groups);
  const plan::Outline outline = plan::reduction_of(b, spec, when);
  ReductionTimes times{fold.times(outline), fold.joined(outline), fold.times(plan::gathered_in_pass(b, spec)).messages,
                       fold.items(outline, when == plan::Reduces::in_every_pass), outline.parts};
  for (const plan::Item& item : outline.items)
    if (!item.is_message()) times.joined_host += pricing_.host_time(item.ops).value;
  return keeps ? reductions_.emplace(std::move(key), std::move(times)).first->second
               : room.emplace_back(std::move(times));
}

}  // namespace orrery::cost
