// Linear attention with fixed decays: the recurrence of each head, token by token (models/operators/op.h has its
// operands). Its gradient goes through a sequence chunk by chunk, as those of other mixers that keep a state.
#include "exec/cpu/state_space.h"

namespace orrery::exec {

namespace {

/// By how much a head's state decays at each token: exp(-rate), where rates halve as in ALiBi, times the layer's share.
float decay_of(const models::Op& op, std::int64_t head) {
  constexpr double kHalvings = 8;
  return static_cast<float>(
      std::exp(-op.scale * std::exp2(-kHalvings * static_cast<double>(head + 1) / static_cast<double>(op.heads))));
}

/// What a head reads, by token. `scratch`: a row of its q, of its k and of its v.
struct DecayedHead {
  DecayedHead(const ScanSizes& sizes, const Call& call, std::size_t first, std::int64_t which, float* scratch)
      : s(sizes),
        head(which),
        qkv(call.input(first, s.rows() * 3 * s.inner)),
        decay(decay_of(call.op, which)),
        q(scratch),
        k(scratch + s.width),
        v(scratch + 2 * s.width) {}
  /// Of q (0), k (1) or v (2).
  [[nodiscard]] std::int64_t at(std::int64_t row, std::int64_t part) const {
    return row * 3 * s.inner + part * s.inner + head * s.width;
  }
  void activate(std::int64_t row, std::int64_t part, float* to) const {
    const float* from = qkv + at(row, part);
    for (std::int64_t i = 0; i < s.width; ++i) to[i] = from[i] * logistic(from[i]);
  }
  // next = a now + v k^T, which may be the same; leaves silu of k and v in `k` and `v`.
  void step(std::int64_t row, const float* now, float* next) const {
    activate(row, 1, k);
    activate(row, 2, v);
    for (std::int64_t p = 0; p < s.width; ++p)
      for (std::int64_t i = 0; i < s.width; ++i) next[p * s.width + i] = decay * now[p * s.width + i] + v[p] * k[i];
  }
  const ScanSizes& s;
  std::int64_t head;
  const float* qkv;
  float decay;
  float *q, *k, *v;
};

// From the gradients of silu's results to those of what it read.
void silu_back(const float* x, float* gradient, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float sigma = logistic(x[i]);
    gradient[i] *= sigma * (1 + x[i] * (1 - sigma));
  }
}

/// Back through the tokens of a chunk (see back_by_chunks).
void decayed_chunk_back(const DecayedHead& h, float* dqkv, const float* dy, std::int64_t first, std::int64_t last,
                        const float* within, float* toward) {
  const ScanSizes& s = h.s;
  for (std::int64_t row = last - 1; row >= first; --row) {
    for (std::int64_t part = 0; part < 3; ++part) h.activate(row, part, h.q + part * s.width);
    const float* const gradient = dy + row * s.inner + h.head * s.width;
    const float* const after = within + (row - first + 1) * s.cells();
    float *const dq = dqkv + h.at(row, 0), *const dk = dqkv + h.at(row, 1), *const dv = dqkv + h.at(row, 2);
    std::fill_n(dq, s.width, 0.0F);
    std::fill_n(dk, s.width, 0.0F);
    for (std::int64_t p = 0; p < s.width; ++p) {
      float* const g = toward + p * s.width;
      const float* const held = after + p * s.width;
      for (std::int64_t i = 0; i < s.width; ++i) g[i] += gradient[p] * h.q[i], dq[i] += gradient[p] * held[i];
      dv[p] = lane_dot(g, h.k, s.width);
      for (std::int64_t i = 0; i < s.width; ++i) dk[i] += h.v[p] * g[i], g[i] *= h.decay;
    }
    for (std::int64_t part = 0; part < 3; ++part) silu_back(h.qkv + h.at(row, part), dqkv + h.at(row, part), s.width);
  }
}

}  // namespace

void run_decayed_attention(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  float* y = call.output(0, s.rows() * s.inner);
  machine.pool.each(s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* state = machine.scratch.get(thread, s.cells() + 3 * s.width);
    for (std::int64_t one = begin; one < end; ++one) {
      const DecayedHead head(s, call, 0, one % s.heads, state + s.cells());
      std::fill_n(state, s.cells(), 0.0F);
      for (std::int64_t row = one / s.heads * s.tokens, t = 0; t < s.tokens; ++t, ++row) {
        head.step(row, state, state);
        head.activate(row, 0, head.q);
        float* out = y + row * s.inner + head.head * s.width;
        for (std::int64_t p = 0; p < s.width; ++p) out[p] = lane_dot(state + p * s.width, head.q, s.width);
      }
    }
  });
}

void run_decayed_attention_grad(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  const float* dy = call.input(0, s.rows() * s.inner);
  float* dqkv = call.output(0, s.rows() * 3 * s.inner);
  float* states = call.output(1, s.batch * s.chunks * s.heads * s.cells());
  each_group(machine, s.heads, [&](std::int64_t which, int thread) {
    float* scratch = machine.scratch.get(thread, 3 * s.width + s.chunk_scratch());
    const DecayedHead head(s, call, 1, which, scratch);
    back_by_chunks(
        s, which, states, scratch + 3 * s.width,
        [&](std::int64_t row, const float* now, float* next) { head.step(row, now, next); },
        [&](std::int64_t first, std::int64_t last, const float* within, float* toward) {
          decayed_chunk_back(head, dqkv, dy, first, last, within, toward);
        });
  });
}

}  // namespace orrery::exec
