// Normalisation, activations and additions: rows and columns are divided over threads.
#include <algorithm>
#include <cmath>

#include "exec/cpu/machine.h"
#include "exec/cpu/sample_blocks.h"

namespace orrery::exec {
namespace {

/// Calls body(first element, elements) for pieces, or once for all elements where there is one thread.
template <class Body>
void elementwise(Machine& machine, std::int64_t count, Body&& body) {
  machine.pool.each(count, worthwhile_elements,
                    [&](std::int64_t begin, std::int64_t end, int) { body(begin, end - begin); });
}

/// The weights of a norm, or as many ones in a thread's scratch for a norm that has none.
const float* weights_or_ones(Machine& machine, const float* weight, std::int64_t count, int thread) {
  if (weight != nullptr) return weight;
  float* const ones = machine.scratch.get(thread, count);
  std::fill_n(ones, count, 1.0F);
  return ones;
}

/// Sums over rows are added to what is there; if the operator writes, to zeros.
void begin_sums(const models::Op& op, float* sums, std::int64_t count) {
  if (sums != nullptr && !op.accumulate) std::fill_n(sums, count, 0.0F);
}

}  // namespace

void run_norm(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, c = op.m;
  const bool layer_norm = op.kind == models::OpKind::layer_norm;
  const float epsilon = static_cast<float>(op.epsilon);
  const float* x = call.input(0, n * c);
  const float* given = call.optional_input(1, c);
  const float* bias = layer_norm ? call.optional_input(2, c) : nullptr;
  float* y = call.output(0, n * c);
  float* mean = layer_norm ? call.output(1, n) : nullptr;
  float* rstd = call.output(layer_norm ? 2 : 1, n);
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int thread) {
    const std::int64_t at = begin * c;
    const float* weight = weights_or_ones(machine, given, c, thread);
    if (layer_norm)
      machine.kernels.layer_norm(x + at, weight, bias, y + at, mean + begin, rstd + begin, end - begin, c, epsilon);
    else
      machine.kernels.rms_norm(x + at, weight, y + at, rstd + begin, end - begin, c, epsilon);
  });
}

void run_norm_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const bool layer_norm = call.op.kind == models::OpKind::layer_norm_grad;
  const float* dy = call.input(0, n * c);
  const float* x = call.input(1, n * c);
  const float* given = call.optional_input(2, c);
  const float* mean = layer_norm ? call.input(3, n) : nullptr;
  const float* rstd = call.input(layer_norm ? 4 : 3, n);
  const float* addend = call.optional_input(layer_norm ? 5 : 4, n * c);
  float* dx = call.output(0, n * c);
  float* dweight = call.optional_output(1, c);
  float* dbias = layer_norm ? call.optional_output(2, c) : nullptr;
  // Parameters first, because dx may overwrite dy.
  if (dweight != nullptr)
    machine.pool.each(c, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int) {
      begin_sums(call.op, dweight + begin, end - begin);
      begin_sums(call.op, dbias == nullptr ? nullptr : dbias + begin, end - begin);
      machine.kernels.norm_weight_grad(dy + begin, x + begin, mean, rstd, dweight + begin,
                                       dbias == nullptr ? nullptr : dbias + begin, n, c, end - begin);
    });
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int thread) {
    const std::int64_t at = begin * c;
    const float* weight = weights_or_ones(machine, given, c, thread);
    const float* more = addend == nullptr ? nullptr : addend + at;
    if (layer_norm)
      machine.kernels.layer_norm_grad(dy + at, x + at, weight, mean + begin, rstd + begin, more, dx + at, end - begin,
                                      c);
    else
      machine.kernels.rms_norm_grad(dy + at, x + at, weight, rstd + begin, more, dx + at, end - begin, c);
  });
}

