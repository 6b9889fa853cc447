/// Reductions in fewer bits and encodings, a bucket or a layer at a time.
#include "cost/estimate/compression.h"

#include <algorithm>
#include <map>

#include "cost/estimate/offload.h"
#include "cost/estimate/update.h"
#include "models/encoding.h"
#include "plan/lower/buckets.h"
#include "plan/lower/compress.h"
#include "plan/lower/encode.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

using models::DType;
using models::Op;
using models::OpKind;
using plan::CollectiveKind;

namespace {

Op product(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b) {
  Op op = flat(OpKind::matmul, DType::fp32, m, n);
  op.k = k;
  op.trans_a = trans_a;
  op.trans_b = trans_b;
  return op;
}

plan::LowRankSizes sizes_of(const BucketSize& bucket, const plan::PlanSpec& spec) {
  plan::LowRankSizes sizes;
  if (bucket.matrices != nullptr)
    for (const plan::MatrixShape& matrix : *bucket.matrices) (void)place_matrix(sizes, matrix, spec.compression);
  return sizes;
}

bool rounds(const plan::PlanSpec& spec) {
  return plan::gradient_dtype(spec.precision) == DType::fp32;
}

ReductionTimes in_halves(const BucketSize& b, const plan::PlanSpec& spec, const Pricing& pricing,
                         const std::vector<int>& group) {
  const base::Bytes bytes{static_cast<double>(b.elements * models::size_of(DType::bf16))};
  const auto message = [&](CollectiveKind kind) {
    return pricing.collective_time(kind, bytes, group, plan::Stream::data).value;
  };
  const Op convert = flat(OpKind::convert, DType::bf16, b.elements);
  Op sum = flat(OpKind::sum_pieces, DType::bf16, b.shard, spec.replicas());
  sum.accumulate = spec.zero_stage >= 2;
  ReductionTimes t;
  t.messages = message(CollectiveKind::all_to_all);
  t.compute = pricing.compute_time({&sum, 1}).value;
  if (rounds(spec)) t.compute += pricing.compute_time({&convert, 1}).value;
  if (spec.zero_stage > 0) return t;
  t.messages += message(CollectiveKind::all_gather);
  if (rounds(spec)) t.compute += pricing.compute_time({&convert, 1}).value;
  return t;
}

/// Replicas of the first node; far_of: the first replica of each node.
std::vector<int> near_of(const std::vector<int>& group, const plan::PlanSpec& spec) {
  return {group.begin(), group.begin() + spec.compression.group};
}
std::vector<int> far_of(const std::vector<int>& group, const plan::PlanSpec& spec) {
  std::vector<int> out;
  for (std::size_t i = 0; i < group.size(); i += static_cast<std::size_t>(spec.compression.group))
    out.push_back(group[i]);
  return out;
}

ReductionTimes by_node(const BucketSize& b, const plan::PlanSpec& spec, const Pricing& pricing,
                       const std::vector<int>& group) {
  const std::int64_t part = b.elements / spec.compression.group;
  const std::vector<int> near = near_of(group, spec), far = far_of(group, spec);
  const auto message = [&](CollectiveKind kind, std::int64_t elements, DType dtype, const std::vector<int>& members) {
    const base::Bytes bytes{static_cast<double>(elements * models::size_of(dtype))};
    return pricing.collective_time(kind, bytes, members, plan::Stream::data).value;
  };
  const auto time = [&](const Op& op) { return pricing.compute_time({&op, 1}).value; };
  Op sum = flat(OpKind::sum_pieces, DType::bf16, b.shard, spec.replicas() / spec.compression.group);
  sum.accumulate = spec.zero_stage >= 2;
  ReductionTimes t;
  t.messages = message(CollectiveKind::reduce_scatter, b.elements, DType::fp32, near) +
               message(CollectiveKind::all_to_all, part, DType::bf16, far);
  t.compute = time(flat(OpKind::convert, DType::bf16, part)) + time(sum);
  if (spec.zero_stage > 0) return t;
  t.messages += message(CollectiveKind::all_gather, part, DType::bf16, far) +
                message(CollectiveKind::all_gather, b.elements, DType::bf16, near);
  t.compute += time(flat(OpKind::convert, DType::bf16, b.elements));
  return t;
}

ReductionTimes in_low_rank(const BucketSize& b, const plan::PlanSpec& spec, const Pricing& pricing,
                           const std::vector<int>& group) {
  const auto message = [&](std::int64_t elements) {
    const base::Bytes bytes{static_cast<double>(elements * models::size_of(DType::fp32))};
    return elements == 0 ? 0
                         : pricing.collective_time(CollectiveKind::all_reduce, bytes, group, plan::Stream::data).value;
  };
  const plan::LowRankSizes sizes = sizes_of(b, spec);
  if (sizes.error == 0) return {message(b.elements), 0};
  std::vector<Op> first, second, last;
  if (sizes.rest > 0) first.push_back(flat(OpKind::fill_zero, DType::fp32, sizes.rest));
  for (const plan::MatrixShape& matrix : *b.matrices) {
    const std::int64_t rank = plan::rank_of(matrix, spec.compression), all = matrix.rows * matrix.columns;
    if (rank == 0) {
      first.push_back(flat(OpKind::copy, DType::fp32, all));
      last.push_back(flat(OpKind::copy, DType::fp32, all));
      continue;
    }
    first.push_back(flat(OpKind::accumulate_into, DType::fp32, all));
    first.push_back(product(matrix.rows, rank, matrix.columns, false, false));
    second.push_back(flat(OpKind::orthogonalise, DType::fp32, matrix.rows, rank));
    second.push_back(product(matrix.columns, rank, matrix.rows, true, false));
    last.push_back(product(matrix.rows, matrix.columns, rank, false, true));
    last.push_back(flat(OpKind::add_scaled, DType::fp32, all));
  }
  ReductionTimes t;
  t.messages = message(sizes.p) + message(sizes.rest) + message(sizes.q);
  for (const std::vector<Op>* ops : {&first, &second, &last}) t.compute += pricing.compute_time(*ops).value;
  return t;
}

}  // namespace

