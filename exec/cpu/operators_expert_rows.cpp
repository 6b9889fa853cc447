// Operators on each row of a slot by itself: its expert's bias, and rows in fewer bits on their way to experts and back
// (models/experts.h).
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/panels.h"
#include "models/operators/fp8.h"

namespace orrery::exec {
namespace {

using models::DType;
using models::TokenCodec;

/// Consecutive rows of one expert.
struct SlotRows {
  std::int64_t expert = 0, first = 0, rows = 0;
};

/// All rows that are present, slot by slot.
std::vector<SlotRows> rows_that_are_there(const models::Op& op, const std::int32_t* counts) {
  std::vector<SlotRows> out;
  for (std::int64_t slot = 0; slot < op.slots; ++slot) {
    std::int64_t first = slot * op.capacity;
    for (std::int64_t e = 0; e < op.experts; ++e) {
      const std::int64_t rows = counts[slot * op.experts + e];
      ENSURE(rows >= 0 && first + rows <= (slot + 1) * op.capacity, "{} rows behind {} in slots of {}", rows, first,
             op.capacity);
      if (rows > 0) out.push_back({e, first, rows});
      first += rows;
    }
  }
  return out;
}

/// The bits of the largest magnitude. NaN counts as above all others, so that it is not lost.
std::uint32_t largest_bits(const float* x, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU);
  return most;
}

/// A row in 8 bits: its scales, then its codes. A value that is not finite turns all that share its scale into NaN.
void encode_row(TokenCodec codec, const float* x, std::int64_t columns, std::byte* out) {
  const std::int64_t scales = models::scales_of_row(codec, columns);
  const std::int64_t block = codec == TokenCodec::fp8 ? models::kTokenBlock : columns;
  std::byte* const codes = out + scales * static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t b = 0; b < scales; ++b) {
    const std::int64_t begin = b * block, end = std::min(columns, begin + block);
    const std::uint32_t most = largest_bits(x + begin, end - begin);
    float scale = models::fp8_descale(most, models::Fp8::e4m3);
    if (codec == TokenCodec::fp8) {
      const float up = models::fp8_scale(most, models::Fp8::e4m3);
      for (std::int64_t i = begin; i < end; ++i)
        codes[i] = static_cast<std::byte>(models::fp8_code(x[i] * up, models::Fp8::e4m3));
    } else {
      constexpr float kMostCode = 127;
      const bool finite = most < 0x7F800000U;
      if (finite) scale = std::bit_cast<float>(most) / kMostCode;
      for (std::int64_t i = begin; i < end; ++i)
        codes[i] = static_cast<std::byte>(finite && scale > 0 ? std::lround(x[i] / scale) : 0);
    }
    std::memcpy(out + b * static_cast<std::int64_t>(sizeof scale), &scale, sizeof scale);
  }
}

void decode_row(TokenCodec codec, const std::byte* from, std::int64_t columns, float* x) {
  static const std::vector<float> kValues = [] {
    std::vector<float> values;
    for (std::uint32_t code = 0; code < 256; ++code) values.push_back(models::fp8_value(code, models::Fp8::e4m3));
    return values;
  }();
  const std::int64_t scales = models::scales_of_row(codec, columns);
  const std::int64_t block = codec == TokenCodec::fp8 ? models::kTokenBlock : columns;
  const std::byte* const codes = from + scales * static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t b = 0; b < scales; ++b) {
    float scale = 0;
    std::memcpy(&scale, from + b * static_cast<std::int64_t>(sizeof scale), sizeof scale);
    for (std::int64_t i = b * block; i < std::min(columns, (b + 1) * block); ++i)
      x[i] = scale * (codec == TokenCodec::fp8 ? kValues[static_cast<std::size_t>(codes[i])]
                                               : static_cast<float>(static_cast<std::int8_t>(codes[i])));
  }
}

/// Calls body(row, its values in fp32) for each row present, of op.m values.
template <class Body>
void each_row(Machine& machine, const Call& call, const Body& body) {
  const models::Op& op = call.op;
  const std::vector<SlotRows> there = rows_that_are_there(op, call.ids(1, op.slots * op.experts));
  for (const SlotRows& some : there)
    machine.pool.each(some.rows, rows_per_chunk(op.m), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* const room = machine.scratch.get(thread, op.m);
      for (std::int64_t row = some.first + begin; row < some.first + end; ++row) body(row, room);
    });
}

}  // namespace

