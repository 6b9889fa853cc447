// Replicas in turn whose gradients are compressed: what is taken of each, and how it is summed.
#include "plan/lower/serial_compression.h"

#include <fmt/core.h>

#include <span>
#include <utility>

#include "base/index.h"
#include "plan/lower/lower_finish.h"
#include "plan/lower/serial_turns.h"
#include "plan/outline/low_rank.h"

namespace orrery::plan {

using base::at;
using models::DType;
using models::Op;
using models::OpKind;

namespace {

std::string own_name(const RankClass& made, const OwnGradients& one, const char* what) {
  return fmt::format("{}{}.{}", made.buckets[one.bucket].name, one.of_head ? ".of_head" : "", what);
}

// Both kinds of compression: add() makes the buffers of one set of gradients, which are asked for in order; take()
// takes those of a sender; sum() adds up what was taken of all senders.

// In 16 bits.
class HalvesInTurn {
 public:
  HalvesInTurn(SerialStep& to, const PlanSpec& spec, const ReplicaTurns& turns)
      : to_(to),
        spec_(spec),
        turns_(turns),
        wire_(spec.compression.gradients == GradientCompression::fp16 ? DType::fp16 : DType::bf16),
        gradient_(gradient_dtype(spec.numerics.precision)) {
    for (const OwnGradients& one : turns_.own()) add(one);
  }

  void take(const OwnGradients& one, std::size_t i, int w, std::vector<Op>& ops) {
    const std::int64_t n = to_.made.buckets[one.bucket].elements;
    ops.push_back(to_.build.flat(wires_[i].sent ? OpKind::convert : OpKind::copy, wire_, n, {to_.whole(one.gradients)},
                                 {to_.part(wires_[i].pieces, w * n, n)}));
  }
  // Sums in fp32. Without ZeRO, the result that all ranks get is rounded once more.
  void sum(const OwnGradients& one, std::size_t i, std::vector<Op>& ops) {
    const Bucket& bucket = to_.made.buckets[one.bucket];
    const bool again = spec_.states.zero_stage == 0;
    const BufferId target = !again ? bucket.gradients : wires_[i].sent ? wires_[i].sent : one.gradients;
    Op sum =
        to_.build.flat(OpKind::sum_pieces, wire_, bucket.elements, {to_.whole(wires_[i].pieces)}, {to_.whole(target)});
    sum.n = turns_.senders(one);
    sum.accumulate = !again;
    ops.push_back(std::move(sum));
    if (!again) return;
    if (wires_[i].sent)
      ops.push_back(to_.build.flat(OpKind::convert, wire_, bucket.elements, {to_.whole(wires_[i].sent)},
                                   {to_.whole(one.gradients)}));
    ops.push_back(to_.build.flat(OpKind::accumulate_into, gradient_, bucket.elements, {to_.whole(one.gradients)},
                                 {to_.whole(bucket.gradients)}));
  }

 private:
  struct Wire {
    BufferId pieces, sent;  ///< rounded ones of all senders, and their sum
  };
  void add(const OwnGradients& one) {
    const std::int64_t n = to_.made.buckets[one.bucket].elements;
    Wire wire;
    wire.pieces =
        to_.persistent(own_name(to_.made, one, "pieces"), Purpose::communication, wire_, n * turns_.senders(one));
    if (gradient_ == DType::fp32)
      wire.sent = to_.persistent(own_name(to_.made, one, "sent"), Purpose::communication, wire_, n);
    wires_.push_back(wire);
  }

  SerialStep& to_;
  const PlanSpec& spec_;
  const ReplicaTurns& turns_;
  DType wire_, gradient_;
  std::vector<Wire> wires_;  ///< by place in ReplicaTurns::own
};

// PowerSGD, with the names of plan/lower/compress.h.
class LowRankInTurn {
 public:
  LowRankInTurn(SerialStep& to, const PlanSpec& spec, const ReplicaTurns& turns) : to_(to), spec_(spec), turns_(turns) {
    for (const OwnGradients& one : turns_.own()) add(one);
  }

