// State spaces: the causal convolution, the scan and the gated norm (models/operators/op.h has their operands).
//
// The scan is computed token by token. Its gradient goes through the chunks of a sequence from the last to the first;
// states before each chunk were noted on a way through all of them, and those within a chunk are made again.
#include "exec/cpu/state_space.h"

namespace orrery::exec {

namespace {

/// What a head reads, by token.
struct ScanHead {
  ScanHead(const ScanSizes& sizes, const Call& call, std::size_t first, std::int64_t which)
      : s(sizes),
        head(which),
        group(sizes.group_of(which)),
        convolved(call.input(first, s.rows() * s.convolved)),
        decay(s, call.input(first + 1, s.rows() * s.projected), call.input(first + 2, s.heads)[head],
              call.input(first + 3, s.heads)[head], head),
        skip(call.input(first + 4, s.heads)[head]) {}
  [[nodiscard]] const float* x(std::int64_t row) const { return convolved + row * s.convolved + head * s.width; }
  [[nodiscard]] const float* b(std::int64_t row) const {
    return convolved + row * s.convolved + s.inner + group * s.state;
  }
  [[nodiscard]] const float* c(std::int64_t row) const { return b(row) + s.groups * s.state; }
  // next = a now + dt x B^T, which may be the same.
  void step(std::int64_t row, const float* now, float* next) const {
    const float dt = decay.step(row), a = decay.decay(row);
    const float *const values = x(row), *const keys = b(row);
    for (std::int64_t p = 0; p < s.width; ++p) {
      const float scaled = dt * values[p];
      const float* from = now + p * s.state;
      float* to = next + p * s.state;
      for (std::int64_t i = 0; i < s.state; ++i) to[i] = a * from[i] + scaled * keys[i];
    }
  }
  const ScanSizes& s;
  std::int64_t head, group;
  const float* convolved;
  HeadDecay decay;
  float skip;
};

/// Where a head's gradients go.
struct ScanGradients {
  float *dconvolved, *dprojected, *states;
  float *dbias, *da_log, *dskip;  ///< sums of this head
};

/// Back through the tokens of a chunk (see back_by_chunks).
void scan_chunk_back(const ScanHead& h, const ScanGradients& to, const float* dy, std::int64_t first, std::int64_t last,
                     const float* within, float* toward) {
  const ScanSizes& s = h.s;
  for (std::int64_t row = last - 1; row >= first; --row) {
    const float dt = h.decay.step(row), a = h.decay.decay(row);
    const float *const x = h.x(row), *const b = h.b(row), *const c = h.c(row);
    const float* const gradient = dy + row * s.inner + h.head * s.width;
    const float *const before = within + (row - first) * s.cells(), *const after = before + s.cells();
    float* const dx = to.dconvolved + row * s.convolved + h.head * s.width;
    float* const db = to.dconvolved + row * s.convolved + s.inner + h.group * s.state;
    float* const dc = db + s.groups * s.state;
    float of_step = 0, of_decay = 0;
    for (std::int64_t p = 0; p < s.width; ++p) {
      float* const g = toward + p * s.state;
      const float dyp = gradient[p], scaled = dt * x[p];
      const float* const held = after + p * s.state;
      for (std::int64_t i = 0; i < s.state; ++i) g[i] += dyp * c[i], dc[i] += dyp * held[i], db[i] += scaled * g[i];
      const float of_value = lane_dot(g, b, s.state);
      dx[p] = h.skip * dyp + dt * of_value;
      of_step += x[p] * of_value;
      of_decay += lane_dot(g, before + p * s.state, s.state);
      *to.dskip += dyp * x[p];
      for (std::int64_t i = 0; i < s.state; ++i) g[i] *= a;
    }
    to.dprojected[row * s.projected + s.inner + s.convolved + h.head] =
        h.decay.back(row, of_step, of_decay, *to.da_log, *to.dbias);
  }
}

void scan_back(const ScanHead& h, const ScanGradients& to, const float* dy, float* scratch) {
  back_by_chunks(
      h.s, h.head, to.states, scratch, [&](std::int64_t row, const float* now, float* next) { h.step(row, now, next); },
      [&](std::int64_t first, std::int64_t last, const float* within, float* toward) {
        scan_chunk_back(h, to, dy, first, last, within, toward);
      });
}

/// The convolution of some columns, and what its gradient needs.
struct ConvCall {
  ConvCall(const Call& call, std::size_t first)
      : s(call.op),
        taps(call.op.ssm.taps),
        projected(call.input(first, s.rows() * s.projected)),
        weight(call.input(first + 1, s.convolved * taps)),
        bias(call.optional_input(first + 2, s.convolved)) {}
  [[nodiscard]] const float* x(std::int64_t row) const { return projected + row * s.projected + s.inner; }
  // Before the activation, at token t of the sequence that begins at row `begin`.
  [[nodiscard]] float at(std::int64_t begin, std::int64_t t, std::int64_t column) const {
    float sum = bias != nullptr ? bias[column] : 0;
    for (std::int64_t k = std::max<std::int64_t>(0, taps - 1 - t); k < taps; ++k)
      sum += weight[column * taps + k] * x(begin + t - (taps - 1) + k)[column];
    return sum;
  }
  ScanSizes s;
  std::int64_t taps;
  const float *projected, *weight, *bias;
};

/// Where a run of a row's columns begins among values, gates and weights.
struct NormRun {
  std::int64_t values, gates, weights;
};

struct NormSizes {
  explicit NormSizes(const models::Op& op)
      : s(op), runs(op.ssm.norm_groups), width(s.inner / std::max<std::int64_t>(1, runs)), gates_after(op.ssm.delta) {
    ENSURE(runs > 0 && s.inner % runs == 0, "{} columns in {} runs", s.inner, runs);
  }
  [[nodiscard]] std::int64_t weights() const { return gates_after ? width : s.inner; }
  [[nodiscard]] NormRun run_of(std::int64_t row, std::int64_t run) const {
    return {row * s.inner + run * width, row * s.projected + run * width, gates_after ? 0 : run * width};
  }
  [[nodiscard]] float normed(float y, float z) const { return gates_after ? y : y * z * logistic(z); }
  [[nodiscard]] float behind(float z) const { return gates_after ? z * logistic(z) : 1; }
  ScanSizes s;
  std::int64_t runs, width;
  bool gates_after;  ///< and all runs share one weight
};

}  // namespace

void run_causal_conv(Machine& machine, const Call& call) {
  const ConvCall conv(call, 0);
  const ScanSizes& s = conv.s;
  float* y = call.output(0, s.rows() * s.convolved);
  machine.pool.each(s.rows(), rows_per_chunk(s.convolved * conv.taps), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t column = 0; column < s.convolved; ++column) {
        const float u = conv.at(row - row % s.tokens, row % s.tokens, column);
        y[row * s.convolved + column] = u * logistic(u);
      }
  });
}

