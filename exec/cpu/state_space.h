#pragma once
/// What the operators of mixers that keep a state share: sizes, a head's decay, and small functions. See
/// operators_state_space.cpp and operators_delta_rule.cpp.
#include <algorithm>
#include <cmath>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {

struct ScanSizes {
  explicit ScanSizes(const models::Op& op)
      : batch(op.batch),
        tokens(op.sequence),
        heads(op.heads),
        groups(op.kv_heads),
        width(op.head_dim),
        state(op.ssm.state),
        chunk(op.ssm.chunk),
        chunks(models::chunks_of(op)),
        inner(models::inner_columns(op)),
        convolved(models::convolved_columns(op)),
        projected(models::projected_columns(op)) {
    ENSURE(heads > 0 && groups > 0 && heads % groups == 0 && state >= 0 && op.n == batch * tokens,
           "{} heads in {} groups, state {}, {} rows of {} x {}", heads, groups, state, op.n, batch, tokens);
  }
  std::int64_t batch, tokens, heads, groups, width, state, chunk, chunks, inner, convolved, projected;
  [[nodiscard]] std::int64_t rows() const { return batch * tokens; }
  [[nodiscard]] std::int64_t cells() const { return width * state; }  ///< of a head's state
  [[nodiscard]] std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  /// Floats that a way back through a chunk needs: the gradient of a state, and the states around each token.
  [[nodiscard]] std::int64_t chunk_scratch() const { return (std::min(chunk, tokens) + 2) * cells(); }
};

inline float logistic(float x) {
  return 1 / (1 + std::exp(-x));
}
inline float softplus(float x) {
  constexpr float kLinear = 20;  // beyond, log(1 + exp(x)) is x in fp32
  return x > kLinear ? x : std::log1p(std::exp(x));
}

inline float lane_dot(const float* a, const float* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// How a head's state decays at each token: by exp(rate dt), dt = softplus of a raw column and a bias.
struct HeadDecay {
  HeadDecay(const ScanSizes& s, const float* projected, float its_bias, float a_log, std::int64_t head)
      : column(projected + s.inner + s.convolved + head), stride(s.projected), bias(its_bias), rate(-std::exp(a_log)) {}
  [[nodiscard]] float raw(std::int64_t row) const { return column[row * stride] + bias; }
  [[nodiscard]] float step(std::int64_t row) const { return softplus(raw(row)); }
  [[nodiscard]] float decay(std::int64_t row) const { return std::exp(rate * step(row)); }
  /// From the gradients of a token's dt and decay to that of its raw column, which is returned, and to those of A_log
  /// and the bias, which add up.
  float back(std::int64_t row, float of_step, float of_decay, float& da_log, float& dbias) const {
    const float u = raw(row), dt = softplus(u), a = std::exp(rate * dt);
    const float draw = (of_step + of_decay * rate * a) * logistic(u);
    dbias += draw;
    da_log += of_decay * dt * a * rate;  // the rate is -exp(A_log)
    return draw;
  }
  const float* column;
  std::int64_t stride;
  float bias, rate;
};

/// A head's way back through a sequence, chunk by chunk from the last: states before each chunk are noted on a way
/// through all of them, and those within a chunk made again. step(row, now, next) takes in a token; back(first, last,
/// within, toward) goes back through rows [first, last), where `within` has the states before each of them and after
/// the last, and `toward` the gradient of the state after it, which becomes that of the state before.
template <class Step, class Back>
void back_by_chunks(const ScanSizes& s, std::int64_t head, float* states, float* scratch, const Step& step,
                    const Back& back) {
  float *const toward = scratch, *const within = scratch + s.cells();
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    const std::int64_t begin = batch * s.tokens;
    const auto before = [&](std::int64_t chunk) {
      return states + ((batch * s.chunks + chunk) * s.heads + head) * s.cells();
    };
    std::fill_n(before(0), s.cells(), 0.0F);
    for (std::int64_t chunk = 0; chunk + 1 < s.chunks; ++chunk) {
      std::copy_n(before(chunk), s.cells(), before(chunk + 1));
      for (std::int64_t t = 0; t < s.chunk; ++t)
        step(begin + chunk * s.chunk + t, before(chunk + 1), before(chunk + 1));
    }
    std::fill_n(toward, s.cells(), 0.0F);
    for (std::int64_t chunk = s.chunks - 1; chunk >= 0; --chunk) {
      const std::int64_t first = begin + chunk * s.chunk, last = begin + std::min(s.tokens, (chunk + 1) * s.chunk);
      std::copy_n(before(chunk), s.cells(), within);
      for (std::int64_t row = first; row < last; ++row)
        step(row, within + (row - first) * s.cells(), within + (row - first + 1) * s.cells());
      back(first, last, within, toward);
    }
  }
}

/// Each group with its heads.
template <class OfGroup>
void each_group(Machine& machine, std::int64_t groups, OfGroup&& of_group) {
  machine.pool.each(groups, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t group = begin; group < end; ++group) of_group(group, thread);
  });
}

}  // namespace orrery::exec
