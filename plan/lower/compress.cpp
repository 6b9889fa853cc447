// Reductions in fewer bits, bucket by bucket.
#include "plan/lower/compress.h"

#include "base/ensure.h"
#include "plan/lower/low_rank.h"
#include "plan/lower/lower.h"
#include "plan/lower/lower_finish.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

DType wire_of(const PlanSpec& spec) {
  return spec.compression.gradients == GradientCompression::fp16 ? DType::fp16 : DType::bf16;
}

enum Product { kP, kQ, kGradient };

}  // namespace

void add_compression_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket) {
  if (!spec.low_rank()) return;
  const LowRankSizes sizes = place_low_rank(bucket, spec.compression);
  if (sizes.error == 0) return;
  const auto state = [&](const char* name, std::int64_t elements) {
    return build.buffer(bucket.name + "." + name, Purpose::optimizer_states, DType::fp32, elements, true);
  };
  bucket.error = state("error", sizes.error);
  bucket.low_rank_q = state("low_rank_q", sizes.q);
}

void CompressedReduction::add(int bucket, int gradients, std::int32_t layer) {
  move_on();
  Under one;
  one.bucket = bucket;
  one.gradients = gradients;
  one.layer = layer;
  begin(one);
  under_.push_back(one);
}

void CompressedReduction::flush() {
  while (!under_.empty()) move_on();
}

void CompressedReduction::move_on() {
  std::erase_if(under_, [this](Under& one) { return !move_on(one); });
}

// The next part; false behind the last.
bool CompressedReduction::move_on(Under& one) {
  const int exchanged = spec_.exchanges_by_node() ? 1 : 0;
  ++one.part;
  if (one.part == exchanged)
    exchange(one, one.near, groups_.far);
  else if (one.part == exchanged + 1)
    meet(one);
  else
    end(one);
  return one.part < exchanged + 2;
}

void CompressedReduction::compute(const Under& one, const char* part, std::vector<Op> ops) {
  if (!ops.empty()) build_.compute(Phase::gradient_reduce, one.layer, part, std::move(ops)).bucket = one.bucket;
}

void CompressedReduction::send(const Under& one, CollectiveKind kind, int group, const View& source,
                               const View& target) {
  build_.collective(Phase::gradient_reduce, Stream::data, kind, group, source, target, one.layer, one.bucket);
}

// Gradients of fp16 training are in 16 bits as they are.
bool CompressedReduction::rounds() const {
  return gradient_dtype(spec_.precision) == DType::fp32;
}

void CompressedReduction::begin(Under& one) {
  const Bucket bucket = build_.bucket(one.bucket);
  sum_partial(build_, groups_, bucket, one.gradients, one.layer, one.bucket);
  spec_.low_rank() ? begin_low_rank(one) : begin_halves(one);
}

void CompressedReduction::begin_halves(Under& one) {
  if (!spec_.exchanges_by_node()) return exchange(one, one.gradients, groups_.data);
  const Bucket bucket = build_.bucket(one.bucket);
  one.near = build_.buffer(bucket.name + ".near", Purpose::communication, gradient_dtype(spec_.precision),
                           bucket.elements / spec_.compression.group);
  send(one, CollectiveKind::reduce_scatter, groups_.near, build_.whole(one.gradients), build_.whole(one.near));
}

// Buffer `values`, rounded, between the members of `group`.
void CompressedReduction::exchange(Under& one, int values, int group) {
  const Bucket bucket = build_.bucket(one.bucket);
  const std::int64_t elements = build_.whole(values).elements;
  const auto half = [&](const char* name) {
    return build_.buffer(bucket.name + "." + name, Purpose::communication, wire_of(spec_), elements);
  };
  one.sent = values;
  if (rounds()) {
    one.sent = half("sent");
    compute(one, "compress",
            {build_.flat(OpKind::convert, wire_of(spec_), elements, {build_.view(build_.whole(values))},
                         {build_.view(build_.whole(one.sent))})});
  }
  one.pieces = half("pieces");
  send(one, CollectiveKind::all_to_all, group, build_.whole(one.sent), build_.whole(one.pieces));
}

