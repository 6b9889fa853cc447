// The end of a training step: reduces and clips gradients, updates and gathers parameters, sums the loss.
#include "plan/lower/lower_finish.h"

#include <algorithm>

#include "base/index.h"
#include "plan/lower/compress.h"
#include "plan/lower/lower.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/parameter_server.h"
#include "plan/spec/expert_rules.h"

namespace orrery::plan {

using base::at;
using models::DType;
using models::Op;
using models::OpKind;

std::vector<BucketId> reduction_order(const PlanSpec& spec, const base::ById<BucketId, Bucket>& buckets) {
  std::vector<BucketId> order;
  for (const BucketId b : buckets.keys())
    if (!buckets[b].frozen) order.push_back(b);
  const auto by_name = [&](BucketId a, BucketId b) { return buckets[a].name < buckets[b].name; };
  if (spec.stages.mirrors()) std::sort(order.begin(), order.end(), by_name);
  return order;
}

void pool_tallies(ClassBuilder& build, const Groups& groups, const RankClass& rank_class, std::int64_t experts) {
  const std::int64_t values = 2 * experts + 1;
  Op sum = build.flat(OpKind::sum_pieces, DType::fp32, values, {build.view(build.whole(rank_class.tally))},
                      {build.view(build.whole(rank_class.pooled))});
  sum.n = std::max<std::int64_t>(1, static_cast<std::int64_t>(rank_class.expert_layers.size()));
  build.compute(Phase::reporting, "pool_tallies", {std::move(sum)});
  for (const GroupId group : {groups.loss, groups.counts})
    if (group)
      build.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, group,
                       build.whole(rank_class.pooled), build.whole(rank_class.pooled));
}

std::vector<Op> squares_of(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, BucketId b, BufferId into) {
  OutlinedBucket bound = outlined(build, b);
  buffer_of(bound, Memory::norm_squared) = into;
  return OutlineWriter(build, groups, squared(*ShapeOf(build.bucket(b), spec), spec), bound).operators(0);
}

void run_before(std::int64_t training_step, std::span<Step> steps) {
  for (Step& step : steps) step.until_step = training_step;
}
void run_from(std::int64_t training_step, std::span<Step> steps) {
  for (Step& step : steps) step.from_step = training_step;
}

namespace {

class Finish {
 public:
  explicit Finish(const StepEnd& end)
      : build_(end.build),
        groups_(end.groups),
        spec_(end.spec),
        model_(end.model),
        zero_(end.zero),
        stage_(end.stage),
        shared_(end.shared),
        norm_squared_(end.norm_squared),
        coefficient_(end.coefficient) {}

  void run() {
    build_.open("finish");
    if (spec_.compresses())
      compress_gradients();
    else if (!spec_.reduces_early())
      reduce_gradients();
    if (shares_table()) {
      const View v = optimized_gradient(build_, build_.bucket(shared_), zero_);
      build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, groups_.embedding, v, v,
                        shared_);
    }
    clip();
    lower_update(build_, groups_, spec_, coefficient_);
    if (build_.result().tally.exists()) balance();
    report();
  }

