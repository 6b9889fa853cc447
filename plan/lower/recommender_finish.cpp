// Norm and updates after the passes of a recommendation model.
#include "plan/lower/recommender_finish.h"

#include <utility>

#include "plan/lower/lower.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

int view(const RecommenderEnd& end, BufferId buffer) {
  return end.build.view(end.build.whole(buffer));
}

// The squares of the tables' gradients are summed over the ranks; those of all other gradients are the same on every
// rank.
void norm(const RecommenderEnd& end) {
  ClassBuilder& build = end.build;
  const View squares = build.whole(end.norm_squared);
  if (end.layout.sharded() && end.tables)
    build.collective(Phase::optimizer, Stream::exchange, CollectiveKind::all_reduce, end.tables, squares, squares);
  std::vector<Op> ops;
  for (const Bucket& b : build.result().buckets) {
    ops.push_back(build.flat(OpKind::norm_squared, DType::fp32, b.elements, {view(end, b.gradients)},
                             {view(end, end.norm_squared)}));
    ops.back().accumulate = true;
  }
  ops.push_back(build.flat(OpKind::clip_coefficient, DType::fp32, 1, {view(end, end.norm_squared)},
                           {view(end, build.result().gradient_norm), view(end, end.coefficient)}));
  build.compute(Phase::optimizer, "norm", std::move(ops));
}

void update(const RecommenderEnd& end, BucketId id) {
  ClassBuilder& build = end.build;
  const Bucket b = build.bucket(id);
  if (b.embedding) {
    const std::int64_t elements = end.layout.replicated_elements;
    Op op = replicated_update(end, elements, build.view({b.gradients, 0, elements}),
                              end.lookups ? view(end, end.lookups) : -1, build.view({b.parameters, 0, elements}));
    build.compute(Phase::optimizer, "update_tables", {std::move(op)}).bucket = id;
    return;
  }
  const OptimizerTraits& traits = traits_of(end.spec.states.optimizer);
  std::vector<int> out = {view(end, b.parameters), b.first_moment.exists() ? view(end, b.first_moment) : -1};
  if (b.second_moment.exists()) out.push_back(view(end, b.second_moment));
  Op op = build.flat(traits.update, DType::fp32, b.elements, {view(end, b.gradients), view(end, end.coefficient)},
                     std::move(out));
  if (traits.update == OpKind::momentum_update) op.rule = traits.rule;
  build.compute(Phase::optimizer, name_of(end.spec.states.optimizer), {std::move(op)}).bucket = id;
}

}  // namespace

Op replicated_update(const RecommenderEnd& end, std::int64_t elements, int gradient, int lookups, int parameters) {
  std::vector<int> in = {gradient};
  if (lookups >= 0) in.push_back(lookups);
  const BufferId states = end.build.result().replicated_states;
  Op op = end.build.flat(OpKind::table_update, DType::fp32, elements, std::move(in),
                         {parameters, states ? view(end, states) : -1});
  op.rule = traits_of(end.spec.states.optimizer).rule;
  return op;
}

void report_loss(const RecommenderEnd& end) {
  if (!end.data || !end.reports) return;
  const View loss = end.build.whole(end.build.result().loss);
  end.build.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, end.data, loss, loss);
}

void lower_updates(const RecommenderEnd& end) {
  if (end.reports) norm(end);
  for (const BucketId b : end.build.result().buckets.keys()) update(end, b);
}

}  // namespace orrery::plan