  // Both gradients of a table begin with the same factor.
  std::int32_t begin_factors() {
    std::vector<Op> ops;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      const OwnGradients& one = turns_.own()[i];
      if (const BufferId q = factors_[i].q; one.of_head && q)
        ops.push_back(to_.build.flat(OpKind::copy, DType::fp32, to_.made.buffers[q].elements,
                                     {to_.whole(to_.made.buckets[one.bucket].low_rank_q)}, {to_.whole(q)}));
    }
    return to_.block_of("begin_factors", Phase::optimizer, std::move(ops));
  }
  // What travels whole goes into the sum at once.
  void take(const OwnGradients& one, std::size_t i, int w, std::vector<Op>& ops) {
    const Bucket bucket = to_.made.buckets[one.bucket];
    const Factors& of = factors_[i];
    for (const ParameterRange& range : bucket.ranges) {
      const int own = to_.part(one.gradients, range.offset, range.elements);
      const int into = range.error < 0 ? to_.part(bucket.gradients, range.offset, range.elements)
                                       : to_.part(of.errors[at(w)], range.error, range.elements);
      ops.push_back(to_.build.flat(OpKind::accumulate_into, DType::fp32, range.elements, {own}, {into}));
      if (range.error >= 0) ops.push_back(product_p(of, range, w));
    }
  }
  void sum(const OwnGradients& one, std::size_t i, std::vector<Op>& ops) {
    const Bucket bucket = to_.made.buckets[one.bucket];
    const Factors& of = factors_[i];
    for (const ParameterRange& range : bucket.ranges) {
      if (range.error < 0) continue;
      const auto [shape, r] = matrix(range);
      Op orthogonal = to_.build.flat(OpKind::orthogonalise, DType::fp32, shape.rows, {},
                                     {to_.part(of.p, range.low_rank_p, shape.rows * r)});
      orthogonal.n = r;
      ops.push_back(std::move(orthogonal));
      for (int w = 0; w < turns_.senders(one); ++w) ops.push_back(product_q(of, range, w));
      ops.push_back(product_gradient(one, of, range));
      const int own = to_.part(one.gradients, range.offset, range.elements);
      ops.push_back(to_.build.flat(OpKind::accumulate_into, DType::fp32, range.elements, {own},
                                   {to_.part(bucket.gradients, range.offset, range.elements)}));
      for (int w = 0; w < turns_.senders(one); ++w) {
        ops.push_back(to_.build.flat(OpKind::add_scaled, DType::fp32, range.elements, {own},
                                     {to_.part(of.errors[at(w)], range.error, range.elements)}));
        ops.back().scale = -1.0 / turns_.senders(one);
      }
    }
  }

 private:
  struct Factors {
    BufferId p, q;
    std::vector<BufferId> errors = {};  ///< by sender
  };
  void add(const OwnGradients& one) {
    Bucket& bucket = to_.made.buckets[one.bucket];
    const LowRankSizes sizes = place_low_rank(bucket, spec_.compression);
    Factors factors;
    if (sizes.error == 0) return factors_.push_back(std::move(factors));
    factors.p = to_.persistent(own_name(to_.made, one, "low_rank_p"), Purpose::communication, DType::fp32, sizes.p);
    factors.q = to_.persistent(own_name(to_.made, one, "low_rank_q"), Purpose::optimizer_states, DType::fp32, sizes.q);
    if (!one.of_head) bucket.low_rank_q = factors.q;
    for (int w = 0; w < turns_.senders(one); ++w)
      factors.errors.push_back(to_.persistent(own_name(to_.made, one, "error") + fmt::format(".{}", w),
                                              Purpose::optimizer_states, DType::fp32, sizes.error));
    if (!one.of_head) bucket.error = factors.errors.front();
    factors_.push_back(std::move(factors));
  }
  struct Matrix {
    MatrixShape shape;
    std::int64_t rank = 0;
  };
  [[nodiscard]] Matrix matrix(const ParameterRange& range) const {
    const MatrixShape shape = matrix_of(range.tensor);
    return {shape, rank_of(shape, spec_.compression)};
  }
  // (rows, rank) = M Q; (columns, rank) = M^T P; (rows, columns) = P Q^T
  Op product_p(const Factors& of, const ParameterRange& range, int w) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.rows, op.n = r, op.k = shape.columns;
    op.accumulate = w > 0;
    op.in = {to_.part(of.errors[at(w)], range.error, range.elements),
             to_.part(of.q, range.low_rank_q, shape.columns * r)};
    op.out = {to_.part(of.p, range.low_rank_p, shape.rows * r)};
    return op;
  }
  Op product_q(const Factors& of, const ParameterRange& range, int w) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.columns, op.n = r, op.k = shape.rows;
    op.trans_a = true;
    op.accumulate = w > 0;
    op.in = {to_.part(of.errors[at(w)], range.error, range.elements), to_.part(of.p, range.low_rank_p, shape.rows * r)};
    op.out = {to_.part(of.q, range.low_rank_q, shape.columns * r)};
    return op;
  }
  Op product_gradient(const OwnGradients& one, const Factors& of, const ParameterRange& range) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.rows, op.n = shape.columns, op.k = r;
    op.trans_b = true;
    op.in = {to_.part(of.p, range.low_rank_p, shape.rows * r), to_.part(of.q, range.low_rank_q, shape.columns * r)};
    op.out = {to_.part(one.gradients, range.offset, range.elements)};
    return op;
  }

  SerialStep& to_;
  const PlanSpec& spec_;
  const ReplicaTurns& turns_;
  std::vector<Factors> factors_;  ///< by place in ReplicaTurns::own
};

