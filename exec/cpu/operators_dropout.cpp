// Dropout of rows, by itself and within the residual's addition; and ReLU.
#include "base/ensure.h"
#include "exec/cpu/masks.h"

namespace orrery::exec {
namespace {

/// Calls body(row, factors) for all rows.
template <class Body>
void by_row(Machine& machine, const Call& call, const Body& body) {
  ENSURE(call.op.sequence > 0, "{} draws for sequences of no length", models::name_of(call.op.kind));
  const Masks masks(call);
  machine.pool.each(call.op.n, rows_per_chunk(call.op.m), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* factors = machine.scratch.get(thread, call.op.m);
    for (std::int64_t row = begin; row < end; ++row) {
      masks.of_row(machine.kernels, row, factors);
      body(row, factors);
    }
  });
}

}  // namespace

void run_dropout(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const float* x = call.input(0, call.op.n * m);
  float* y = call.output(0, call.op.n * m);
  by_row(machine, call, [&](std::int64_t row, const float* factors) {
    for (std::int64_t i = 0; i < m; ++i) y[row * m + i] = factors[i] * x[row * m + i];
  });
}

void run_add_dropped(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const float* residual = call.input(0, call.op.n * m);
  const float* x = call.input(1, call.op.n * m);
  const float* bias = call.optional_input(2, m);
  float* y = call.output(0, call.op.n * m);
  by_row(machine, call, [&](std::int64_t row, const float* factors) {
    const float* a = residual + row * m;
    const float* b = x + row * m;
    for (std::int64_t i = 0; i < m; ++i) y[row * m + i] = a[i] + factors[i] * (bias == nullptr ? b[i] : b[i] + bias[i]);
  });
}

void run_relu(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  float* y = call.output(0, count);
  machine.pool.each(count, worthwhile_elements, [&](std::int64_t begin, std::int64_t end, int) {
    machine.kernels.relu(x + begin, y + begin, end - begin);
  });
}

void run_relu_grad(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* dy = call.input(0, count);
  const float* y = call.input(1, count);
  float* dx = call.output(0, count);
  machine.pool.each(count, worthwhile_elements, [&](std::int64_t begin, std::int64_t end, int) {
    machine.kernels.relu_grad(dy + begin, y + begin, dx + begin, end - begin);
  });
}

}  // namespace orrery::exec