void run_causal_conv_grad(Machine& machine, const Call& call) {
  const ConvCall conv(call, 1);
  const ScanSizes& s = conv.s;
  const std::int64_t taps = conv.taps;
  const float* dy = call.input(0, s.rows() * s.convolved);
  float* dprojected = call.output(0, s.rows() * s.projected);
  float* dweight = call.output(1, s.convolved * taps);
  float* dbias = call.optional_output(2, s.convolved);
  constexpr std::int64_t kColumns = 16;  // of a chunk: a cache line of each row
  machine.pool.each(s.convolved, kColumns, [&](std::int64_t first, std::int64_t last, int thread) {
    float* before = machine.scratch.get(thread, s.tokens);  // gradients before the activation
    for (std::int64_t column = first; column < last; ++column)
      for (std::int64_t begin = 0; begin < s.rows(); begin += s.tokens) {
        for (std::int64_t t = 0; t < s.tokens; ++t) {
          const float u = conv.at(begin, t, column), sigma = logistic(u);
          before[t] = dy[(begin + t) * s.convolved + column] * sigma * (1 + u * (1 - sigma));
          if (dbias != nullptr) dbias[column] += before[t];
        }
        for (std::int64_t t = 0; t < s.tokens; ++t) {
          const float x = conv.x(begin + t)[column];
          float sum = 0;
          for (std::int64_t k = 0; k < taps; ++k) {
            const std::int64_t reader = t + (taps - 1) - k;
            if (reader >= s.tokens) continue;
            sum += conv.weight[column * taps + k] * before[reader];
            dweight[column * taps + k] += x * before[reader];
          }
          dprojected[(begin + t) * s.projected + s.inner + column] = sum;
        }
      }
  });
}

