// Mamba's first scan: the recurrence of each column, token by token (models/operators/op.h has its operands). Its
// gradient goes through a sequence chunk by chunk, as those of other mixers that keep a state.
#include "exec/cpu/state_space.h"

namespace orrery::exec {

namespace {

/// What a column reads, by token.
struct SelectiveColumn {
  SelectiveColumn(const ScanSizes& sizes, const Call& call, std::size_t first, std::int64_t which)
      : s(sizes),
        column(which),
        xs(call.input(first, s.rows() * s.heads)),
        raws(call.input(first + 1, s.rows() * s.heads)),
        bs(call.input(first + 2, s.rows() * s.state)),
        cs(call.input(first + 3, s.rows() * s.state)),
        bias(call.input(first + 4, s.heads)[which]),
        logs(call.input(first + 5, s.heads * s.state) + which * s.state),
        skip(call.input(first + 6, s.heads)[which]) {}
  [[nodiscard]] std::int64_t at(std::int64_t row) const { return row * s.heads + column; }
  [[nodiscard]] float raw(std::int64_t row) const { return raws[at(row)] + bias; }
  [[nodiscard]] const float* b(std::int64_t row) const { return bs + row * s.state; }
  [[nodiscard]] const float* c(std::int64_t row) const { return cs + row * s.state; }
  /// Each rate is -exp(A_log).
  [[nodiscard]] float rate(std::int64_t i) const { return -std::exp(logs[i]); }
  // next_i = exp(rate_i dt) now_i + dt x B_i, which may be the same.
  void step(std::int64_t row, const float* now, float* next) const {
    const float dt = softplus(raw(row)), taken = dt * xs[at(row)];
    const float* const keys = b(row);
    for (std::int64_t i = 0; i < s.state; ++i) next[i] = std::exp(rate(i) * dt) * now[i] + taken * keys[i];
  }
  const ScanSizes& s;
  std::int64_t column;
  const float *xs, *raws, *bs, *cs;
  float bias;
  const float* logs;
  float skip;
};

/// Where a column's gradients go: its own, and of B and C the sums of its run.
struct SelectiveGradients {
  float *dx, *ddt, *db, *dc, *states, *dbias, *da_log, *dskip;
};

/// Back through the tokens of a chunk (see back_by_chunks).
void selective_chunk_back(const SelectiveColumn& h, const SelectiveGradients& to, const float* dy, std::int64_t first,
                          std::int64_t last, const float* within, float* toward) {
  const ScanSizes& s = h.s;
  for (std::int64_t row = last - 1; row >= first; --row) {
    const float u = h.raw(row), dt = softplus(u), x = h.xs[h.at(row)], dyp = dy[h.at(row)];
    const float *const b = h.b(row), *const c = h.c(row);
    const float *const before = within + (row - first) * s.state, *const after = before + s.state;
    float *const db = to.db + row * s.state, *const dc = to.dc + row * s.state;
    float of_step = 0, of_value = 0;
    for (std::int64_t i = 0; i < s.state; ++i) {
      const float rate = h.rate(i), a = std::exp(rate * dt);
      float& g = toward[i];
      g += dyp * c[i];
      dc[i] += dyp * after[i];
      db[i] += g * dt * x;
      of_value += g * b[i];
      const float of_power = g * before[i] * a;  // the gradient of rate dt
      of_step += of_power * rate;
      to.da_log[i] += of_power * dt * rate;
      g *= a;
    }
    to.dx[h.at(row)] = h.skip * dyp + dt * of_value;
    *to.dskip += dyp * x;
    const float draw = (of_step + x * of_value) * logistic(u);
    to.ddt[h.at(row)] = draw;
    *to.dbias += draw;
  }
}

}  // namespace

void run_selective_scan(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  float* y = call.output(0, s.rows() * s.heads);
  machine.pool.each(s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* state = machine.scratch.get(thread, s.state);
    for (std::int64_t one = begin; one < end; ++one) {
      const SelectiveColumn column(s, call, 0, one % s.heads);
      std::fill_n(state, s.state, 0.0F);
      for (std::int64_t row = one / s.heads * s.tokens, t = 0; t < s.tokens; ++t, ++row) {
        column.step(row, state, state);
        y[column.at(row)] = lane_dot(state, column.c(row), s.state) + column.skip * column.xs[column.at(row)];
      }
    }
  });
}

// All columns have one B and C, whose gradients are sums over columns: a fixed number of runs of columns each adds up
// its own, so that the order does not depend on the number of threads.
void run_selective_scan_grad(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  const std::int64_t of_rows = s.rows() * s.state;
  const float* dy = call.input(0, s.rows() * s.heads);
  float *const dx = call.output(0, s.rows() * s.heads), *const ddt = call.output(1, s.rows() * s.heads);
  float *const db = call.output(2, of_rows), *const dc = call.output(3, of_rows);
  float *const dbias = call.output(4, s.heads), *const da_log = call.output(5, s.heads * s.state),
               *const dskip = call.output(6, s.heads);
  float* const states = call.output(7, models::selective_workspace(call.op));
  float* const sums = states + s.batch * s.chunks * s.heads * s.state;  // of each run, of B and then of C
  constexpr std::int64_t kRuns = models::kColumnRuns;
  machine.pool.each(kRuns, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const scratch = machine.scratch.get(thread, s.chunk_scratch());
    for (std::int64_t run = begin; run < end; ++run) {
      float* const own = sums + 2 * run * of_rows;
      std::fill_n(own, 2 * of_rows, 0.0F);
      for (std::int64_t column = run * s.heads / kRuns; column < (run + 1) * s.heads / kRuns; ++column) {
        const SelectiveColumn h(s, call, 1, column);
        const SelectiveGradients to = {
            dx, ddt, own, own + of_rows, states, dbias + column, da_log + column * s.state, dskip + column};
        back_by_chunks(
            s, column, states, scratch,
            [&](std::int64_t row, const float* now, float* next) { h.step(row, now, next); },
            [&](std::int64_t first, std::int64_t last, const float* within, float* toward) {
              selective_chunk_back(h, to, dy, first, last, within, toward);
            });
      }
    }
  });
  machine.pool.each(of_rows, columns_per_chunk(kRuns), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      db[i] = dc[i] = 0;
      for (std::int64_t run = 0; run < kRuns; ++run) {
        db[i] += sums[2 * run * of_rows + i];
        dc[i] += sums[(2 * run + 1) * of_rows + i];
      }
    }
  });
}

}  // namespace orrery::exec
