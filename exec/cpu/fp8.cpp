// Operands in 8 bits: finds their largest magnitude, derives a power of two, writes codes with the inner dimension
// last.
#include "exec/cpu/fp8.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

using models::DType;
using models::Fp8;

/// The largest magnitude of bf16 values, as the bits of an fp32. Magnitudes sort alike as bits and as values, with
/// those that are not finite above all others.
std::uint32_t largest_bits(Machine& machine, const std::uint16_t* x, std::int64_t count) {
  std::atomic<std::uint32_t> all{0};
  machine.pool.each(count, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint16_t most = 0;
    for (std::int64_t i = begin; i < end; ++i) most = std::max(most, static_cast<std::uint16_t>(x[i] & 0x7FFFU));
    std::uint32_t known = all.load();
    while (known < most && !all.compare_exchange_weak(known, most)) {
    }
  });
  return all.load() << 16U;
}

/// Rows of `to` are the rows of x, or with `transposed` its columns.
void encode(Machine& machine, const std::uint16_t* x, std::int64_t rows, std::int64_t columns, bool transposed,
            float scale, Fp8 kind, std::uint8_t* to) {
  // A table of every bf16 value's code, so that rows of x need only look-ups.
  constexpr std::int64_t kValues = std::int64_t{1} << 16;
  std::vector<std::uint8_t> code(rows * columns > 4 * kValues ? kValues : 0);
  const auto code_of = [&](std::uint16_t bits) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    return static_cast<std::uint8_t>(models::fp8_code(value * scale, kind));
  };
  for (std::uint32_t bits = 0; bits < code.size(); ++bits) code[bits] = code_of(static_cast<std::uint16_t>(bits));
  const auto look_up = [&](std::uint16_t bits) { return code.empty() ? code_of(bits) : code[bits]; };
  constexpr std::int64_t kLine = 64;  // rows of `to` that one column of x is written to in one go
  const std::int64_t chunk = transposed ? std::max(kLine, rows_per_chunk(columns)) : rows_per_chunk(columns);
  machine.pool.each(rows, chunk, [&](std::int64_t begin, std::int64_t end, int) {
    if (!transposed) {
      for (std::int64_t i = begin * columns; i < end * columns; ++i) to[i] = look_up(x[i]);
      return;
    }
    for (std::int64_t first = begin; first < end; first += kLine)
      for (std::int64_t column = 0; column < columns; ++column)
        for (std::int64_t row = first; row < std::min(first + kLine, end); ++row)
          to[row * columns + column] = look_up(x[column * rows + row]);
  });
}

}  // namespace

RoundedOperands round_operands(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const models::Fp8Casts casts(op.m, op.n, op.k);
  ENSURE(models::fits_fp8(op.m, op.n, op.k), "an fp8 product of {} x {} x {}", op.m, op.n, op.k);
  ENSURE(call.out.size() > 1 && call.out[1].data != nullptr && call.out[1].elements >= casts.bytes,
         "an fp8 product without room for its rounded operands");
  std::byte* const room = call.out[1].data;
  std::memset(room, 0, models::Fp8Casts::kHeader);
  RoundedOperands out;
  struct Side {
    const Operand& from;
    std::int64_t rows, first;
    bool transposed;
    Fp8 kind;
    Operand& to;
    std::array<float, 256>& values;
  };
  const Side sides[] = {{call.in[0], op.m, casts.a, op.trans_a, models::first_format(op), out.a, out.a_values},
                        {call.in[1], op.n, casts.b, !op.trans_b, Fp8::e4m3, out.b, out.b_values}};
  std::int64_t slot = 0;
  for (const Side& side : sides) {
    ENSURE(side.from.dtype == DType::bf16, "an fp8 product of values in {}", models::name_of(side.from.dtype));
    const auto* x = reinterpret_cast<const std::uint16_t*>(side.from.data);
    const std::uint32_t largest = largest_bits(machine, x, side.rows * op.k);
    const float descale = models::fp8_descale(largest, side.kind);
    std::memcpy(room + models::Fp8Casts::kMaxima + slot, &largest, sizeof(largest));
    std::memcpy(room + models::Fp8Casts::kDescales + slot, &descale, sizeof(descale));
    slot += 4;
    encode(machine, x, side.rows, op.k, side.transposed, models::fp8_scale(largest, side.kind), side.kind,
           reinterpret_cast<std::uint8_t*>(room + side.first));
    side.to = {room + side.first, side.rows * op.k, DType::fp8};
    for (std::uint32_t code = 0; code < side.values.size(); ++code)
      side.values[code] = models::fp8_value(code, side.kind) * descale;
  }
  return out;
}

}  // namespace orrery::exec