// Until PowerSGD begins, everything goes into the sum at once.
void take_whole(SerialStep& to, const PlanSpec& spec, const ReplicaTurns& turns, const ReplicaTurns::Turn& turn) {
  std::vector<Op> ops;
  turns.each(turn, [&](const OwnGradients& one, std::size_t) {
    ops.push_back(to.build.flat(OpKind::accumulate_into, DType::fp32, to.made.buckets[one.bucket].elements,
                                {to.whole(one.gradients)}, {to.whole(to.made.buckets[one.bucket].gradients)}));
  });
  Step plain = to.step_of(Phase::gradient_reduce, "take_whole", std::move(ops));
  std::vector<Step>& steps = to.made.blocks[at(turn.take.back())].steps;
  run_from(spec.plain_steps(), steps);
  steps.push_back(std::move(plain));
  run_before(spec.plain_steps(), std::span(steps).last(1));
}

template <class Compression>
std::int32_t take_and_sum(SerialStep& to, const PlanSpec& spec, ReplicaTurns& turns, Compression& compression) {
  for (ReplicaTurns::Turn& turn : turns.turns())
    for (int w = 0; w < spec.mesh.data / turn.together; ++w) {
      std::vector<Op> ops;
      turns.each(turn, [&](const OwnGradients& one, std::size_t i) { compression.take(one, i, w, ops); });
      turn.take.push_back(to.block_of(fmt::format("take{}.{}", turn.of, w), Phase::gradient_reduce, std::move(ops)));
      if (spec.plain_steps() > 0) take_whole(to, spec, turns, turn);
    }
  std::vector<Op> ops;
  for (std::size_t i = 0; i < turns.own().size(); ++i) compression.sum(turns.own()[i], i, ops);
  const std::int32_t sum = to.block_of("sum", Phase::gradient_reduce, std::move(ops));
  run_from(spec.plain_steps(), to.made.blocks[at(sum)].steps);
  to.made.program.clear();
  return sum;
}

}  // namespace

void compress_in_turns(SerialStep& to, const Plan& split, BucketId shared) {
  const PlanSpec& spec = split.spec();
  const int zero = spec.states.zero_stage;
  const bool ends_apart = zero >= 2 || (spec.mesh.pipeline > 1 && spec.head_stage() != kFirstStage);
  const bool apart = shared.exists() && ends_apart;
  ReplicaTurns turns(to, split, shared, apart);
  std::int32_t sum = -1;
  if (spec.low_rank()) {
    LowRankInTurn compression(to, spec, turns);
    sum = take_and_sum(to, spec, turns, compression);
    if (apart) to.enter(compression.begin_factors(), true);
  } else {
    HalvesInTurn compression(to, spec, turns);
    sum = take_and_sum(to, spec, turns, compression);
  }
  to.enter("begin");
  const std::int64_t m = split.micro_batches(), at_once = zero >= 2 ? 1 : m;
  for (std::int64_t i = 0; i < m; i += at_once) {
    turns.run(i, i + at_once);
    to.enter(sum);
  }
  to.enter("finish");
}

}  // namespace orrery::plan