void run_bias_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float* dy = call.input(0, n * m);
  float* dbias = call.output(0, m);
  machine.pool.each(m, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int thread) {
    if (call.op.batch == 0) {
      begin_sums(call.op, dbias + begin, end - begin);
      machine.kernels.column_sum(dy + begin, dbias + begin, n, m, end - begin);
      return;
    }
    const SampleBlocks blocks = sample_blocks(is_over_samples(call.op) ? call.op.batch : 0, n);
    sum_blocks(
        machine, thread, blocks, end - begin, call.op.accumulate, dbias + begin, [&](std::int64_t block, float* to) {
          std::fill_n(to, end - begin, 0.0F);
          machine.kernels.column_sum(dy + block * blocks.samples * m + begin, to, blocks.samples, m, end - begin);
        });
  });
}

void run_gelu_erf(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  float* y = call.output(0, count);
  elementwise(machine, count,
              [&](std::int64_t at, std::int64_t size) { machine.kernels.gelu_erf(x + at, y + at, size); });
}

void run_gelu_erf_grad(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* dy = call.input(0, count);
  const float* x = call.input(1, count);
  float* dx = call.output(0, count);
  elementwise(machine, count, [&](std::int64_t at, std::int64_t size) {
    machine.kernels.gelu_erf_grad(dy + at, x + at, dx + at, size);
  });
}

void run_activate(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  float* y = call.output(0, count);
  const models::Function function = models::function_of(call.op);
  elementwise(machine, count,
              [&](std::int64_t at, std::int64_t size) { machine.kernels.activate(function, x + at, y + at, size); });
}

void run_activate_grad(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* dy = call.input(0, count);
  const float* x = call.input(1, count);
  float* dx = call.output(0, count);
  const models::Function function = models::function_of(call.op);
  elementwise(machine, count, [&](std::int64_t at, std::int64_t size) {
    machine.kernels.activate_grad(function, dy + at, x + at, dx + at, size);
  });
}

void run_gate(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, f = call.op.m;
  const models::Function function = models::function_of(call.op);
  const float* x = call.input(0, n * 2 * f);
  float* y = call.output(0, n * f);
  machine.pool.each(n, rows_per_chunk(f), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* gate = x + row * 2 * f;
      machine.kernels.gate(function, gate, gate + f, y + row * f, f);
    }
  });
}

void run_gate_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, f = call.op.m;
  const models::Function function = models::function_of(call.op);
  const float* dy = call.input(0, n * f);
  const float* x = call.input(1, n * 2 * f);
  float* dx = call.output(0, n * 2 * f);
  machine.pool.each(n, rows_per_chunk(f), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* gate = x + row * 2 * f;
      float* dgate = dx + row * 2 * f;
      machine.kernels.gate_grad(function, dy + row * f, gate, gate + f, dgate, dgate + f, f);
    }
  });
}

void run_scale_columns(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const models::ScaledRuns& runs = call.op.runs;
  const float* x = call.input(0, n * m);
  float* y = call.output(0, n * m);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* from = x + row * m;
      float* to = y + row * m;
      std::int64_t done = 0;
      for (std::size_t run = 0; run < runs.columns.size(); ++run) {
        const auto factor = static_cast<float>(runs.factors[run]);
        for (std::int64_t i = done; i < done + runs.columns[run]; ++i) to[i] = factor * from[i];
        done += runs.columns[run];
      }
      if (from != to) std::copy_n(from + done, m - done, to + done);
    }
  });
}

namespace {

/// Where heads of k and v are among a token's columns, and in x, which has no v if v is made of k.
struct HeadColumns {
  explicit HeadColumns(const models::Op& op)
      : runs(models::normed_runs(op)),
        k(runs.of_q * runs.q_width),
        v(runs.width()),
        values(op.kv_heads * models::value_columns(op)),
        all(v + values),
        of_keys(op.values == models::HeadValues::of_keys),
        of_x(of_keys ? v : all),
        source(of_keys ? k : v) {}
  models::NormedRuns runs;
  std::int64_t k, v, values, all;
  bool of_keys;
  std::int64_t of_x;    ///< columns of x
  std::int64_t source;  ///< of v, in x
};

}  // namespace