  void report() {
    if (groups_.loss && (!spec_.stages.asynchronous() || stage_ == spec_.head_stage()))
      build_.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, groups_.loss,
                        build_.whole(build_.result().loss), build_.whole(build_.result().loss));
  }

 private:
  // The tokens of each layer's experts over all replicas, the balancing losses, and the biases that even out the load.
  void balance() {
    const RankClass& c = build_.result();
    const models::Experts& experts = model_.experts;
    if (!balances_by_step(model_, spec_)) pool_tallies(build_, groups_, c, experts.count);
    Op losses = build_.flat(OpKind::balance_losses, DType::fp32, experts.count, {build_.view(build_.whole(c.pooled))},
                            {build_.view(build_.whole(c.balance))});
    losses.n = spec_.shape.batch * spec_.shape.sequence * model_.expert_layers(model_.blocks());
    build_.compute(Phase::reporting, "balance_losses", {std::move(losses)});
    if (c.expert_layers.empty()) return;
    for (const GroupId group : {groups_.data, groups_.copies, groups_.counts})
      if (group)
        build_.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, group, build_.whole(c.tally),
                          build_.whole(c.tally));
    if (experts.bias_rate > 0 && !model_.lora.any()) move_biases();
  }

  // Every rank moves its own copy, from the same loads.
  void move_biases() {
    const RankClass& c = build_.result();
    const std::int64_t experts = model_.experts.count, values = 2 * experts + 1;
    std::vector<Op> ops;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(c.expert_layers.size()); ++i) {
      ops.push_back(build_.flat(OpKind::balance_bias, DType::fp32, experts,
                                {build_.view({c.tally, i * values, values})},
                                {build_.view({c.expert_biases, i * experts, experts})}));
      ops.back().scale = model_.experts.bias_rate;
    }
    build_.compute(Phase::optimizer, "move_biases", std::move(ops));
  }

  bool shares_table() const {
    return groups_.embedding && shared_.exists() && !build_.bucket(shared_).frozen &&
           (stage_ == kFirstStage || stage_ == spec_.head_stage());
  }
  void compress_gradients() {
    if (zero_ >= 2 || spec_.reduces_early()) return;
    if (spec_.plain_steps() > 0) reduce_gradients();
    std::vector<Step>& steps = build_.result().blocks.back().steps;
    const std::size_t plain = steps.size();
    CompressedReduction reduction(build_, groups_, spec_, Reduces::at_the_end);
    for (const BucketId b : build_.result().buckets.keys()) reduction.add(b, build_.bucket(b).gradients);
    reduction.flush();
    run_before(spec_.plain_steps(), std::span(steps).first(plain));
    run_from(spec_.plain_steps(), std::span(steps).subspan(plain));
  }
  void reduce_gradients() {
    const Reducing plain{build_, groups_, spec_, Reduces::at_the_end, false};
    for (const BucketId b : reduction_order(spec_, build_.result().buckets)) plain.write(b);
  }

  void clip() {
    const bool apart = spec_.squares_experts_apart();
    std::vector<Op> squares;
    const auto square = [&](BucketId b, BufferId into) {
      for (Op& op : squares_of(build_, groups_, spec_, b, into)) squares.push_back(std::move(op));
    };
    const auto& buckets = build_.result().buckets;
    if (apart) {
      const BufferId of_experts = build_.buffer("norm_squared.experts", Purpose::communication, DType::fp32, 1);
      squares.push_back(build_.zero_of(of_experts));
      for (const BucketId b : buckets.keys())
        if (buckets[b].experts && !buckets[b].frozen) square(b, of_experts);
      build_.compute(Phase::optimizer, "norm", std::move(squares));
      squares.clear();
      const GroupId parts = spec_.squares_parts_apart() ? groups_.of(true).tensor : GroupId();
      for (const GroupId group : {groups_.expert, parts})
        if (group)
          build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, group, build_.whole(of_experts),
                            build_.whole(of_experts));
      squares.push_back(build_.flat(OpKind::add_scaled, DType::fp32, 1, {build_.view(build_.whole(of_experts))},
                                    {build_.view(build_.whole(norm_squared_))}));
      squares.back().scale = 1.0 / spec_.times_experts_are_squared();  // what the sum that follows would count so often
    }
    for (const BucketId b : buckets.keys())
      if (!buckets[b].frozen && (!apart || !buckets[b].experts)) square(b, norm_squared_);
    build_.compute(Phase::optimizer, "norm", std::move(squares));
    if (groups_.norm)
      build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, groups_.norm,
                        build_.whole(norm_squared_), build_.whole(norm_squared_));
    // Stages that clip by their own norms use one norm if they share a table; otherwise its copies would drift apart.
    if (spec_.stages.asynchronous() && shares_table())
      build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, groups_.embedding,
                        build_.whole(norm_squared_), build_.whole(norm_squared_));
    const BufferId scaling = build_.result().scaling;
    std::vector<int> in = {build_.view(build_.whole(norm_squared_))};
    std::vector<Op> ops;
    if (scaling) {
      agree_on_overflow(scaling);
      in.push_back(build_.view(build_.whole(scaling)));
    }
    ops.push_back(build_.flat(
        OpKind::clip_coefficient, DType::fp32, 1, std::move(in),
        {build_.view(build_.whole(build_.result().gradient_norm)), build_.view(build_.whole(coefficient_))}));
    if (scaling)  // the coefficient has removed the old scale; the next step uses the new one
      ops.push_back(build_.flat(OpKind::loss_scale, DType::fp32, 4, {}, {build_.view(build_.whole(scaling))}));
    build_.compute(Phase::optimizer, "clip", std::move(ops));
  }

  // All ranks must agree whether to skip the step. Ranks that have summed one norm together read the same value.
  // Replicas or sub-groups, each of which has the norm of its own copy of the gradients, exchange the flag.
  void agree_on_overflow(BufferId scaling) {
    const View flag{scaling, 3, 1};
    build_.compute(Phase::optimizer, "overflow",
                   {build_.flat(OpKind::overflow, DType::fp32, 1, {build_.view(build_.whole(norm_squared_))},
                                {build_.view(flag)})});
    if (const GroupId others = zero_ == 0 ? groups_.data : groups_.copies)
      build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, others, flag, flag, {}, {},
                        Reduce::maximum);
  }

  ClassBuilder& build_;
  const Groups& groups_;
  const PlanSpec& spec_;
  const models::Model& model_;
  int zero_;
  StageId stage_;
  BucketId shared_;
  BufferId norm_squared_, coefficient_;
};

}  // namespace

void lower_finish(const StepEnd& end) {
  if (end.spec.states.has_server()) return lower_served(end);
  Finish(end).run();
}

void lower_report(const StepEnd& end) {
  end.build.open("finish");
  Finish(end).report();
}

}  // namespace orrery::plan
