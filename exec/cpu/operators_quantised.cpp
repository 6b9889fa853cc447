// AdamW on 8-bit moments: each block is widened, updated and quantised again.
#include <cmath>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/engine/quantised.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t block = models::kQuantisedBlock;

std::uint8_t* codes(const Call& call, std::size_t index) {
  ENSURE(index < call.out.size() && call.out[index].data != nullptr && call.out[index].elements >= call.op.m,
         "adamw_8bit without its codes, operand {}", index);
  return reinterpret_cast<std::uint8_t*>(call.out[index].data);
}

/// Joins neighbours with the same decay: blocks continue across the parts of a fused parameter, however finely the
/// call's ranges divide it.
std::vector<ElementRange> joined(std::span<const ElementRange> ranges) {
  std::vector<ElementRange> out;
  for (const ElementRange& range : ranges) {
    if (!out.empty() && out.back().end == range.begin && out.back().decay == range.decay)
      out.back().end = range.end;
    else
      out.push_back(range);
  }
  return out;
}

}  // namespace

void run_adamw_8bit(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  const StepContext& context = call.context;
  const UpdateClock clock = clock_of(call, 2);
  if (clock.skips) return;
  const float* gradient = call.input(0, m);
  float* parameter = call.output(0, m);
  std::uint8_t* const first = codes(call, 1);
  std::uint8_t* const second = codes(call, 2);
  float* first_scale = call.output(3, m / block);
  float* second_scale = call.output(4, m / block);
  const AdamWFactors all = adamw_factors(call, clock);
  const ElementRange everything{0, m, false, 1};
  for (const ElementRange& range : joined(ranges_of(call, everything))) {
    ENSURE(range.begin % block == 0, "a parameter begins at {}, within a block", range.begin);
    AdamWFactors factors = all;
    factors.keep = range.decay ? static_cast<float>(1 - context.learning_rate * context.weight_decay) : 1.0F;
    const std::int64_t blocks = (range.end - range.begin + block - 1) / block;
    machine.pool.each(blocks, stream_chunk / block, [&](std::int64_t begin, std::int64_t end, int) {
      float moments[2][static_cast<std::size_t>(block)];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t at = range.begin + i * block, place = at / block;
        const auto count = static_cast<std::size_t>(std::min(block, range.end - at));
        dequantise(signed_codes(), {first + at, count}, first_scale[place], moments[0]);
        dequantise(unsigned_codes(), {second + at, count}, second_scale[place], moments[1]);
        machine.kernels.adamw(gradient + at, parameter + at, moments[0], moments[1], static_cast<std::int64_t>(count),
                              factors);
        first_scale[place] = quantise(signed_codes(), {moments[0], count}, first + at);
        second_scale[place] = quantise(unsigned_codes(), {moments[1], count}, second + at);
      }
    });
  }
  write_copy(machine, call, parameter, 5);
}

}  // namespace orrery::exec