ReductionTimes compressed_reduction(const BucketSize& bucket, const plan::PlanSpec& spec, const Pricing& pricing,
                                    const std::vector<int>& group) {
  if (spec.exchanges_by_node()) return by_node(bucket, spec, pricing, group);
  return spec.low_rank() ? in_low_rank(bucket, spec, pricing, group) : in_halves(bucket, spec, pricing, group);
}

double parameter_gather(const BucketSize& b, const plan::PlanSpec& spec, const Pricing& pricing,
                        const std::vector<int>& group) {
  const std::int64_t size = models::size_of(plan::expand_options(spec).dtype);
  const auto message = [&](std::int64_t elements, const std::vector<int>& members) {
    return pricing
        .collective_time(CollectiveKind::all_gather, base::Bytes{static_cast<double>(elements * size)}, members,
                         plan::Stream::data)
        .value;
  };
  if (!spec.exchanges_by_node()) return message(b.elements, group);
  return message(b.elements / spec.compression.group, far_of(group, spec)) + message(b.elements, near_of(group, spec));
}

double compression_states(const BucketSize& bucket, const plan::PlanSpec& spec) {
  if (!spec.low_rank()) return 0;
  const plan::LowRankSizes sizes = sizes_of(bucket, spec);
  return sizes.error == 0 ? 0 : arena_bytes(sizes.error, DType::fp32) + arena_bytes(sizes.q, DType::fp32);
}

namespace {

/// With reduction by node, the parts of a reduction are one bucket apart: while one bucket's sum waits to be widened,
/// the next is exchanged between nodes, and the one after that is reduced within the node.
double buffers_by_node(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  struct Bytes {
    double near, part, all, summed;
  };
  constexpr std::int64_t kApart = 3;
  std::vector<Bytes> turns;
  for (const BucketSize& b : buckets)
    for (std::int64_t i = 0; i < std::min(b.count, kApart); ++i)
      turns.push_back({arena_bytes(b.elements / spec.compression.group, DType::fp32),
                       arena_bytes(b.elements / spec.compression.group, DType::bf16),
                       spec.zero_stage > 0 ? 0 : arena_bytes(b.elements, DType::bf16),
                       spec.zero_stage > 0 ? 0 : arena_bytes(b.shard, DType::bf16)});
  turns.resize(turns.size() + 2, Bytes{});
  double most = 0;
  for (std::size_t i = 0; i + 2 < turns.size(); ++i) {
    const Bytes &last = turns[i], &next = turns[i + 1], &first = turns[i + 2];
    most = std::max({most, last.all + 2 * next.part + first.near,  // the last one is widened
                     last.all + 2 * next.part + next.near,         // the next one's sum is rounded
                     2 * last.part + last.summed + next.near,      // the nodes' sums are added
                     last.part + last.all + next.near});           // and gathered
  }
  return most;
}

}  // namespace