// A token's heads of q and k, and of v if they are normed, count as rows of D, or all of q as one row and all of k.
void run_head_norm(Machine& machine, const Call& call) {
  const HeadColumns c(call.op);
  const models::NormedRuns& runs = c.runs;
  const std::int64_t n = call.op.batch * call.op.sequence;
  const float epsilon = static_cast<float>(call.op.epsilon);
  const float* x = call.input(0, n * c.of_x);
  const float* given_q = call.optional_input(1, runs.q_width);
  const float* given_k = call.optional_input(2, runs.k_width);
  float* y = call.output(0, n * c.all);
  float* rstd = call.output(1, n * runs.count());
  machine.pool.each(n, rows_per_chunk(c.all), [&](std::int64_t begin, std::int64_t end, int thread) {
    const std::int64_t most = std::max(runs.q_width, runs.k_width);
    const float* weight_q = weights_or_ones(machine, given_q, most, thread);
    const float* weight_k = weights_or_ones(machine, given_k, most, thread);
    const float* ones = runs.of_v > 0 ? weights_or_ones(machine, nullptr, most, thread) : nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      const float* from = x + i * c.of_x;
      float* to = y + i * c.all;
      float* of_q = rstd + i * runs.count();
      float* of_k = of_q + runs.of_q;
      if (runs.of_v > 0)
        machine.kernels.rms_norm(from + c.source, ones, to + c.v, of_k + runs.of_k, runs.of_v, runs.k_width, epsilon);
      machine.kernels.rms_norm(from, weight_q, to, of_q, runs.of_q, runs.q_width, epsilon);
      machine.kernels.rms_norm(from + c.k, weight_k, to + c.k, of_k, runs.of_k, runs.k_width, epsilon);
      if (from != to && runs.of_v == 0) std::copy_n(from + c.v, c.values, to + c.v);
    }
  });
}

void run_head_norm_grad(Machine& machine, const Call& call) {
  const HeadColumns c(call.op);
  const models::NormedRuns& runs = c.runs;
  const std::int64_t n = call.op.batch * call.op.sequence;
  const float* dy = call.input(0, n * c.all);
  const float* x = call.input(1, n * c.of_x);
  const float* given_q = call.optional_input(2, runs.q_width);
  const float* given_k = call.optional_input(3, runs.k_width);
  const float* rstd = call.input(4, n * runs.count());
  float* dx = call.output(0, n * c.of_x);
  // Parameters first, because dx may overwrite dy.
  const auto weights = [&](std::int64_t first, std::int64_t statistic, std::int64_t count, std::int64_t d,
                           float* dweight) {
    machine.pool.each(d, columns_per_chunk(n * count), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = 0; i < n; ++i)
        machine.kernels.norm_weight_grad(dy + i * c.all + first + begin, x + i * c.of_x + first + begin, nullptr,
                                         rstd + i * runs.count() + statistic, dweight + begin, nullptr, count, d,
                                         end - begin);
    });
  };
  if (given_q != nullptr) weights(0, 0, runs.of_q, runs.q_width, call.output(1, runs.q_width));
  if (given_k != nullptr) weights(c.k, runs.of_q, runs.of_k, runs.k_width, call.output(2, runs.k_width));
  machine.pool.each(n, rows_per_chunk(c.all), [&](std::int64_t begin, std::int64_t end, int thread) {
    const std::int64_t most = std::max(runs.q_width, runs.k_width);
    const float* weight_q = weights_or_ones(machine, given_q, most, thread);
    const float* weight_k = weights_or_ones(machine, given_k, most, thread);
    const float* ones = runs.of_v > 0 ? weights_or_ones(machine, nullptr, most, thread) : nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      const float *dto = dy + i * c.all, *from = x + i * c.of_x;
      float* to = dx + i * c.of_x;
      const float* of_q = rstd + i * runs.count();
      const float* of_k = of_q + runs.of_q;
      if (runs.of_v > 0)
        machine.kernels.rms_norm_grad(dto + c.v, from + c.source, ones, of_k + runs.of_k, nullptr, to + c.source,
                                      runs.of_v, runs.k_width);
      machine.kernels.rms_norm_grad(dto, from, weight_q, of_q, nullptr, to, runs.of_q, runs.q_width);
      machine.kernels.rms_norm_grad(dto + c.k, from + c.k, weight_k, of_k, c.of_keys ? to + c.k : nullptr, to + c.k,
                                    runs.of_k, runs.k_width);
      if (dx != dy && runs.of_v == 0) std::copy_n(dto + c.v, c.values, to + c.v);
    }
  });
}