std::int64_t CompressedReduction::rank(const ParameterRange& range) const {
  return rank_of(matrix_of(range.tensor), spec_.compression);
}

// M (rows, columns) is the error's, P (rows, rank), Q (columns, rank).
Op CompressedReduction::product(const Under& one, const ParameterRange& range, int which) const {
  const Bucket bucket = build_.bucket(one.bucket);
  const MatrixShape matrix = matrix_of(range.tensor);
  const std::int64_t r = rank(range);
  const int m = build_.view({bucket.error, range.error, range.elements, false});
  const int p = build_.view({one.p, range.low_rank_p, matrix.rows * r, false});
  const int q = build_.view({bucket.low_rank_q, range.low_rank_q, matrix.columns * r, false});
  Op op;
  op.kind = OpKind::matmul;
  if (which == kP) {
    op.m = matrix.rows, op.n = r, op.k = matrix.columns;
    op.in = {m, q}, op.out = {p};
  } else if (which == kQ) {
    op.m = matrix.columns, op.n = r, op.k = matrix.rows;
    op.trans_a = true;
    op.in = {m, p}, op.out = {q};
  } else {
    op.m = matrix.rows, op.n = matrix.columns, op.k = r;
    op.trans_b = true;
    op.in = {p, q}, op.out = {build_.view({one.gradients, range.offset, range.elements, false})};
  }
  return op;
}

void CompressedReduction::begin_low_rank(Under& one) {
  Bucket bucket = build_.bucket(one.bucket);
  const LowRankSizes sizes = place_low_rank(bucket, spec_.compression);
  const View all = build_.whole(one.gradients);
  if (sizes.error == 0) {  // nothing is worth it
    send(one, CollectiveKind::all_reduce, groups_.data, all, all);
    return;
  }
  one.p = build_.buffer(bucket.name + ".low_rank_p", Purpose::communication, DType::fp32, sizes.p);
  if (sizes.rest > 0)
    one.rest = build_.buffer(bucket.name + ".uncompressed", Purpose::communication, DType::fp32, sizes.rest);
  std::vector<Op> ops;
  if (one.rest >= 0) ops.push_back(build_.zero_of(one.rest));  // what lies between parameters is sent too
  LowRankSizes at;
  for (const ParameterRange& range : bucket.ranges) {
    const std::int64_t rest = place_matrix(at, matrix_of(range.tensor), spec_.compression).rest;
    const int gradient = build_.view({one.gradients, range.offset, range.elements, false});
    if (range.error < 0) {
      ops.push_back(build_.flat(OpKind::copy, DType::fp32, range.elements, {gradient},
                                {build_.view({one.rest, rest, range.elements, false})}));
      continue;
    }
    ops.push_back(build_.flat(OpKind::accumulate_into, DType::fp32, range.elements, {gradient},
                              {build_.view({bucket.error, range.error, range.elements, false})}));
    ops.push_back(product(one, range, kP));
  }
  compute(one, "compress", std::move(ops));
  send(one, CollectiveKind::all_reduce, groups_.data, build_.whole(one.p), build_.whole(one.p));
  if (one.rest >= 0)
    send(one, CollectiveKind::all_reduce, groups_.data, build_.whole(one.rest), build_.whole(one.rest));
}

// ZeRO: where a rank's own part of the sum stays.
View CompressedReduction::kept_shard(const Under& one) const {
  const Bucket& bucket = build_.bucket(one.bucket);
  return zero_ == 1 ? View{one.gradients, 0, bucket.shard_elements(), true} : build_.whole(bucket.gradient_shard);
}