void run_expert_bias(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const bool two = call.in.size() > 3 && call.in[3].data != nullptr;
  const std::int64_t m = op.m, sides = two ? 2 : 1, all = op.slots * op.capacity * sides * m;
  static_cast<void>(call.input(0, all));
  static_cast<void>(call.output(0, all));
  const auto scale = static_cast<float>(op.scale);
  for (const SlotRows& some : rows_that_are_there(op, call.ids(2, op.slots * op.experts)))
    machine.pool.each(some.rows, rows_per_chunk(sides * m), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* const bias = machine.scratch.get(thread, 2 * sides * m);
      float* const x = bias + sides * m;
      for (std::int64_t side = 0; side < sides; ++side)
        load_panel(machine.kernels, {call.in[side == 0 ? 1 : 3]}, some.expert * m, m, 1, m, bias + side * m);
      for (std::int64_t row = some.first + begin; row < some.first + end; ++row) {
        load_panel(machine.kernels, {call.in[0]}, row * sides * m, sides * m, 1, sides * m, x);
        for (std::int64_t i = 0; i < sides * m; ++i) x[i] += scale * bias[i];
        store_panel(machine.kernels, x, call.out[0], row * sides * m, sides * m, 1, sides * m);
      }
    });
}

void run_expert_bias_grad(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const bool two = call.out.size() > 1 && call.out[1].data != nullptr;
  const std::int64_t m = op.m, sides = two ? 2 : 1;
  static_cast<void>(call.input(0, op.slots * op.capacity * sides * m));
  const std::vector<SlotRows> there = rows_that_are_there(op, call.ids(1, op.slots * op.experts));
  // One thread handles an expert, so that its rows are summed in one order for any number of threads.
  machine.pool.each(op.experts, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const sum = machine.scratch.get(thread, 2 * sides * m);
    float* const dy = sum + sides * m;
    for (std::int64_t expert = begin; expert < end; ++expert) {
      for (std::int64_t side = 0; side < sides; ++side)
        load_panel(machine.kernels, {call.out[static_cast<std::size_t>(side)]}, expert * m, m, 1, m, sum + side * m);
      for (const SlotRows& some : there) {
        if (some.expert != expert) continue;
        for (std::int64_t row = some.first; row < some.first + some.rows; ++row) {
          load_panel(machine.kernels, {call.in[0]}, row * sides * m, sides * m, 1, sides * m, dy);
          for (std::int64_t i = 0; i < sides * m; ++i) sum[i] += dy[i];
        }
      }
      for (std::int64_t side = 0; side < sides; ++side)
        store_panel(machine.kernels, sum + side * m, call.out[static_cast<std::size_t>(side)], expert * m, m, 1, m);
    }
  });
}

void run_encode_rows(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t all = op.slots * op.capacity;
  static_cast<void>(call.input(0, all * op.m));
  const Operand& to = call.out[0];
  ENSURE(to.elements >= all * op.k && to.dtype == models::dtype_of(op.codec), "{} values in {} for {} rows of {}",
         to.elements, models::name_of(to.dtype), all, op.k);
  each_row(machine, call, [&](std::int64_t row, float* x) {
    load_panel(machine.kernels, {call.in[0]}, row * op.m, op.m, 1, op.m, x);
    if (op.codec == TokenCodec::bf16)
      store_panel(machine.kernels, x, to, row * op.k, op.k, 1, op.k);
    else
      encode_row(op.codec, x, op.m, to.data + row * op.k);
  });
}

void run_decode_rows(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t all = op.slots * op.capacity;
  static_cast<void>(call.output(0, all * op.m));
  const Operand& from = call.in[0];
  ENSURE(from.elements >= all * op.k && from.dtype == models::dtype_of(op.codec), "{} values in {} for {} rows of {}",
         from.elements, models::name_of(from.dtype), all, op.k);
  each_row(machine, call, [&](std::int64_t row, float* x) {
    if (op.codec == TokenCodec::bf16)
      load_panel(machine.kernels, {from}, row * op.k, op.k, 1, op.k, x);
    else
      decode_row(op.codec, from.data + row * op.k, op.m, x);
    store_panel(machine.kernels, x, call.out[0], row * op.m, op.m, 1, op.m);
  });
}

}  // namespace orrery::exec