// The exponential is taken of no more than this, as in Hugging Face's class (XIELUActivation).
constexpr float kXieluLeast = -1e-6F, kXieluLinear = 0.5F;

float softplus_of(float x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

void run_xielu(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  const float p = softplus_of(*call.input(1, 1)), n = kXieluLinear + softplus_of(*call.input(2, 1));
  float* y = call.output(0, count);
  elementwise(machine, count, [&](std::int64_t at, std::int64_t size) {
    for (std::int64_t i = at; i < at + size; ++i) {
      const float v = x[i];
      y[i] = kXieluLinear * v + (v > 0 ? p * v * v : n * (std::expm1(std::min(v, kXieluLeast)) - v));
    }
  });
}

void run_xielu_grad(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* dy = call.input(0, count);
  const float* x = call.input(1, count);
  const float raw_p = *call.input(2, 1), raw_n = *call.input(3, 1);
  const float p = softplus_of(raw_p), n = kXieluLinear + softplus_of(raw_n);
  float* dx = call.output(0, count);
  float* dp = call.output(1, 1);
  float* dn = call.output(2, 1);
  // A sum for each piece of elements, so that sums do not depend on the number of threads.
  const std::int64_t pieces = (count + worthwhile_elements - 1) / worthwhile_elements;
  float* const sums = machine.scratch.get(0, 2 * pieces);
  const auto sum_piece = [&](std::int64_t piece) {
    const std::int64_t begin = piece * worthwhile_elements, end = std::min(count, begin + worthwhile_elements);
    double of_p = 0, of_n = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const float v = x[i], g = dy[i];
      if (v > 0) {
        of_p += static_cast<double>(g) * v * v;
        dx[i] = g * (2 * p * v + kXieluLinear);
      } else {
        const float e = std::expm1(std::min(v, kXieluLeast));
        of_n += static_cast<double>(g) * (e - v);
        dx[i] = g * (n * (v < kXieluLeast ? e : -1.0F) + kXieluLinear);
      }
    }
    sums[2 * piece] = static_cast<float>(of_p);
    sums[2 * piece + 1] = static_cast<float>(of_n);
  };
  machine.pool.each(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t piece = begin; piece < end; ++piece) sum_piece(piece);
  });
  double all_p = 0, all_n = 0;
  for (std::int64_t i = 0; i < pieces; ++i) all_p += sums[2 * i], all_n += sums[2 * i + 1];
  *dp += static_cast<float>(all_p / (1 + std::exp(-static_cast<double>(raw_p))));
  *dn += static_cast<float>(all_n / (1 + std::exp(-static_cast<double>(raw_n))));
}

void run_soft_cap(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  float* y = call.output(0, count);
  elementwise(machine, count, [&](std::int64_t at, std::int64_t size) {
    machine.kernels.cap(x + at, y + at, nullptr, size, 1.0F, static_cast<float>(call.op.cap));
  });
}

void run_add_bias(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const float* residual = call.input(0, n * c);
  const float* x = call.input(1, n * c);
  const float* bias = call.optional_input(2, c);
  float* y = call.output(0, n * c);
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t at = begin * c;
    machine.kernels.add_bias(residual + at, x + at, bias, y + at, end - begin, c);
  });
}

void run_add(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* a = call.input(0, count);
  const float* b = call.input(1, count);
  float* c = call.output(0, count);
  elementwise(machine, count,
              [&](std::int64_t at, std::int64_t size) { machine.kernels.add(a + at, b + at, c + at, size); });
}

}  // namespace orrery::exec
