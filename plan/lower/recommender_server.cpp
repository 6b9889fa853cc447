// Rings of lookups and gradients, pushes, and updates by worker.
#include "plan/lower/recommender_server.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "plan/lower/buckets.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/parameter_server.h"

namespace orrery::plan {

using base::at;
using models::DType;
using models::Op;
using models::OpKind;

namespace {

View own_of(BufferId buffer) {
  return {buffer, 0, 1, DealtOver::states};
}

// Norms of all workers' gradients, each of its own.
void norms(const RecommenderEnd& end) {
  ClassBuilder& build = end.build;
  const View squares = build.whole(end.norm_squared);
  build.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, end.data, squares, squares);
  const BufferId norms = build.buffer("worker_norms", Purpose::scalars, DType::fp32, end.spec.mesh.data, true);
  const auto of = [&](BufferId buffer, int worker) { return build.view({buffer, worker, 1}); };
  std::vector<Op> ops;
  for (int w = 0; w < end.spec.mesh.data; ++w)
    ops.push_back(build.flat(OpKind::clip_coefficient, DType::fp32, 1, {of(end.norm_squared, w)},
                             {of(norms, w), of(end.coefficient, w)}));
  ops.push_back(build.flat(OpKind::copy, DType::fp32, 1, {build.view(own_of(norms))},
                           {build.view(build.whole(build.result().gradient_norm))}));
  build.compute(Phase::optimizer, "norm", std::move(ops));
}

// Updates a server's shard of the replicated tables, worker by worker.
void update_replicated(const RecommenderEnd& end, BucketId id, BufferId received_lookups) {
  ClassBuilder& build = end.build;
  const Bucket b = build.bucket(id);
  const std::int64_t shard = b.shard_elements(), rows = shard / end.layout.embedding_dim;
  const View own{b.parameters, 0, shard, DealtOver::states};
  const int lookups = received_lookups ? build.view({received_lookups, 0, rows}) : -1;
  const Op op = replicated_update(end, shard, build.view({b.received, 0, shard}), lookups, build.view(own));
  std::vector<Op> ops;
  add_turns(build, op, end.spec.mesh.data, {b.received, received_lookups}, ops);
  build.compute(Phase::optimizer, "update_tables", std::move(ops)).bucket = id;
  build.collective(Phase::parameter_gather, Stream::data, CollectiveKind::all_gather, end.data, own,
                   build.whole(b.parameters), id);
}

// Before lives are settled.
void keep_for_updates(RankClass& c, const PlanSpec& spec, const LeftForUpdates& left) {
  const auto keep = [&](const std::vector<BufferId>& buffers, std::int32_t steps) {
    for (const BufferId buffer : buffers) {
      if (!buffer) continue;
      c.buffers[buffer].persistent = true;
      c.buffers[buffer].versions = std::max(1, steps);
    }
  };
  // A step's lookups are written before the update that takes the oldest ones; its gradients are written after it.
  keep(left.looked_up, *spec.states.staleness + 1);
  keep(left.gradients, *spec.states.staleness);
}

}  // namespace

std::int64_t server_alignment(const PlanSpec& spec, std::int64_t embedding_dim) {
  return spec.shards() * std::lcm(kParameterAlignment, embedding_dim);
}

BufferId copied(ClassBuilder& build, BufferId buffer) {
  const Buffer& b = build.result().buffers[buffer];
  const DType dtype = b.dtype;
  const std::int64_t elements = b.elements;
  const BufferId copy = build.buffer(b.name + ".pushed", b.purpose, dtype, elements, true);
  build.compute(
      Phase::gradient_reduce, "counts",
      {build.flat(OpKind::copy, dtype, elements, {build.view(build.whole(buffer))}, {build.view(build.whole(copy))})});
  return copy;
}

void add_turns(ClassBuilder& build, const Op& op, int workers, const std::vector<BufferId>& parts,
               std::vector<Op>& ops) {
  if (workers == 1) return ops.push_back(op);
  const auto of_worker = [&](std::vector<int>& operands, int worker) {
    for (int& operand : operands) {
      if (operand < 0) continue;
      View v = build.view_at(operand);
      if (std::find(parts.begin(), parts.end(), v.buffer) == parts.end()) continue;
      v.elements = build.whole(v.buffer).elements / workers;
      v.offset = worker * v.elements;
      operand = build.view(v);
    }
  };
  for (int w = 0; w < workers; ++w) {
    ops.push_back(op);
    ops.back().turn = w;
    ops.back().turns = workers;
    of_worker(ops.back().in, w);
    of_worker(ops.back().out, w);
  }
}

BufferId lower_push(const RecommenderEnd& end, const std::function<void()>& tables) {
  ClassBuilder& build = end.build;
  build.open("push");
  const auto& buckets = build.result().buckets;
  std::vector<Op> squares = {build.zero_of(end.norm_squared)};  // the last steps of a run have no block "begin"
  for (const Bucket& b : buckets) {
    if (!end.reports) break;
    const View all = build.whole(b.gradients);
    squares.push_back(build.flat(OpKind::norm_squared, DType::fp32, all.elements, {build.view(all)},
                                 {build.view(own_of(end.norm_squared))}));
    squares.back().accumulate = true;
  }
  if (end.reports) build.compute(Phase::optimizer, "norm", std::move(squares));
  report_pushed_loss(build, end.spec);
  tables();
  const auto push = [&](BufferId from, BufferId to, BucketId bucket) {
    build.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_to_all, end.data, build.whole(from),
                     build.whole(to), bucket);
  };
  for (const BucketId b : buckets.keys()) push(buckets[b].gradients, buckets[b].received, b);
  if (!end.lookups) return {};
  const BufferId received = build.buffer("replicated_tables.lookups.received", Purpose::communication, DType::fp32,
                                         build.whole(end.lookups).elements, true);
  push(end.lookups, received, {});
  return received;
}

void lower_served(const RecommenderEnd& end, BufferId received_lookups, const LeftForUpdates& left) {
  ClassBuilder& build = end.build;
  if (end.reports) norms(end);
  Groups groups;
  groups.data = end.data;
  PlanSpec masters = end.spec;  // parameters are in fp32 whatever values are in
  masters.numerics.precision = DType::fp32;
  masters.states.zero_stage = 1;  // a server updates its shard
  const auto& buckets = build.result().buckets;
  const auto tables = std::find_if(buckets.begin(), buckets.end(), [](const Bucket& b) { return b.embedding; });
  const BucketId id = tables == buckets.end() ? BucketId() : BucketId(tables - buckets.begin());
  lower_update(build, groups, masters, end.coefficient, id);
  if (id) update_replicated(end, id, received_lookups);
  keep_for_updates(build.result(), end.spec, left);
}

}  // namespace orrery::plan
