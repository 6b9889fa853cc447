// Reductions, technique by technique.
#include "plan/outline/reduction.h"

#include <utility>

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

constexpr Phase kReduce = Phase::gradient_reduce;

DType wire_of(const PlanSpec& spec) {
  return spec.compression.gradients == GradientCompression::fp16 ? DType::fp16 : DType::bf16;
}

// Sequence parallelism: sums the gradients of parameters that are used row by row, because each tensor rank saw only
// some rows. On the data stream, before the reduction over replicas, which reads the sums.
void sum_partial(Sketch& s) {
  if (s.bucket().partial == 0) return;
  const int partial = s.run(s.slot(Memory::gradients), 0, s.bucket().partial);
  s.message(kReduce, CollectiveKind::all_reduce, Over::tensor, partial, partial);
}

// Adds up the sums of the sub-groups (the second hop of MiCS, Zhang et al. 2022, section 3.4).
void sum_copies(Sketch& s, int shard) {
  s.message(kReduce, CollectiveKind::all_reduce, Over::copies, shard, shard);
}

Outline plain(Sketch s, Reduces when) {
  const BucketShape& b = s.bucket();
  const int zero = zero_of(s.spec());
  const DType dtype = gradient_dtype(s.spec().numerics.precision);
  if (zero >= 2 && when != Reduces::in_every_pass) {
    sum_copies(s, s.whole(Memory::gradient_shard));
    return s.take();
  }
  sum_partial(s);
  const int all = s.whole(Memory::gradients);
  if (s.spec().states.has_server()) {
    s.next_part();
    s.message(kReduce, CollectiveKind::all_to_all, Over::data, all, s.whole(Memory::received));
    return s.take();
  }
  if (zero == 0) {
    s.message(kReduce, CollectiveKind::all_reduce, Over::data, all, all);
    return s.take();
  }
  const bool alone = ranks_of(Over::data, b.experts, s.spec()) < 2;
  if (when == Reduces::in_the_last_pass) {
    const int own = s.own(Memory::gradients);
    if (!alone) s.message(kReduce, CollectiveKind::reduce_scatter, Over::data, all, own);
    sum_copies(s, own);
    return s.take();
  }
  if (alone && zero == 1) {
    sum_copies(s, all);
    return s.take();
  }
  const int reduced = alone ? all : s.whole(s.temporary("reduced", dtype, b.shard));
  s.message(kReduce, CollectiveKind::reduce_scatter, Over::data, all, reduced);
  if (zero >= 2) {
    s.next_part();  // of several buckets in one step
    s.compute(kReduce, "accumulate",
              {Sketch::flat(OpKind::accumulate_into, dtype, b.shard, {reduced}, {s.whole(Memory::gradient_shard)})});
    return s.take();
  }
  sum_copies(s, reduced);
  s.compute(kReduce, "keep_shard", {Sketch::flat(OpKind::copy, dtype, b.shard, {reduced}, {s.optimized_gradient()})});
  return s.take();
}

// In 16 bits.
class Halves {
 public:
  explicit Halves(Sketch& s) : s_(s), holders_(s.spec().holders(s.bucket().experts)), by_node_(holders_.near > 1) {}

  void note() {
    const BucketShape& b = s_.bucket();
    int summed_here = s_.whole(Memory::gradients);
    if (by_node_) {
      const std::int64_t part = b.elements / holders_.near;
      const int near = s_.whole(s_.temporary("near", gradient_dtype(s_.spec().numerics.precision), part));
      s_.message(kReduce, CollectiveKind::reduce_scatter, Over::near, summed_here, near);
      summed_here = near;
      s_.next_part();
    }
    exchange(summed_here);
    s_.next_part();
    by_node_ ? sum_of_nodes() : sum();
    s_.next_part();
    const int gradients = s_.whole(Memory::gradients);
    if (zero_of(s_.spec()) == 0 && gathered_ >= 0 && (by_node_ || rounds()))
      s_.compute(kReduce, "decompress", {convert(b.elements, gathered_, gradients)});
  }

