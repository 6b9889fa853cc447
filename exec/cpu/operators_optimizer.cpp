// Operators on flat ranges: clearing, copying, adding, the gradient's norm and AdamW.
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {

std::span<const ElementRange> ranges_of(const Call& call, const ElementRange& all) {
  if (call.ranges.empty()) return {&all, 1};
  for (const ElementRange& range : call.ranges)
    ENSURE(0 <= range.begin && range.begin <= range.end && range.end <= call.op.m, "range {}..{} of {} elements",
           range.begin, range.end, call.op.m);
  return call.ranges;
}

void run_fill_zero(Machine& machine, const Call& call) {
  const std::int64_t size = models::size_of(call.op.dtype);
  ENSURE(!call.out.empty() && call.out[0].data != nullptr && call.out[0].elements >= call.op.m,
         "fill_zero of {} elements", call.op.m);
  std::byte* x = call.out[0].data;
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(x + begin * size, 0, static_cast<std::size_t>((end - begin) * size));
  });
}

void run_copy(Machine& machine, const Call& call) {
  const std::int64_t size = models::size_of(call.op.dtype);
  ENSURE(!call.in.empty() && !call.out.empty() && call.in[0].elements >= call.op.m &&
             call.out[0].elements >= call.op.m && call.in[0].data != nullptr && call.out[0].data != nullptr,
         "copy of {} elements", call.op.m);
  const std::byte* x = call.in[0].data;
  std::byte* y = call.out[0].data;
  if (x == y) return;
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(y + begin * size, x + begin * size, static_cast<std::size_t>((end - begin) * size));
  });
}

void run_accumulate(Machine& machine, const Call& call) {
  const float* x = call.input(0, call.op.m);
  float* y = call.output(0, call.op.m);
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    machine.kernels.add(y + begin, x + begin, y + begin, end - begin);
  });
}

void run_norm_squared(Machine& machine, const Call& call) {
  const float* gradient = call.input(0, call.op.m);
  float* total = call.output(0, 1);
  const ElementRange all{0, call.op.m, false, 1};
  double sum = 0;
  for (const ElementRange& range : ranges_of(call, all)) {
    if (range.norm_weight == 0) continue;
    const std::int64_t count = range.end - range.begin;
    const std::int64_t chunks = (count + stream_chunk - 1) / stream_chunk;
    // Partial sums by chunk, added in order, so that the number of threads does not matter. Each takes the room of two
    // floats.
    double* partial = reinterpret_cast<double*>(machine.scratch.get(0, 2 * chunks));
    machine.pool.each(chunks, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        const std::int64_t begin = range.begin + chunk * stream_chunk;
        partial[chunk] = machine.kernels.sum_of_squares(gradient + begin, std::min(stream_chunk, range.end - begin));
      }
    });
    double of_range = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) of_range += partial[chunk];
    sum += range.norm_weight * of_range;
  }
  total[0] = static_cast<float>(static_cast<double>(total[0]) + sum);
}

// Pascanu et al., "On the difficulty of training recurrent neural networks" (arXiv:1211.5063), algorithm 1; the 1e-6 is
// that of PyTorch's clip_grad_norm_, so that runs can be compared.
void run_clip_coefficient(Machine&, const Call& call) {
  constexpr double guard = 1e-6;
  const float* scaling = call.optional_input(1, 4);
  const double scale = scaling == nullptr ? 1.0 : static_cast<double>(scaling[0]);
  const double norm = std::sqrt(static_cast<double>(call.input(0, 1)[0])) / scale;
  const double clip = call.context.clip_norm;
  const double coefficient = clip / (norm + guard);
  call.output(0, 1)[0] = static_cast<float>(norm);
  // Written so that a NaN norm stays visible in the coefficient.
  call.output(1, 1)[0] = static_cast<float>((clip > 0 && !(coefficient >= 1) ? coefficient : 1.0) / scale);
}

// A sum of squares in fp32 is finite if its terms are: squares of fp16 gradients are below 2^32.
void run_overflow(Machine&, const Call& call) {
  call.output(0, 1)[0] = std::isfinite(call.input(0, 1)[0]) ? 0.0F : 1.0F;
}

void run_loss_scale(Machine&, const Call& call) {
  float* scaling = call.output(0, 4);
  enum { scale, since, skipped, skips };
  const auto factor = static_cast<float>(call.context.scale_factor);
  if (scaling[skips] != 0) {
    scaling[scale] = std::max(1.0F, scaling[scale] / factor);
    scaling[since] = 0;
    scaling[skipped] += 1;
    return;
  }
  scaling[since] += 1;
  if (scaling[since] < static_cast<float>(call.context.scale_interval)) return;
  scaling[scale] *= factor;
  scaling[since] = 0;
}

UpdateClock clock_of(const Call& call, std::size_t index) {
  const float* scaling = call.optional_input(index, 4);
  UpdateClock clock;
  clock.skips = scaling != nullptr && scaling[3] != 0;
  clock.time = static_cast<double>(call.context.step + 1) - (scaling == nullptr ? 0 : static_cast<double>(scaling[2]));
  return clock;
}

float coefficient_of(const Call& call) {
  const float* coefficient = call.optional_input(1, 1);
  return coefficient == nullptr ? 1.0F : coefficient[0];
}

AdamWFactors adam_factors(const Call& call, const UpdateClock& clock) {
  const StepContext& context = call.context;
  AdamWFactors factors;
  factors.beta1 = static_cast<float>(context.beta1);
  factors.beta2 = static_cast<float>(context.beta2);
  factors.rest1 = static_cast<float>(1 - context.beta1);
  factors.rest2 = static_cast<float>(1 - context.beta2);
  factors.step = static_cast<float>(1 / (1 - std::pow(context.beta1, clock.time)));
  factors.denominator = static_cast<float>(1 / std::sqrt(1 - std::pow(context.beta2, clock.time)));
  factors.epsilon = static_cast<float>(context.epsilon);
  return factors;
}

AdamWFactors adamw_factors(const Call& call, const UpdateClock& clock) {
  AdamWFactors factors = adam_factors(call, clock);
  factors.gradient = coefficient_of(call);
  factors.step = static_cast<float>(call.context.learning_rate / (1 - std::pow(call.context.beta1, clock.time)));
  return factors;
}

void write_copy(Machine& machine, const Call& call, const float* parameter, std::size_t index) {
  if (call.out.size() <= index || call.out[index].data == nullptr) return;
  float* copy = call.output(index, call.op.m);
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(copy + begin, parameter + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

void run_adamw(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const StepContext& context = call.context;
  const UpdateClock clock = clock_of(call, 2);
  float* parameter = call.output(0, m);
  // A skipped step still writes the compute copy: in another memory it has no older values to keep.
  if (clock.skips) return write_copy(machine, call, parameter, 3);
  const float* gradient = call.input(0, m);
  float* first = call.output(1, m);
  float* second = call.output(2, m);
  AdamWFactors factors = adamw_factors(call, clock);
  const ElementRange all{0, m, false, 1};
  for (const ElementRange& range : ranges_of(call, all)) {
    factors.keep = range.decay ? static_cast<float>(1 - context.learning_rate * context.weight_decay) : 1.0F;
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      const std::int64_t at = range.begin + begin;
      machine.kernels.adamw(gradient + at, parameter + at, first + at, second + at, end - begin, factors);
    });
  }
  write_copy(machine, call, parameter, 3);
}

}  // namespace orrery::exec