void CompressedReduction::sum_pieces(const Under& one, std::int64_t pieces, const View& target) {
  Op sum = build_.flat(OpKind::sum_pieces, wire_of(spec_), target.elements, {build_.view(build_.whole(one.pieces))},
                       {build_.view(target)});
  sum.n = pieces;
  sum.accumulate = zero_ >= 2;
  compute(one, "sum", {std::move(sum)});
}

void CompressedReduction::sum_of_nodes(Under& one) {
  const Bucket bucket = build_.bucket(one.bucket);
  const auto half = [&](const char* name, std::int64_t elements) {
    return build_.buffer(bucket.name + "." + name, Purpose::communication, wire_of(spec_), elements);
  };
  if (zero_ == 0) one.summed = half("summed", bucket.shard_elements());
  sum_pieces(one, bucket.shards / spec_.compression.group, zero_ == 0 ? build_.whole(one.summed) : kept_shard(one));
  if (zero_ > 0) return;
  send(one, CollectiveKind::all_gather, groups_.far, build_.whole(one.summed), build_.whole(one.sent));
  one.all = half("all", bucket.elements);
  send(one, CollectiveKind::all_gather, groups_.near, build_.whole(one.sent), build_.whole(one.all));
}

void CompressedReduction::meet(Under& one) {
  if (spec_.exchanges_by_node()) return sum_of_nodes(one);
  const Bucket bucket = build_.bucket(one.bucket);
  if (spec_.low_rank()) {
    if (one.p < 0) return;
    std::vector<Op> ops;
    for (const ParameterRange& range : bucket.ranges) {
      if (range.error < 0) continue;
      Op op = product(one, range, kQ);
      Op orthogonalise = build_.flat(OpKind::orthogonalise, DType::fp32, matrix_of(range.tensor).rows, {}, {op.in[1]});
      orthogonalise.n = rank(range);
      ops.push_back(std::move(orthogonalise));
      ops.push_back(std::move(op));
    }
    compute(one, "factor", std::move(ops));
    send(one, CollectiveKind::all_reduce, groups_.data, build_.whole(bucket.low_rank_q),
         build_.whole(bucket.low_rank_q));
    return;
  }
  const View own_sent{one.sent, 0, bucket.shard_elements(), true};
  sum_pieces(one, bucket.shards, zero_ == 0 ? own_sent : kept_shard(one));
  if (zero_ == 0) send(one, CollectiveKind::all_gather, groups_.data, own_sent, build_.whole(one.sent));
}

void CompressedReduction::end(Under& one) {
  const Bucket bucket = build_.bucket(one.bucket);
  if (!spec_.low_rank()) {
    const int from = spec_.exchanges_by_node() ? one.all : one.sent;
    if (zero_ == 0 && from != one.gradients)
      compute(one, "decompress",
              {build_.flat(OpKind::convert, wire_of(spec_), bucket.elements, {build_.view(build_.whole(from))},
                           {build_.view(build_.whole(one.gradients))})});
    return;
  }
  if (one.p < 0) return;
  std::vector<Op> ops;
  LowRankSizes at;
  for (const ParameterRange& range : bucket.ranges) {
    const std::int64_t rest = place_matrix(at, matrix_of(range.tensor), spec_.compression).rest;
    const int gradient = build_.view({one.gradients, range.offset, range.elements, false});
    if (range.error < 0) {
      ops.push_back(build_.flat(OpKind::copy, DType::fp32, range.elements,
                                {build_.view({one.rest, rest, range.elements, false})}, {gradient}));
      continue;
    }
    ops.push_back(product(one, range, kGradient));
    Op keep = build_.flat(OpKind::add_scaled, DType::fp32, range.elements, {gradient},
                          {build_.view({bucket.error, range.error, range.elements, false})});
    keep.scale = -1.0 / bucket.shards;
    ops.push_back(std::move(keep));
  }
  compute(one, "decompress", std::move(ops));
}

}  // namespace orrery::plan