 private:
  // Gradients of fp16 training are in 16 bits as they are.
  [[nodiscard]] bool rounds() const { return gradient_dtype(s_.spec().numerics.precision) == DType::fp32; }
  [[nodiscard]] int half(const char* name, std::int64_t elements) {
    return s_.whole(s_.temporary(name, wire_of(s_.spec()), elements));
  }
  [[nodiscard]] Op convert(std::int64_t elements, int from, int to) const {
    return Sketch::flat(OpKind::convert, wire_of(s_.spec()), elements, {from}, {to});
  }
  void exchange(int values) {
    const BucketShape& b = s_.bucket();
    const std::int64_t elements = b.elements / holders_.near;
    sent_ = values;
    if (rounds()) {
      sent_ = half("sent", elements);
      s_.compute(kReduce, "compress", {convert(elements, values, sent_)});
    }
    pieces_ = half("pieces", elements);
    s_.message(kReduce, CollectiveKind::all_to_all, by_node_ ? Over::far : Over::data, sent_, pieces_);
  }
  void sum_pieces(std::int64_t pieces, int target) {
    Op sum = Sketch::flat(OpKind::sum_pieces, wire_of(s_.spec()), s_.bucket().shard, {pieces_}, {target});
    sum.n = pieces;
    sum.accumulate = zero_of(s_.spec()) >= 2;
    s_.compute(kReduce, "sum", {std::move(sum)});
  }
  void sum() {
    const int replicas = holders_.count;
    if (zero_of(s_.spec()) > 0) return sum_pieces(replicas, s_.optimized_gradient());
    const int own = s_.own_of(sent_);
    sum_pieces(replicas, own);
    gathered_ = sent_;
    s_.message(kReduce, CollectiveKind::all_gather, Over::data, own, sent_);
  }
  void sum_of_nodes() {
    const BucketShape& b = s_.bucket();
    const std::int64_t nodes = holders_.count / holders_.near;
    if (zero_of(s_.spec()) > 0) return sum_pieces(nodes, s_.optimized_gradient());
    const int summed = half("summed", b.shard);
    sum_pieces(nodes, summed);
    s_.message(kReduce, CollectiveKind::all_gather, Over::far, summed, sent_);
    gathered_ = half("all", b.elements);
    s_.message(kReduce, CollectiveKind::all_gather, Over::near, sent_, gathered_);
  }

  Sketch& s_;
  Holders holders_;
  bool by_node_;
  int sent_ = -1, pieces_ = -1, gathered_ = -1;  ///< operands
};

// PowerSGD. M (rows, columns) is the error's, P (rows, rank), Q (columns, rank).
class LowRank {
 public:
  explicit LowRank(Sketch& s)
      : s_(s), how_(s.spec().compression), sizes_(low_rank_sizes(s.bucket().matrices, s.spec().compression)) {}

  void note() {
    if (sizes_.error == 0) {  // nothing is worth it
      const int all = s_.whole(Memory::gradients);
      s_.message(kReduce, CollectiveKind::all_reduce, Over::data, all, all);
      return;
    }
    p_ = s_.temporary("low_rank_p", DType::fp32, sizes_.p);
    if (sizes_.rest > 0) rest_ = s_.temporary("uncompressed", DType::fp32, sizes_.rest);
    std::vector<Op> first, second, last;
    if (rest_ >= 0) first.push_back(s_.zero(s_.whole(rest_)));  // what lies between parameters is sent too
    LowRankSizes at;
    for (std::size_t i = 0; i < s_.bucket().matrices->size(); ++i) {
      const MatrixShape& matrix = (*s_.bucket().matrices)[i];
      const LowRankSizes place = place_matrix(at, matrix, how_);
      const int gradient = s_.parameter(Memory::gradients, static_cast<int>(i));
      place.error < 0 ? whole(matrix, place, gradient, first, last)
                      : factored(matrix, place, gradient, first, second, last);
    }
    s_.compute(kReduce, "compress", std::move(first));
    all_reduce(s_.whole(p_));
    if (rest_ >= 0) all_reduce(s_.whole(rest_));
    s_.next_part();
    s_.compute(kReduce, "factor", std::move(second));
    all_reduce(s_.whole(Memory::low_rank_q));
    s_.next_part();
    s_.compute(kReduce, "decompress", std::move(last));
  }