double gathered_pieces(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  double most = 0;
  if (!spec.exchanges_by_node() || spec.zero_stage == 0) return most;
  for (const BucketSize& b : buckets)
    most = std::max(most, arena_bytes(b.elements / spec.compression.group, plan::expand_options(spec).dtype));
  return most;
}

double compression_buffers(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  if (spec.exchanges_by_node()) return buffers_by_node(buckets, spec);
  double most = 0, before = 0;  // before: what the previous bucket still holds
  for (const BucketSize& b : buckets) {
    double own = 0, kept = 0;
    if (spec.low_rank()) {
      const plan::LowRankSizes sizes = sizes_of(b, spec);
      if (sizes.error > 0) own = kept = arena_bytes(sizes.p, DType::fp32) + arena_bytes(sizes.rest, DType::fp32);
    } else {
      const double half = arena_bytes(b.elements, DType::bf16);
      own = (rounds(spec) ? 2 : 1) * half;
      kept = rounds(spec) && spec.zero_stage == 0 ? half : 0;
    }
    most = std::max(most, own + (b.count > 1 ? std::max(before, kept) : before));
    before = kept;
  }
  return most;
}

void add_encoding(LayerCosts& costs, const models::LayerProgram& program, const std::vector<int>& life_of,
                  const plan::Compression& compression, const Pricing& pricing) {
  const plan::ActivationEncoding encoding = compression.activations;
  if (encoding == plan::ActivationEncoding::none || costs.kind != models::LayerKind::block) return;
  const bool lossless = encoding == plan::ActivationEncoding::lossless;
  const std::int64_t bits = plan::bits_of(encoding);
  std::map<int, const Op*> rectified;
  for (const models::Part& part : program.forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::relu) rectified[op.out.front()] = &op;
  std::vector<bool> statistic(program.tensors.size(), false);
  for (const models::Part& part : program.forward)
    for (const Op& op : part.ops) {
      const bool attends = op.kind == OpKind::attention || op.kind == OpKind::ring_attention;
      const bool normalises = op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm;
      if (!normalises && !(attends && op.flash)) continue;
      for (std::size_t i = 1; i < op.out.size(); ++i)
        if (op.out[i] >= 0) statistic[static_cast<std::size_t>(op.out[i])] = true;
    }
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const models::Tensor& t = program.tensors[i];
    if (life_of[i] < 0 || life_of[i] == costs.y || statistic[i] || !crosses(costs, life_of[i])) continue;
    if (t.role == models::TensorRole::tokens || t.role == models::TensorRole::targets) continue;
    const auto sparse = rectified.find(static_cast<int>(i));
    if (lossless && sparse == rectified.end()) continue;
    Life& life = costs.lives[static_cast<std::size_t>(life_of[i])];
    Op op = flat(OpKind::encode, t.dtype, t.elements());
    op.k = bits;
    if (lossless) {
      op = flat(OpKind::sparse_encode, t.dtype, sparse->second->m, sparse->second->n);
      op.capacity = plan::kept_values(t.elements(), compression.capacity);
    }
    life.encoded = arena_bytes(lossless ? models::sparse_bytes(t.elements(), op.capacity, models::size_of(t.dtype))
                                        : models::encoded_bytes(t.elements(), bits),
                               DType::uint8);
    costs.forward.compute += pricing.compute_time({&op, 1}).value;
    costs.forward.host += pricing.host_time({&op, 1}).value;
    op.kind = lossless ? OpKind::sparse_decode : OpKind::decode;
    const bool again = costs.recomputation == plan::Recompute::full;
    Pass& pass = again ? costs.recompute : costs.backward;
    pass.compute += pricing.compute_time({&op, 1}).value;
    pass.host += pricing.host_time({&op, 1}).value;
  }
}

}  // namespace orrery::cost
