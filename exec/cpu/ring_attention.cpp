// Ring attention of context parallelism, one block of keys and values at a time. Chunks of a rank are as
// plan/spec/plan.h says. A causal mask then keeps the lower triangle of the own block; the first chunk of an earlier
// rank's block, for all queries; and the whole block of a later rank, for the second chunk of queries: the same work
// everywhere. Blocks are merged by their log-sum-exp (Liu, Zaharia, Abbeel, "Ring Attention with Blockwise
// Transformers", arXiv:2310.01889; Dao et al., arXiv:2205.14135, section 3.1). Backward uses the merged log-sum-exp, so
// that each block's gradient can be computed by itself.
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/masks.h"
#include "exec/cpu/scores.h"
#include "exec/cpu/sinks.h"

namespace orrery::exec {
namespace {

struct RingBlock {
  std::int64_t batch, sequence, heads, kv_heads, dim, value_dim, per_group;
  std::int64_t width, kv_width, out_width;  ///< of a row of qkv, of kv and of y
  // What the mask keeps: these queries and keys; in the own block, the triangle.
  std::int64_t first_query = 0, keys = 0;
  bool triangle = false;

  RingBlock(const models::Op& op, int part)
      : batch(op.batch),
        sequence(op.sequence),
        heads(op.heads),
        kv_heads(op.kv_heads),
        dim(op.head_dim),
        value_dim(models::value_columns(op)),
        per_group(op.heads / op.kv_heads),
        width(models::packed_columns(op)),
        kv_width(models::key_value_columns(op)),
        out_width(op.heads * value_dim),
        keys(op.sequence) {
    ENSURE(op.context > 1 && op.ring_step < op.context && op.sequence % 2 == 0, "ring step {} of {} over {} tokens",
           op.ring_step, op.context, op.sequence);
    ENSURE(op.window == 0 && op.alibi_heads == 0, "a ring without windows and slopes: {}, {}", op.window,
           op.alibi_heads);
    if (!op.causal) return;
    triangle = op.ring_step == 0;
    const bool later = op.ring_step > part;  // the owner, part - ring_step, wraps around to a rank after this one
    if (later) first_query = sequence / 2;
    if (!later && !triangle) keys = sequence / 2;
  }
  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
  [[nodiscard]] std::int64_t queries() const { return sequence - first_query; }
  [[nodiscard]] std::int64_t key(std::int64_t group) const { return group * dim; }
  [[nodiscard]] std::int64_t value(std::int64_t group) const { return kv_heads * dim + group * value_dim; }
  [[nodiscard]] std::int64_t seen(std::int64_t row) const { return triangle ? row + 1 : keys; }
};

/// The rank whose keys a step works on.
int owner_of(const Call& call) {
  const auto ways = static_cast<int>(call.op.context);
  return (call.context.part - static_cast<int>(call.op.ring_step) + ways) % ways;
}

/// Merges two outputs of a row, from disjoint sets of keys.
void merge(float* y, const float* block, std::int64_t dim, float& lse, float block_lse) {
  const float highest = std::max(lse, block_lse);
  const float sum = highest + std::log(std::exp(lse - highest) + std::exp(block_lse - highest));
  const float keep = std::exp(lse - sum), add = std::exp(block_lse - sum);
  for (std::int64_t i = 0; i < dim; ++i) y[i] = keep * y[i] + add * block[i];
  lse = sum;
}

}  // namespace

void run_ring_attention(Machine& machine, const Call& call) {
  const RingBlock s(call.op, call.context.part);
  const float* qkv = call.input(0, s.tokens() * s.width);
  const float* kv = call.input(1, s.tokens() * s.kv_width);
  float* y = call.output(0, s.tokens() * s.out_width);
  float* saved = call.output(1, s.batch * s.heads * s.sequence);
  const Masks masks(call);
  const Scores bends(call);
  const Sinks sinks(call, 2);
  machine.pool.each(s.batch * s.heads, 1, [&](std::int64_t first, std::int64_t last, int thread) {
    const std::int64_t rows = s.queries();
    float* scores = machine.scratch.get(thread, rows * (s.keys + s.value_dim) + (masks.any() ? s.keys : 0));
    float* out = scores + rows * s.keys;
    float* factors = out + rows * s.value_dim;
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t b = unit / s.heads, head = unit % s.heads, group = head / s.per_group;
      const float* block = kv + b * s.sequence * s.kv_width;
      gemm(false, true, rows, s.keys, s.dim, 1.0F, qkv + (b * s.sequence + s.first_query) * s.width + head * s.dim,
           s.width, block + s.key(group), s.kv_width, 0.0F, scores, s.keys);
      float* lse = saved + unit * s.sequence + s.first_query;
      float* target = y + (b * s.sequence + s.first_query) * s.out_width + head * s.value_dim;
      std::vector<float> sums(static_cast<std::size_t>(rows));
      for (std::int64_t row = 0; row < rows; ++row) {
        float* p = scores + row * s.keys;
        const std::int64_t seen = s.seen(row);
        bends.bend(machine.kernels, p, seen, head, 0);
        sums[static_cast<std::size_t>(row)] =
            sinks.join(p, seen, head, machine.kernels.softmax_row(p, seen, bends.left()));
        std::fill(p + seen, p + s.keys, 0.0F);
        if (!masks.any()) continue;
        masks.of_scores(machine.kernels, b, head, s.first_query + row, owner_of(call), s.keys, factors);
        apply(factors, p, s.keys);
      }
      gemm(false, false, rows, s.value_dim, s.keys, 1.0F, scores, s.keys, block + s.value(group), s.kv_width, 0.0F, out,
           s.value_dim);
      for (std::int64_t row = 0; row < rows; ++row) {
        const float sum = sums[static_cast<std::size_t>(row)];
        if (call.op.accumulate) {
          merge(target + row * s.out_width, out + row * s.value_dim, s.value_dim, lse[row], sum);
        } else {
          std::copy_n(out + row * s.value_dim, s.value_dim, target + row * s.out_width);
          lse[row] = sum;
        }
      }
    }
  });
}

