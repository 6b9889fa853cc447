// Gated delta networks: the recurrence of each head (models/operators/op.h has its operands), token by token. The rows
// of a state, one for each column of the values, meet only in the token's decay, strength, key and query.
#include "exec/cpu/state_space.h"

namespace orrery::exec {

namespace {

// Added to the squares of a key or query, as Qwen3-Next's class does.
constexpr float kLeastSquares = 1e-6F;

/// A row divided by its length.
float unit_row(const float* x, std::int64_t count, float* unit) {
  const float scale = 1 / std::sqrt(lane_dot(x, x, count) + kLeastSquares);
  for (std::int64_t i = 0; i < count; ++i) unit[i] = scale * x[i];
  return scale;
}

/// What a head reads, by token. `scratch`: 2 rows of the state's columns.
struct DeltaHead {
  DeltaHead(const ScanSizes& sizes, const Call& call, std::size_t first, std::int64_t which, float* scratch)
      : s(sizes),
        head(which),
        group(sizes.group_of(which)),
        convolved(call.input(first, s.rows() * s.convolved)),
        projected(call.input(first + 1, s.rows() * s.projected)),
        decay(s, projected, call.input(first + 2, s.heads)[head], call.input(first + 3, s.heads)[head], head),
        key(scratch),
        query(scratch + s.state),
        query_scale(1 / std::sqrt(static_cast<float>(s.state))) {}
  [[nodiscard]] const float* v(std::int64_t row) const { return convolved + row * s.convolved + head * s.width; }
  [[nodiscard]] const float* k(std::int64_t row) const {
    return convolved + row * s.convolved + s.inner + group * s.state;
  }
  [[nodiscard]] const float* q(std::int64_t row) const { return k(row) + s.groups * s.state; }
  [[nodiscard]] std::int64_t strength_at(std::int64_t row) const {
    return row * s.projected + s.inner + s.convolved + s.heads + head;
  }
  [[nodiscard]] float strength(std::int64_t row) const { return logistic(projected[strength_at(row)]); }
  // next = a now (I - b k k^T) + b v k^T, which may be the same; leaves the unit key in `key`.
  void step(std::int64_t row, const float* now, float* next) const {
    const float a = decay.decay(row), b = strength(row);
    const float* const values = v(row);
    unit_row(k(row), s.state, key);
    for (std::int64_t p = 0; p < s.width; ++p) {
      const float* from = now + p * s.state;
      float* to = next + p * s.state;
      const float change = b * (values[p] - a * lane_dot(from, key, s.state));
      for (std::int64_t i = 0; i < s.state; ++i) to[i] = a * from[i] + change * key[i];
    }
  }
  const ScanSizes& s;
  std::int64_t head, group;
  const float *convolved, *projected;
  HeadDecay decay;
  float *key, *query;  ///< of length 1, for the token at hand
  float query_scale;
};

/// Where a head's gradients go. Those of its group's k and q are, until all its heads have added theirs, of unit
/// length.
struct DeltaGradients {
  float *dconvolved, *dprojected, *states;
  float *dbias, *da_log;  ///< sums of this head
};

/// Back through the tokens of a chunk (see back_by_chunks). For a row S of the state before, with error e = v - a S k:
/// the row after is a S + b e k, and it is read as y = (that row) q.
void delta_chunk_back(const DeltaHead& h, const DeltaGradients& to, const float* dy, std::int64_t first,
                      std::int64_t last, const float* within, float* toward) {
  const ScanSizes& s = h.s;
  for (std::int64_t row = last - 1; row >= first; --row) {
    const float a = h.decay.decay(row), b = h.strength(row);
    unit_row(h.k(row), s.state, h.key);
    unit_row(h.q(row), s.state, h.query);
    const float* const values = h.v(row);
    const float* const gradient = dy + row * s.inner + h.head * s.width;
    const float *const before = within + (row - first) * s.cells(), *const after = before + s.cells();
    float* const dv = to.dconvolved + row * s.convolved + h.head * s.width;
    float* const dk = to.dconvolved + row * s.convolved + s.inner + h.group * s.state;
    float* const dq = dk + s.groups * s.state;
    float of_strength = 0, of_decay = 0;
    for (std::int64_t p = 0; p < s.width; ++p) {
      float* const g = toward + p * s.state;
      const float *const was = before + p * s.state, *const is = after + p * s.state;
      const float read = gradient[p] * h.query_scale, held = lane_dot(was, h.key, s.state);
      for (std::int64_t i = 0; i < s.state; ++i) g[i] += read * h.query[i], dq[i] += read * is[i];
      const float error = values[p] - a * held, of_change = lane_dot(g, h.key, s.state), of_error = b * of_change;
      dv[p] = of_error;
      of_strength += of_change * error;
      of_decay += lane_dot(g, was, s.state) - of_error * held;
      for (std::int64_t i = 0; i < s.state; ++i) {
        dk[i] += b * error * g[i] - of_error * a * was[i];
        g[i] = a * (g[i] - of_error * h.key[i]);
      }
    }
    to.dprojected[row * s.projected + s.inner + s.convolved + h.head] =
        h.decay.back(row, 0, of_decay, *to.da_log, *to.dbias);
    to.dprojected[h.strength_at(row)] = of_strength * b * (1 - b);
  }
}

// From the gradient of a unit row to that of the row. `unit`: scratch.
void unit_row_back(const float* x, std::int64_t count, float* gradient, float* unit) {
  const float scale = unit_row(x, count, unit), along = lane_dot(unit, gradient, count);
  for (std::int64_t i = 0; i < count; ++i) gradient[i] = scale * (gradient[i] - along * unit[i]);
}

}  // namespace

void run_delta_rule(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  float* y = call.output(0, s.rows() * s.inner);
  machine.pool.each(s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* state = machine.scratch.get(thread, s.cells() + 2 * s.state);
    for (std::int64_t one = begin; one < end; ++one) {
      const DeltaHead head(s, call, 0, one % s.heads, state + s.cells());
      std::fill_n(state, s.cells(), 0.0F);
      for (std::int64_t row = one / s.heads * s.tokens, t = 0; t < s.tokens; ++t, ++row) {
        head.step(row, state, state);
        unit_row(head.q(row), s.state, head.query);
        float* out = y + row * s.inner + head.head * s.width;
        for (std::int64_t p = 0; p < s.width; ++p)
          out[p] = head.query_scale * lane_dot(state + p * s.state, head.query, s.state);
      }
    }
  });
}

