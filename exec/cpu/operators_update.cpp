// Updates other than AdamW: SGD, Lion and LAMB.
#include <cmath>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {

namespace {

float decay_of(const ElementRange& range, const StepContext& context) {
  return range.decay ? static_cast<float>(context.weight_decay) : 0.0F;
}

struct MomentumRun {
  const float* gradient;
  float* parameter;
  float* momentum;  // null with plain SGD
  std::int64_t count;
};

void sgd(Machine& machine, const StepContext& context, const MomentumRun& run, float coefficient, float decay) {
  SgdFactors factors;
  factors.gradient = coefficient;
  factors.momentum = static_cast<float>(context.momentum);
  factors.rate = static_cast<float>(context.learning_rate);
  factors.nesterov = context.nesterov;
  factors.decay = decay;
  machine.kernels.sgd(run.gradient, run.parameter, run.momentum, run.count, factors);
}

void lion(const StepContext& context, const MomentumRun& run, float coefficient, float decay) {
  const auto rate = static_cast<float>(context.learning_rate), beta1 = static_cast<float>(context.beta1),
             rest1 = static_cast<float>(1 - context.beta1), beta2 = static_cast<float>(context.beta2),
             rest2 = static_cast<float>(1 - context.beta2);
  for (std::int64_t i = 0; i < run.count; ++i) {
    const float g = run.gradient[i] * coefficient;
    const float c = beta1 * run.momentum[i] + rest1 * g;
    const float sign = static_cast<float>(c > 0) - static_cast<float>(c < 0);
    run.momentum[i] = beta2 * run.momentum[i] + rest2 * g;
    run.parameter[i] -= rate * (sign + decay * run.parameter[i]);
  }
}

void adagrad(const StepContext& context, const MomentumRun& run, float coefficient, float decay) {
  const auto rate = static_cast<float>(context.learning_rate), epsilon = static_cast<float>(context.epsilon);
  for (std::int64_t i = 0; i < run.count; ++i) {
    const float g = run.gradient[i] * coefficient + decay * run.parameter[i];
    run.momentum[i] += g * g;
    run.parameter[i] -= rate * g / (std::sqrt(run.momentum[i]) + epsilon);
  }
}

}  // namespace

void run_momentum_update(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const StepContext& context = call.context;
  if (clock_of(call, 2).skips) return;
  const float* gradient = call.input(0, m);
  const float coefficient = coefficient_of(call);
  float* parameter = call.output(0, m);
  float* momentum = call.out.size() > 1 && call.out[1].data != nullptr ? call.output(1, m) : nullptr;
  const ElementRange all{0, m, false, 1};
  for (const ElementRange& range : ranges_of(call, all)) {
    const float decay = decay_of(range, context);
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      const std::int64_t at = range.begin + begin;
      const MomentumRun run{gradient + at, parameter + at, momentum == nullptr ? nullptr : momentum + at, end - begin};
      switch (call.op.rule) {
        case models::UpdateRule::sgd: return sgd(machine, context, run, coefficient, decay);
        case models::UpdateRule::lion: return lion(context, run, coefficient, decay);
        case models::UpdateRule::adagrad: return adagrad(context, run, coefficient, decay);
        case models::UpdateRule::adam: ENSURE(false, "this Adam is for tables; the other is adamw");
      }
    });
  }
  write_copy(machine, call, parameter, 2);
}

namespace {

constexpr std::int64_t direction_chunk = 4096;  // floats: half a first-level cache

}  // namespace

void run_lamb_moments(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const UpdateClock clock = clock_of(call, 3);
  if (clock.skips) return;
  const float* gradient = call.input(0, m);
  const float* parameter = call.input(2, m);
  float* first = call.output(0, m);
  float* second = call.output(1, m);
  AdamWFactors factors = adam_factors(call, clock);
  factors.gradient = coefficient_of(call);
  const ElementRange all{0, m, false, 1, 0};
  for (const ElementRange& range : ranges_of(call, all)) {
    if (range.begin == range.end) continue;
    float* norms = call.output(2, 2 * (range.norms + 1)) + 2 * range.norms;
    factors.decay = decay_of(range, call.context);
    const std::int64_t count = range.end - range.begin;
    const std::int64_t chunks = (count + direction_chunk - 1) / direction_chunk;
    // Sums by chunk, added in order, so that the number of threads does not matter.
    std::vector<double> sums(static_cast<std::size_t>(2 * chunks));
    machine.pool.each(chunks, stream_chunk / direction_chunk, [&](std::int64_t from, std::int64_t to, int thread) {
      float* direction = machine.scratch.get(thread, direction_chunk);
      for (std::int64_t chunk = from; chunk < to; ++chunk) {
        const std::int64_t at = range.begin + chunk * direction_chunk;
        const std::int64_t here = std::min(direction_chunk, range.end - at);
        machine.kernels.lamb_direction(gradient + at, parameter + at, first + at, second + at, direction, here,
                                       factors);
        sums[static_cast<std::size_t>(2 * chunk)] = machine.kernels.sum_of_squares(parameter + at, here);
        sums[static_cast<std::size_t>(2 * chunk + 1)] = machine.kernels.sum_of_squares(direction, here);
      }
    });
    double total[2] = {0, 0};
    for (std::size_t i = 0; i < sums.size(); ++i) total[i % 2] += sums[i];
    for (int i = 0; i < 2; ++i) norms[i] = static_cast<float>(static_cast<double>(norms[i]) + range.share * total[i]);
  }
}

// The trust ratio applies where weight decay does; biases and norm weights move as in Adam, as in the authors' own
// code.
void run_lamb(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const UpdateClock clock = clock_of(call, 3);
  if (clock.skips) return;
  const float* first = call.input(0, m);
  const float* second = call.input(1, m);
  float* parameter = call.output(0, m);
  AdamWFactors factors = adam_factors(call, clock);
  const ElementRange all{0, m, false, 1, 0};
  for (const ElementRange& range : ranges_of(call, all)) {
    if (range.begin == range.end) continue;
    const float* norms = call.input(2, 2 * (range.norms + 1)) + 2 * range.norms;
    const bool adapts = range.decay && norms[0] > 0 && norms[1] > 0;
    const double ratio = adapts ? std::sqrt(static_cast<double>(norms[0]) / static_cast<double>(norms[1])) : 1.0;
    const auto rate = static_cast<float>(call.context.learning_rate * ratio);
    factors.decay = decay_of(range, call.context);
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      const std::int64_t at = range.begin + begin;
      machine.kernels.lamb_step(first + at, second + at, parameter + at, end - begin, factors, rate);
    });
  }
  write_copy(machine, call, parameter, 1);
}

}  // namespace orrery::exec