void run_ring_attention_grad(Machine& machine, const Call& call) {
  const RingBlock s(call.op, call.context.part);
  const float* dy = call.input(0, s.tokens() * s.out_width);
  const float* qkv = call.input(1, s.tokens() * s.width);
  const float* y = call.input(2, s.tokens() * s.out_width);
  const float* saved = call.input(3, s.batch * s.heads * s.sequence);
  const float* kv = call.input(4, s.tokens() * s.kv_width);
  float* dqkv = call.output(0, s.tokens() * s.width);
  float* dkv = call.output(1, s.tokens() * s.kv_width);
  const Masks masks(call);
  const Scores bends(call);
  const float keep = call.op.accumulate ? 1.0F : 0.0F;  // the own block comes first and covers all queries
  const Sinks sinks(call, 5);
  std::vector<double> dsinks(sinks.any() ? static_cast<std::size_t>(s.batch * s.heads) : 0);
  // Query heads of a group add to the same dk and dv, so one thread handles all of them.
  machine.pool.each(s.batch * s.kv_heads, 1, [&](std::int64_t first, std::int64_t last, int thread) {
    const std::int64_t rows = s.queries();
    const std::int64_t drawn = masks.any() ? 1 : 0, capped = bends.capped() ? 1 : 0;
    float* p = machine.scratch.get(thread, (2 * rows + drawn + capped) * s.keys);
    float* dp = p + rows * s.keys;
    float* factors = dp + rows * s.keys;
    float* slopes = factors + drawn * s.keys;  // of one row
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t b = unit / s.kv_heads, group = unit % s.kv_heads;
      const float* k = kv + b * s.sequence * s.kv_width + s.key(group);
      const float* v = kv + b * s.sequence * s.kv_width + s.value(group);
      float* dk = dkv + b * s.sequence * s.kv_width + s.key(group);
      float* dv = dkv + b * s.sequence * s.kv_width + s.value(group);
      for (std::int64_t row = 0; row < s.sequence; ++row) {
        std::fill_n(dk + row * s.kv_width, s.dim, 0.0F);
        std::fill_n(dv + row * s.kv_width, s.value_dim, 0.0F);
      }
      for (std::int64_t head = group * s.per_group; head < (group + 1) * s.per_group; ++head) {
        const std::int64_t at = b * s.sequence + s.first_query;
        const float* q = qkv + at * s.width + head * s.dim;
        const float* dout = dy + at * s.out_width + head * s.value_dim;
        const float* out = y + at * s.out_width + head * s.value_dim;
        const float* lse = saved + (b * s.heads + head) * s.sequence + s.first_query;
        gemm(false, true, rows, s.keys, s.dim, 1.0F, q, s.width, k, s.kv_width, 0.0F, p, s.keys);
        gemm(false, true, rows, s.keys, s.value_dim, 1.0F, dout, s.out_width, v, s.kv_width, 0.0F, dp, s.keys);
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t seen = s.seen(row);
          bends.bend(machine.kernels, p + row * s.keys, seen, head, 0, bends.capped() ? slopes : nullptr);
          machine.kernels.probabilities_row(p + row * s.keys, seen, bends.left(), lse[row]);
          std::fill(p + row * s.keys + seen, p + (row + 1) * s.keys, 0.0F);
          const float subtrahend = machine.kernels.dot(dout + row * s.out_width, out + row * s.out_width, s.value_dim);
          if (sinks.any())
            dsinks[static_cast<std::size_t>(b * s.heads + head)] -=
                std::exp(static_cast<double>(sinks.of(head) - lse[row])) * static_cast<double>(subtrahend);
          if (masks.any()) {
            masks.of_scores(machine.kernels, b, head, s.first_query + row, owner_of(call), s.keys, factors);
            apply(factors, dp + row * s.keys, s.keys);
          }
          machine.kernels.softmax_grad_row(p + row * s.keys, dp + row * s.keys, s.keys, bends.scale(), subtrahend);
          if (bends.capped()) apply(slopes, dp + row * s.keys, seen);
          if (masks.any()) apply(factors, p + row * s.keys, s.keys);
        }
        gemm(false, false, rows, s.dim, s.keys, 1.0F, dp, s.keys, k, s.kv_width, keep,
             dqkv + at * s.width + head * s.dim, s.width);
        gemm(true, false, s.keys, s.dim, rows, 1.0F, dp, s.keys, q, s.width, 1.0F, dk, s.kv_width);
        gemm(true, false, s.keys, s.value_dim, rows, 1.0F, p, s.keys, dout, s.out_width, 1.0F, dv, s.kv_width);
      }
    }
  });
  if (sinks.any()) Sinks::add(call, 2, dsinks);
}

void run_split_kv(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.batch * op.sequence, kv = models::key_value_columns(op), q = op.heads * op.head_dim;
  const float* qkv = call.input(0, n * (q + kv));
  float* out = call.output(0, n * kv);
  machine.pool.each(n, rows_per_chunk(kv), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) std::copy_n(qkv + i * (q + kv) + q, kv, out + i * kv);
  });
}

void run_merge_kv(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.batch * op.sequence, kv = models::key_value_columns(op), q = op.heads * op.head_dim;
  const float* dkv = call.input(0, n * kv);
  float* dqkv = call.output(0, n * (q + kv));
  machine.pool.each(n, rows_per_chunk(kv), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) std::copy_n(dkv + i * kv, kv, dqkv + i * (q + kv) + q);
  });
}

}  // namespace orrery::exec