void run_state_scan(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  float* y = call.output(0, s.rows() * s.inner);
  machine.pool.each(s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* state = machine.scratch.get(thread, s.cells());
    for (std::int64_t one = begin; one < end; ++one) {
      const ScanHead head(s, call, 0, one % s.heads);
      std::fill_n(state, s.cells(), 0.0F);
      for (std::int64_t row = one / s.heads * s.tokens, t = 0; t < s.tokens; ++t, ++row) {
        head.step(row, state, state);
        float* out = y + row * s.inner + head.head * s.width;
        for (std::int64_t p = 0; p < s.width; ++p)
          out[p] = lane_dot(state + p * s.state, head.c(row), s.state) + head.skip * head.x(row)[p];
      }
    }
  });
}

void run_state_scan_grad(Machine& machine, const Call& call) {
  const ScanSizes s(call.op);
  const float* dy = call.input(0, s.rows() * s.inner);
  float* dconvolved = call.output(0, s.rows() * s.convolved);
  float* dprojected = call.output(1, s.rows() * s.projected);
  float *const dbias = call.output(2, s.heads), *const da_log = call.output(3, s.heads),
               *const dskip = call.output(4, s.heads);
  float* states = call.output(5, s.batch * s.chunks * s.heads * s.cells());
  const std::int64_t shared = s.heads / s.groups;  // heads of a group, which add up their gradients of B and C
  each_group(machine, s.groups, [&](std::int64_t group, int thread) {
    float* scratch = machine.scratch.get(thread, s.chunk_scratch());
    for (std::int64_t row = 0; row < s.rows(); ++row)
      for (const std::int64_t which : {group, s.groups + group})
        std::fill_n(dconvolved + row * s.convolved + s.inner + which * s.state, s.state, 0.0F);
    for (std::int64_t h = group * shared; h < (group + 1) * shared; ++h)
      scan_back(ScanHead(s, call, 1, h), {dconvolved, dprojected, states, dbias + h, da_log + h, dskip + h}, dy,
                scratch);
  });
}

namespace {

// y silu(z), without a norm; with `gradient` from that of the result to those of y and z.
void gate_alone(Machine& machine, const Call& call, bool gradient) {
  const ScanSizes s(call.op);
  const std::size_t first = gradient ? 1 : 0;
  const float* dout = gradient ? call.input(0, s.rows() * s.inner) : nullptr;
  const float* y = call.input(first, s.rows() * s.inner);
  const float* projected = call.input(first + 1, s.rows() * s.projected);
  float* out = call.output(0, s.rows() * s.inner);
  float* dprojected = gradient ? call.output(1, s.rows() * s.projected) : nullptr;
  machine.pool.each(s.rows(), rows_per_chunk(s.inner), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < s.inner; ++i) {
        const std::int64_t at = row * s.inner + i;
        const float z = projected[row * s.projected + i], sigma = logistic(z);
        out[at] = (gradient ? dout : y)[at] * z * sigma;
        if (gradient) dprojected[row * s.projected + i] = dout[at] * y[at] * sigma * (1 + z * (1 - sigma));
      }
  });
}

}  // namespace

