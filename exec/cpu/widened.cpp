// Operators on 16-bit tensors: widens operands to fp32, runs the operator unchanged, and rounds its results. Matrix
// products do this panel by panel (exec/cpu/gemm_panels.cpp).
#include <algorithm>
#include <array>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/engine/half.h"
#include "models/operators/operators.h"

namespace orrery::exec {
namespace {

using models::DType;
using models::OpKind;

constexpr std::size_t kMostOperands = 8;  // on either side

void load(Machine& machine, const Operand& from, float* to) {
  const auto* stored = reinterpret_cast<const std::uint16_t*>(from.data);
  const auto convert = from.dtype == DType::bf16 ? machine.kernels.from_bf16 : machine.kernels.from_fp16;
  machine.pool.each(from.elements, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    convert(stored + begin, to + begin, end - begin);
  });
}

void store(Machine& machine, const float* from, const Operand& to) {
  auto* stored = reinterpret_cast<std::uint16_t*>(to.data);
  const auto convert = to.dtype == DType::bf16 ? machine.kernels.to_bf16 : machine.kernels.to_fp16;
  machine.pool.each(to.elements, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    convert(from + begin, stored + begin, end - begin);
  });
}

/// Parameters without masters: rounded at random, by tensor, element and step.
void store_randomly(Machine& machine, const float* from, const Operand& to, std::span<const ElementRange> ranges,
                    const StepContext& context) {
  ENSURE(to.dtype == DType::bf16, "stochastic rounding to {}", models::name_of(to.dtype));
  auto* stored = reinterpret_cast<std::uint16_t*>(to.data);
  constexpr std::int64_t kAtOnce = 1024;
  for (const ElementRange& range : ranges) {
    const RandomBits random(context.seed, range.stream, context.step);
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      std::array<std::uint16_t, kAtOnce> bits;
      for (std::int64_t at = begin; at < end; at += kAtOnce) {
        const std::int64_t count = std::min(kAtOnce, end - at);
        random.draw(range.logical + at, {bits.data(), static_cast<std::size_t>(count)});
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t element = range.begin + at + i;
          stored[element] = to_bf16_randomly(from[element], bits[static_cast<std::size_t>(i)]);
        }
      }
    });
  }
}

}  // namespace

bool has_16_bit(const Call& call) {
  const auto narrow = [](const Operand& o) { return o.data != nullptr && is_16_bit(o.dtype); };
  return std::any_of(call.in.begin(), call.in.end(), narrow) || std::any_of(call.out.begin(), call.out.end(), narrow);
}

void run_widened(Machine& machine, const Call& call, const std::function<void(const Call&)>& run) {
  if (call.op.kind == OpKind::matmul) return run_matmul_by_panels(machine, call);
  std::array<Operand, kMostOperands> in, out;
  ENSURE(call.in.size() <= kMostOperands && call.out.size() <= kMostOperands, "too many operands");
  const auto widen_one = [&](const Operand& narrow, std::size_t slot, bool loads) {
    if (narrow.data == nullptr || !is_16_bit(narrow.dtype)) return narrow;
    float* wide = machine.widened.get(static_cast<int>(slot), narrow.elements);
    if (loads) load(machine, narrow, wide);
    return Operand{reinterpret_cast<std::byte*>(wide), narrow.elements, DType::fp32};
  };
  for (std::size_t i = 0; i < call.in.size(); ++i) in[i] = widen_one(call.in[i], i, true);
  for (std::size_t i = 0; i < call.out.size(); ++i)
    out[i] = widen_one(call.out[i], kMostOperands + i, !models::only_writes(call.op, i));
  run({call.op, {in.data(), call.in.size()}, {out.data(), call.out.size()}, call.ranges, call.context});
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    if (call.out[i].data == nullptr || !is_16_bit(call.out[i].dtype)) continue;
    const auto* wide = reinterpret_cast<const float*>(out[i].data);
    if (i == 0 && call.op.stochastic)
      store_randomly(machine, wide, call.out[i], call.ranges, call.context);
    else
      store(machine, wide, call.out[i]);
  }
}

}  // namespace orrery::exec
