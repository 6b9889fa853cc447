// Attention over packed heads, forward and backward. Each head's matrices are strided views of the packed rows, so
// nothing is transposed or copied. Queries come in blocks, and a causal block sees only the keys up to its own end,
// which halves the work of long sequences. Backward recomputes as in Dao et al., "FlashAttention" (arXiv:2205.14135),
// section 3.1 and appendix B.4: P from the saved log-sum-exp, and dS = P * (dP - rowsum(dy*y)).
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/masks.h"
#include "exec/cpu/scores.h"
#include "exec/cpu/sinks.h"

namespace orrery::exec {
namespace {

struct Shape {
  std::int64_t batch, sequence, heads, kv_heads, dim;
  std::int64_t value_dim;  ///< of v and y
  std::int64_t per_group;  ///< query heads that share a key/value head
  std::int64_t width;      ///< of a packed row
  std::int64_t out_width;  ///< of a row of y
  std::int64_t block;      ///< queries at a time
  std::int64_t blocks;
  std::int64_t window;  ///< 0: none
  bool causal;

  explicit Shape(const models::Op& op)
      : batch(op.batch),
        sequence(op.sequence),
        heads(op.heads),
        kv_heads(op.kv_heads),
        dim(op.head_dim),
        value_dim(models::value_columns(op)),
        per_group(op.kv_heads > 0 ? op.heads / op.kv_heads : 0),
        width(models::packed_columns(op)),
        out_width(op.heads * value_dim),
        block(std::min<std::int64_t>(op.causal ? 64 : 128, op.sequence)),
        blocks(block > 0 ? (op.sequence + block - 1) / block : 0),
        window(op.window),
        causal(op.causal) {
    ENSURE(kv_heads > 0 && heads % kv_heads == 0 && dim > 0, "attention with {} heads, {} key/value heads of {}", heads,
           kv_heads, dim);
  }
  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
  /// The first key that a query sees.
  [[nodiscard]] std::int64_t first_key(std::int64_t query) const {
    return window > 0 ? std::max<std::int64_t>(0, query - window + 1) : 0;
  }
  /// The end of the keys that queries up to `end` see.
  [[nodiscard]] std::int64_t keys(std::int64_t end) const { return causal ? end : sequence; }
  [[nodiscard]] std::int64_t query(std::int64_t head) const { return head * dim; }
  [[nodiscard]] std::int64_t key(std::int64_t group) const { return (heads + group) * dim; }
  [[nodiscard]] std::int64_t value(std::int64_t group) const { return (heads + kv_heads) * dim + group * value_dim; }
  [[nodiscard]] std::int64_t output(std::int64_t head) const { return head * value_dim; }
  /// How many units of work, of `products` multiply-adds each, are worth giving to another thread.
  [[nodiscard]] static std::int64_t chunk(std::int64_t products) {
    return std::max<std::int64_t>(1, (std::int64_t{1} << 19) / std::max<std::int64_t>(1, products));
  }
};

void clear(float* x, std::int64_t count) {
  std::memset(x, 0, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace

void run_attention(Machine& machine, const Call& call) {
  const Shape s(call.op);
  const Kernels& kernels = machine.kernels;
  const bool flash = call.op.flash;
  const std::int64_t head_rows = s.batch * s.heads * s.sequence;
  const float* qkv = call.input(0, s.tokens() * s.width);
  float* y = call.output(0, s.tokens() * s.out_width);
  float* saved = call.output(1, flash ? head_rows : head_rows * s.sequence);
  // With dropout, scratch also holds a row's factors, and if the probabilities are saved, what dropout leaves of them.
  const Masks masks(call);
  const Scores bends(call);
  const Sinks sinks(call, 1);
  const std::int64_t area = s.block * s.sequence, factors = masks.any() ? s.sequence : 0;

  const std::int64_t units = s.batch * s.heads * s.blocks;
  machine.pool.each(
      units, Shape::chunk(2 * s.block * s.sequence * s.dim), [&](std::int64_t first, std::int64_t last, int thread) {
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t head_index = unit / s.blocks;  // batch * heads + head
          const std::int64_t b = head_index / s.heads, head = head_index % s.heads, group = head / s.per_group;
          const std::int64_t begin = unit % s.blocks * s.block, end = std::min(begin + s.block, s.sequence);
          const std::int64_t from = s.first_key(begin), keys = s.keys(end) - from;  // keys that the block sees
          const float* packed = qkv + b * s.sequence * s.width;
          const std::int64_t ld = flash ? keys : s.sequence;
          float* scratch = flash || masks.any() ? machine.scratch.get(thread, area + factors) : nullptr;
          float* scores = flash ? scratch : saved + (head_index * s.sequence + begin) * s.sequence + from;
          gemm(false, true, end - begin, keys, s.dim, 1.0F, packed + begin * s.width + s.query(head), s.width,
               packed + from * s.width + s.key(group), s.width, 0.0F, scores, ld);
          for (std::int64_t row = begin; row < end; ++row) {
            float* p = scores + (row - begin) * ld;
            const std::int64_t first_seen = s.first_key(row) - from, end_seen = s.keys(row + 1) - from;
            const std::int64_t seen = end_seen - first_seen;
            bends.bend(kernels, p + first_seen, seen, head, row - from - first_seen);
            const float lse =
                sinks.join(p + first_seen, seen, head, kernels.softmax_row(p + first_seen, seen, bends.left()));
            clear(flash ? p : p - from, first_seen + (flash ? 0 : from));
            clear(p + end_seen, ld - end_seen - (flash ? 0 : from));
            if (flash) saved[head_index * s.sequence + row] = lse;
            if (!masks.any()) continue;
            masks.of_scores(kernels, b, head, row, from + keys, scratch + area);
            float* left = scratch + (row - begin) * ld;
            for (std::int64_t i = 0; i < keys; ++i) left[i] = p[i] * scratch[area + from + i];
          }
          const float* weights = masks.any() ? scratch : scores;
          gemm(false, false, end - begin, s.value_dim, keys, 1.0F, weights, ld,
               packed + from * s.width + s.value(group), s.width, 0.0F,
               y + (b * s.sequence + begin) * s.out_width + s.output(head), s.out_width);
        }
      });
}

namespace {

/// One block of queries of one head: writes dq, and adds to dk and dv, or with `first` writes them.
struct GradBlock {
  const Shape& s;
  const Kernels& kernels;
  bool flash;
  const float* saved;   ///< of this head: lse (T) or probabilities (T,T)
  const float* packed;  ///< of this sequence
  const float* y;       ///< of this sequence and head; rows out_width apart
  const float* dy;
  float* dpacked;  ///< of this sequence
  float* scores;   ///< scratch, block * T
  float* dscores;  ///< scratch, block * T
  std::int64_t head, group, sequence;
  const Masks& masks;
  const Scores& bends;
  float* left;     ///< with dropout: scratch for what it leaves of p, block * T; may be scores
  float* factors;  ///< with dropout: scratch for a row's factors, T
  float* slopes;   ///< with a cap: scratch for its slopes, block * T
  const Sinks& sinks;
  double* dsink;  ///< with sinks: of this head and sequence

  /// The share of a row's probability that goes to the sink.
  [[nodiscard]] double share_of_sink(const float* p, std::int64_t keys, std::int64_t row) const {
    if (flash) return std::exp(static_cast<double>(sinks.of(head)) - static_cast<double>(saved[row]));
    double rest = 1;
    for (std::int64_t i = 0; i < keys; ++i) rest -= static_cast<double>(p[i]);
    return rest;
  }

  void run(std::int64_t begin, std::int64_t end, bool first) const {
    const std::int64_t rows = end - begin, from = s.first_key(begin), keys = s.keys(end) - from;
    const float* q = packed + begin * s.width + s.query(head);
    const float* k = packed + from * s.width + s.key(group);
    const float* v = packed + from * s.width + s.value(group);
    const float* dy_rows = dy + begin * s.out_width;
    const float* p = flash ? scores : saved + begin * s.sequence + from;
    const std::int64_t ld = flash ? keys : s.sequence;
    if (flash) {
      gemm(false, true, rows, keys, s.dim, 1.0F, q, s.width, k, s.width, 0.0F, scores, ld);
      for (std::int64_t row = begin; row < end; ++row) {
        float* target = scores + (row - begin) * ld;
        const std::int64_t first_seen = s.first_key(row) - from, end_seen = s.keys(row + 1) - from;
        const std::int64_t seen = end_seen - first_seen;
        bends.bend(kernels, target + first_seen, seen, head, row - from - first_seen,
                   bends.capped() ? slopes + (row - begin) * keys + first_seen : nullptr);
        kernels.probabilities_row(target + first_seen, seen, bends.left(), saved[row]);
        clear(target, first_seen);
        clear(target + end_seen, keys - end_seen);
      }
    } else if (bends.capped()) {
      gemm(false, true, rows, keys, s.dim, 1.0F, q, s.width, k, s.width, 0.0F, slopes, keys);
      bends.cap_slopes(kernels, slopes, rows * keys, slopes);
    }
    gemm(false, true, rows, keys, s.value_dim, 1.0F, dy_rows, s.out_width, v, s.width, 0.0F, dscores, keys);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float subtrahend = kernels.dot(dy_rows + row * s.out_width, y + (begin + row) * s.out_width, s.value_dim);
      if (sinks.any()) *dsink -= share_of_sink(p + row * ld, keys, begin + row) * static_cast<double>(subtrahend);
      if (masks.any()) {
        masks.of_scores(kernels, sequence, head, begin + row, from + keys, factors);
        apply(factors + from, dscores + row * keys, keys);
      }
      kernels.softmax_grad_row(p + row * ld, dscores + row * keys, keys, bends.scale(), subtrahend);
      if (bends.capped()) {  // only for keys that the row sees: others may have an earlier block's slopes
        const std::int64_t first_seen = s.first_key(begin + row) - from, end_seen = s.keys(begin + row + 1) - from;
        apply(slopes + row * keys + first_seen, dscores + row * keys + first_seen, end_seen - first_seen);
      }
      if (!masks.any()) continue;
      for (std::int64_t i = 0; i < keys; ++i) left[row * ld + i] = p[row * ld + i] * factors[from + i];
    }
    if (masks.any()) p = left;
    const float beta = first ? 0.0F : 1.0F;
    gemm(false, false, rows, s.dim, keys, 1.0F, dscores, keys, k, s.width, 0.0F,
         dpacked + begin * s.width + s.query(head), s.width);
    float* dk = dpacked + from * s.width + s.key(group);
    float* dv = dpacked + from * s.width + s.value(group);
    gemm(true, false, keys, s.dim, rows, 1.0F, dscores, keys, q, s.width, beta, dk, s.width);
    gemm(true, false, keys, s.value_dim, rows, 1.0F, p, ld, dy_rows, s.out_width, beta, dv, s.width);
  }
};

}  // namespace

void run_attention_grad(Machine& machine, const Call& call) {
  const Shape s(call.op);
  const bool flash = call.op.flash;
  const std::int64_t head_rows = s.batch * s.heads * s.sequence;
  const std::int64_t per_head = flash ? s.sequence : s.sequence * s.sequence;
  const float* dy = call.input(0, s.tokens() * s.out_width);
  const float* qkv = call.input(1, s.tokens() * s.width);
  const float* y = call.input(2, s.tokens() * s.out_width);
  const float* saved = call.input(3, flash ? head_rows : head_rows * s.sequence);
  float* dqkv = call.output(0, s.tokens() * s.width);

  // Query heads of a group add to the same dk and dv, so one thread handles all of them.
  const Masks masks(call);
  const Scores bends(call);
  const Sinks sinks(call, 4);
  std::vector<double> dsinks(sinks.any() ? static_cast<std::size_t>(s.batch * s.heads) : 0);
  const std::int64_t products = 5 * s.per_group * s.sequence * s.sequence * s.dim;
  machine.pool.each(
      s.batch * s.kv_heads, Shape::chunk(products), [&](std::int64_t first, std::int64_t last, int thread) {
        const std::int64_t area = s.block * s.sequence;
        const bool two = flash || masks.any();
        const std::int64_t factors = (two ? 2 : 1) * area, slopes = factors + (masks.any() ? s.sequence : 0);
        float* scratch = machine.scratch.get(thread, slopes + (bends.capped() ? area : 0));
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t b = unit / s.kv_heads, group = unit % s.kv_heads;
          for (std::int64_t row = 0; s.window > 0 && row < s.sequence; ++row) {  // with a window no block sees all keys
            clear(dqkv + (b * s.sequence + row) * s.width + s.key(group), s.dim);
            clear(dqkv + (b * s.sequence + row) * s.width + s.value(group), s.value_dim);
          }
          for (std::int64_t head = group * s.per_group; head < (group + 1) * s.per_group; ++head) {
            const std::int64_t y_offset = b * s.sequence * s.out_width + s.output(head);
            const GradBlock block{s,
                                  machine.kernels,
                                  flash,
                                  saved + (b * s.heads + head) * per_head,
                                  qkv + b * s.sequence * s.width,
                                  y + y_offset,
                                  dy + y_offset,
                                  dqkv + b * s.sequence * s.width,
                                  scratch + (two ? area : 0),
                                  scratch,
                                  head,
                                  group,
                                  b,
                                  masks,
                                  bends,
                                  scratch + (two ? area : 0),
                                  scratch + factors,
                                  scratch + slopes,
                                  sinks,
                                  dsinks.data() + (sinks.any() ? b * s.heads + head : 0)};
            // The last block sees all keys, so it can write what the other blocks then add to.
            for (std::int64_t i = s.blocks - 1; i >= 0; --i)
              block.run(i * s.block, std::min((i + 1) * s.block, s.sequence),
                        s.window == 0 && i == s.blocks - 1 && head == group * s.per_group);
          }
        }
      });
  if (sinks.any()) Sinks::add(call, 1, dsinks);
}

}  // namespace orrery::exec
