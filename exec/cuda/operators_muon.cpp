// Newton-Schulz of a whole matrix (models/operators/op.h), its products by cuBLASLt; moments and the step are updates.
#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/muon.h"
#include "exec/engine/newton_schulz.h"

namespace orrery::exec::cuda {
namespace {

MatrixPart part_of(const models::Op& op, std::int64_t rank) {
  ENSURE(op.parts.shard > 0 && op.parts.shards > 0 && op.m % op.parts.row_ways == 0 && op.n % op.parts.column_ways == 0,
         "a matrix of {} x {} in {} x {} parts", op.m, op.n, op.parts.row_ways, op.parts.column_ways);
  const bool tall = op.m > op.n;  // worked on transposed
  MatrixPart part{.parts = op.parts, .rows = op.m / op.parts.row_ways, .columns = op.n / op.parts.column_ways};
  if (op.parts.row_ways > 1) part.first_row = rank * part.rows;
  if (op.parts.column_ways > 1) part.first_column = rank * part.columns;
  part.row_stride = tall ? 1 : op.n;
  part.column_stride = tall ? op.m : 1;
  return part;
}

bool meets(const MatrixPart& part, std::int64_t shard) {
  return part.parts.offset < (shard + 1) * part.parts.shard &&
         shard * part.parts.shard < part.parts.offset + part.rows * part.columns;
}

/// C (m,n) += scale A B, of A (m,k) and B (k,n) or, transposed, (n,k); `writes`: C = that.
struct Multiplication {
  std::int64_t m, n, k;
  bool trans_b, writes;
  float scale;
};

}  // namespace

void CudaBackend::run_newton_schulz(const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t piece = op.parts.shard, own = op.parts.shards > 1 ? call.context.shard : 0;
  const MatrixPart own_part = part_of(op, call.context.tensor_rank);
  if (!meets(own_part, own)) return;
  const std::int64_t ranks = call.checked(true, 0, 0).elements / (piece * op.parts.shards);
  ENSURE(ranks >= std::max(op.parts.row_ways, op.parts.column_ways) && own < op.parts.shards,
         "directions of {} tensor ranks, shard {} of {}", ranks, own, op.parts.shards);
  const float* const pieces = call.input(0, ranks * op.parts.shards * piece);
  const std::int64_t m = std::min(op.m, op.n), n = std::max(op.m, op.n);
  float* x = call.output(1, 2 * m * n + 2 * m * m);
  float *next = x + m * n, *gram = next + m * n, *polynomial = gram + m * m;
  const bool divided = op.parts.row_ways > 1 || op.parts.column_ways > 1;
  for (std::int64_t rank = 0; rank < (divided ? ranks : 1); ++rank)
    gather_part(call.stream, part_of(op, rank), pieces, ranks, rank, x);

  const auto multiply = [&](const Multiplication& p, const float* a, const float* b, float* c) {
    Product product;
    product.shape = {p.m, p.n, p.k, false, p.trans_b, !p.writes, false, models::DType::fp32, models::DType::fp32};
    product.a = a, product.b = b, product.c = c;
    product.scale = p.scale;
    static_cast<void>(products_.run(product, call.stream));
  };
  normalise(call.stream, x, m * n, NewtonSchulz::kGuard, call.scratch);
  for (int step = 0; step < models::kNewtonSchulzSteps; ++step) {
    multiply({m, m, n, true, true, 1}, x, x, gram);
    scale_into(call.stream, gram, polynomial, m * m, NewtonSchulz::kCubic);
    multiply({m, m, m, false, false, NewtonSchulz::kQuintic}, gram, gram, polynomial);
    scale_into(call.stream, x, next, m * n, NewtonSchulz::kLinear);
    multiply({m, n, m, false, false, 1}, polynomial, x, next);
    std::swap(x, next);
  }
  scatter_part(call.stream, own_part, x, own, call.output(0, piece));
}

}  // namespace orrery::exec::cuda