void run_gated_norm(Machine& machine, const Call& call) {
  if (call.op.ssm.norm_groups == 0) return gate_alone(machine, call, false);
  const NormSizes n(call.op);
  const ScanSizes& s = n.s;
  const float* y = call.input(0, s.rows() * s.inner);
  const float* projected = call.input(1, s.rows() * s.projected);
  const float* weight = call.input(2, n.weights());
  float* out = call.output(0, s.rows() * s.inner);
  float* rstd = call.output(1, s.rows() * n.runs);
  const auto epsilon = static_cast<float>(call.op.epsilon);
  machine.pool.each(s.rows(), rows_per_chunk(s.inner), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t run = 0; run < n.runs; ++run) {
        const NormRun at = n.run_of(row, run);
        const float *const from = y + at.values, *const z = projected + at.gates, *const w = weight + at.weights;
        float* to = out + at.values;
        double squares = 0;
        for (std::int64_t i = 0; i < n.width; ++i) {
          to[i] = n.normed(from[i], z[i]);
          squares += static_cast<double>(to[i]) * to[i];
        }
        const float r = 1 / std::sqrt(static_cast<float>(squares / static_cast<double>(n.width)) + epsilon);
        rstd[row * n.runs + run] = r;
        for (std::int64_t i = 0; i < n.width; ++i) to[i] *= r * w[i] * n.behind(z[i]);
      }
  });
}

void run_gated_norm_grad(Machine& machine, const Call& call) {
  if (call.op.ssm.norm_groups == 0) return gate_alone(machine, call, true);
  const NormSizes n(call.op);
  const ScanSizes& s = n.s;
  const float* gradient = call.input(0, s.rows() * s.inner);
  const float* y = call.input(1, s.rows() * s.inner);
  const float* projected = call.input(2, s.rows() * s.projected);
  const float* weight = call.input(3, n.weights());
  const float* rstd = call.input(4, s.rows() * n.runs);
  float* dy = call.output(0, s.rows() * s.inner);
  float* dprojected = call.output(1, s.rows() * s.projected);
  float* dweight = call.output(2, n.weights());
  // u = y silu(z), or y alone, is what is normed; silu(z) is a factor of u, or of what the norm makes.
  machine.pool.each(s.rows(), rows_per_chunk(s.inner), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t run = 0; run < n.runs; ++run) {
        const NormRun at = n.run_of(row, run);
        const float *const dout = gradient + at.values, *const from = y + at.values,
                           *const gates = projected + at.gates;
        const float *const w = weight + at.weights, r = rstd[row * n.runs + run];
        double along = 0;
        for (std::int64_t i = 0; i < n.width; ++i)
          along += static_cast<double>(dout[i] * w[i] * n.behind(gates[i])) * n.normed(from[i], gates[i]);
        const float share = r * r * static_cast<float>(along / static_cast<double>(n.width));
        for (std::int64_t i = 0; i < n.width; ++i) {
          const float z = gates[i], sigma = logistic(z), slope = sigma * (1 + z * (1 - sigma)), x = from[i];
          const float du = r * (dout[i] * w[i] * n.behind(z) - share * n.normed(x, z));
          dy[at.values + i] = n.gates_after ? du : du * z * sigma;
          dprojected[at.gates + i] = slope * (n.gates_after ? dout[i] * w[i] * r * x : du * x);
        }
      }
  });
  machine.pool.each(n.weights(), columns_per_chunk(s.rows()), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = 0; row < s.rows(); ++row)
      for (std::int64_t first = 0; first < s.inner; first += n.weights())
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t column = first + i;
          const float z = projected[row * s.projected + column];
          dweight[i] += gradient[row * s.inner + column] * y[row * s.inner + column] * z * logistic(z) *
                        rstd[row * n.runs + column / n.width];
        }
  });
}

}  // namespace orrery::exec