void run_delta_rule_grad(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  const float* dy = call.input(0, s.rows() * s.inner);
  const float* convolved = call.input(1, s.rows() * s.convolved);
  float* dconvolved = call.output(0, s.rows() * s.convolved);
  float* dprojected = call.output(1, s.rows() * s.projected);
  float *const dbias = call.output(2, s.heads), *const da_log = call.output(3, s.heads);
  float* states = call.output(4, s.batch * s.chunks * s.heads * s.cells());
  const std::int64_t shared = s.heads / s.groups;
  each_group(machine, s.groups, [&](std::int64_t group, int thread) {
    float *const rows = machine.scratch.get(thread, 2 * s.state + s.chunk_scratch()), *const scratch =
                                                                                          rows + 2 * s.state;
    // Of k and q.
    const auto each_shared = [&](auto&& use) {
      for (std::int64_t row = 0; row < s.rows(); ++row)
        for (const std::int64_t which : {group, s.groups + group}) use(row * s.convolved + s.inner + which * s.state);
    };
    each_shared([&](std::int64_t at) { std::fill_n(dconvolved + at, s.state, 0.0F); });
    for (std::int64_t which = group * shared; which < (group + 1) * shared; ++which) {
      const DeltaHead head(s, call, 1, which, rows);
      const DeltaGradients to = {dconvolved, dprojected, states, dbias + which, da_log + which};
      back_by_chunks(
          s, which, states, scratch,
          [&](std::int64_t row, const float* now, float* next) { head.step(row, now, next); },
          [&](std::int64_t first, std::int64_t last, const float* within, float* toward) {
            delta_chunk_back(head, to, dy, first, last, within, toward);
          });
    }
    each_shared([&](std::int64_t at) { unit_row_back(convolved + at, s.state, dconvolved + at, rows); });
  });
}

void run_output_gate(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float *const x = call.input(0, n * m), *const g = call.input(1, n * m);
  float* y = call.output(0, n * m);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * m; i < end * m; ++i) y[i] = x[i] * logistic(g[i]);
  });
}

void run_output_gate_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float *const dy = call.input(0, n * m), *const x = call.input(1, n * m), *const g = call.input(2, n * m);
  float *const dx = call.output(0, n * m), *const dg = call.output(1, n * m);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * m; i < end * m; ++i) {
      const float sigma = logistic(g[i]);
      dg[i] = dy[i] * x[i] * sigma * (1 - sigma);
      dx[i] = dy[i] * sigma;
    }
  });
}

}  // namespace orrery::exec