 private:
  void all_reduce(int operand) { s_.message(kReduce, CollectiveKind::all_reduce, Over::data, operand, operand); }
  void whole(const MatrixShape& matrix, const LowRankSizes& place, int gradient, std::vector<Op>& first,
             std::vector<Op>& last) {
    const std::int64_t elements = matrix.rows * matrix.columns;
    const int rest = s_.run(rest_, place.rest, elements);
    first.push_back(Sketch::flat(OpKind::copy, DType::fp32, elements, {gradient}, {rest}));
    last.push_back(Sketch::flat(OpKind::copy, DType::fp32, elements, {rest}, {gradient}));
  }
  void factored(const MatrixShape& matrix, const LowRankSizes& place, int gradient, std::vector<Op>& first,
                std::vector<Op>& second, std::vector<Op>& last) {
    const std::int64_t rows = matrix.rows, columns = matrix.columns, rank = rank_of(matrix, how_);
    const int m = s_.run(s_.slot(Memory::error), place.error, rows * columns);
    const int p = s_.run(p_, place.p, rows * rank);
    const int q = s_.run(s_.slot(Memory::low_rank_q), place.q, columns * rank);
    first.push_back(Sketch::flat(OpKind::accumulate_into, DType::fp32, rows * columns, {gradient}, {m}));
    first.push_back(product(rows, rank, columns, m, q, p));
    second.push_back(Sketch::flat(OpKind::orthogonalise, DType::fp32, rows, {}, {p}));
    second.back().n = rank;
    second.push_back(product(columns, rank, rows, m, p, q));
    second.back().trans_a = true;
    last.push_back(product(rows, columns, rank, p, q, gradient));
    last.back().trans_b = true;
    last.push_back(Sketch::flat(OpKind::add_scaled, DType::fp32, rows * columns, {gradient}, {m}));
    last.back().scale = -1.0 / s_.spec().holders(s_.bucket().experts).count;
  }
  [[nodiscard]] static Op product(std::int64_t m, std::int64_t n, std::int64_t k, int a, int b, int c) {
    Op op = Sketch::flat(OpKind::matmul, DType::fp32, m, {a, b}, {c});
    op.n = n;
    op.k = k;
    return op;
  }

  Sketch& s_;
  const Compression& how_;
  LowRankSizes sizes_;
  int p_ = -1, rest_ = -1;  ///< slots
};

}  // namespace

Outline reduction_of(const BucketShape& bucket, const PlanSpec& spec, Reduces when, bool low_rank) {
  Sketch s(bucket, spec);
  const bool alone = ranks_of(Over::data, bucket.experts, spec) < 2;  // experts that no other rank has
  const bool whole = !spec.compresses() || alone || (spec.low_rank() && !low_rank);
  if (whole) return plain(std::move(s), when);
  if ((zero_of(spec) >= 2) != (when == Reduces::in_every_pass)) return s.take();
  sum_partial(s);
  spec.low_rank() ? LowRank(s).note() : Halves(s).note();
  return s.take();
}

bool reductions_need_memory(const PlanSpec& spec) {
  return zero_of(spec) < 2 && (spec.compresses() || (zero_of(spec) == 1 && !spec.reduces_early()));
}

Outline zeroed_at_start(const BucketShape& bucket, const PlanSpec& spec) {
  Sketch s(bucket, spec);
  const int sums = s.whole(zero_of(spec) >= 2 ? Memory::gradient_shard : Memory::gradients);
  s.compute(Phase::optimizer, "zero_gradients", {s.zero(sums)});
  return s.take();
}

Outline zeroed_in_pass(const BucketShape& bucket, const PlanSpec& spec) {
  Sketch s(bucket, spec);
  s.compute(Phase::backward, "", {s.zero(s.whole(Memory::gradients))});
  return s.take();
}

Outline gathered_in_pass(const BucketShape& bucket, const PlanSpec& spec) {
  Sketch s(bucket, spec);
  if (zero_of(spec) == 3)
    s.message(Phase::parameter_gather, CollectiveKind::all_gather, Over::data, s.whole(Memory::parameter_shard),
              s.whole(Memory::parameters));
  return s.take();
}

Outline squared(const BucketShape& bucket, const PlanSpec& spec) {
  Sketch s(bucket, spec);
  const int gradient = spec.states.has_server() ? s.whole(Memory::gradients) : s.optimized_gradient();
  Op op = Sketch::flat(OpKind::norm_squared, gradient_dtype(spec.numerics.precision), s.elements(gradient), {gradient},
                       {s.whole(Memory::norm_squared)});
  op.accumulate = true;
  s.compute(Phase::optimizer, "norm", {std::move(op)});
  return s.take();
}

}  // namespace orrery::plan
