// Values in fewer bits: 16-bit gradients and their sums, PowerSGD's small matrices, Gist's encodings. Operands keep
// their own types, and are widened a little at a time to compute.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/engine/half.h"
#include "models/encoding.h"

namespace orrery::exec {
namespace {

using models::DType;

constexpr std::int64_t kAtOnce = 1024;
using Piece = std::array<float, kAtOnce>;

const Operand& operand(const Call& call, std::span<const Operand> list, std::int64_t elements) {
  ENSURE(!list.empty() && list[0].data != nullptr && list[0].elements >= elements, "{} of {} elements",
         models::name_of(call.op.kind), elements);
  return list[0];
}

void load(const Machine& machine, const Operand& from, std::int64_t first, std::int64_t count, float* to) {
  if (from.dtype == DType::fp32) {
    std::memcpy(to, from.data + first * models::size_of(from.dtype), static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  ENSURE(is_16_bit(from.dtype), "values of type {}", models::name_of(from.dtype));
  const auto* stored = reinterpret_cast<const std::uint16_t*>(from.data) + first;
  (from.dtype == DType::bf16 ? machine.kernels.from_bf16 : machine.kernels.from_fp16)(stored, to, count);
}

void store(const Machine& machine, const float* from, std::int64_t first, std::int64_t count, const Operand& to) {
  if (to.dtype == DType::fp32) {
    std::memcpy(to.data + first * models::size_of(to.dtype), from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  ENSURE(is_16_bit(to.dtype), "values of type {}", models::name_of(to.dtype));
  auto* stored = reinterpret_cast<std::uint16_t*>(to.data) + first;
  (to.dtype == DType::bf16 ? machine.kernels.to_bf16 : machine.kernels.to_fp16)(from, stored, count);
}

/// body(first, count) over runs of at most kAtOnce elements.
template <class Body>
void by_piece(Machine& machine, std::int64_t elements, const Body& body) {
  machine.pool.each(elements, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t at = begin; at < end; at += kAtOnce) body(at, std::min(kAtOnce, end - at));
  });
}

std::uint16_t* halves(const Operand& operand) {
  return reinterpret_cast<std::uint16_t*>(operand.data);
}

constexpr std::uint32_t kTenBits = 0x3FF;
constexpr int kTen = 10;

/// body(first word, words): runs whose values fit a piece.
template <class Body>
void by_words(Machine& machine, std::int64_t elements, const Body& body) {
  constexpr std::int64_t kWords = kAtOnce / models::kTensToAWord;
  const std::int64_t words = (elements + models::kTensToAWord - 1) / models::kTensToAWord;
  machine.pool.each(words, stream_chunk / models::kTensToAWord, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t at = begin; at < end; at += kWords) body(at, std::min(kWords, end - at));
  });
}

}  // namespace

void run_convert(Machine& machine, const Call& call) {
  const Operand& x = operand(call, call.in, call.op.m);
  const Operand& y = operand(call, call.out, call.op.m);
  by_piece(machine, call.op.m, [&](std::int64_t at, std::int64_t count) {
    Piece values;
    load(machine, x, at, count, values.data());
    store(machine, values.data(), at, count, y);
  });
}

void run_sum_pieces(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m, n = call.op.n;
  const Operand& pieces = operand(call, call.in, n * m);
  const Operand& y = operand(call, call.out, m);
  by_piece(machine, m, [&](std::int64_t at, std::int64_t count) {
    Piece sum, one;
    load(machine, pieces, at, count, sum.data());
    for (std::int64_t i = 1; i < n; ++i) {
      load(machine, pieces, i * m + at, count, one.data());
      machine.kernels.add(sum.data(), one.data(), sum.data(), count);
    }
    if (call.op.accumulate) {
      load(machine, y, at, count, one.data());
      machine.kernels.add(one.data(), sum.data(), sum.data(), count);
    }
    store(machine, sum.data(), at, count, y);
  });
}

namespace {

/// A matrix with few columns and many rows.
struct Columns {
  float* x;
  std::int64_t rows, columns;

  [[nodiscard]] double dot(std::int64_t a, std::int64_t b) const {
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      sum += static_cast<double>(x[r * columns + a]) * static_cast<double>(x[r * columns + b]);
    return sum;
  }
  /// Removes the columns before `c` from it and scales it to length 1. Returns false if hardly anything is left. Does
  /// so twice: if they nearly span the column, rounding leaves as much along them as beside them.
  [[nodiscard]] bool settle(std::int64_t c) const {
    constexpr double kNothing = 1e-6, kMost = 0.5;  // of the column's earlier length: a few units of fp32; half
    for (const double least : {kNothing, kMost}) {
      const double before = std::sqrt(dot(c, c));
      for (std::int64_t other = 0; other < c; ++other) {
        const auto along = static_cast<float>(dot(c, other));
        for (std::int64_t r = 0; r < rows; ++r) x[r * columns + c] -= along * x[r * columns + other];
      }
      const double length = std::sqrt(dot(c, c));
      if (length <= least * before) return false;
      const auto factor = static_cast<float>(1 / length);  // NaN stays visible
      for (std::int64_t r = 0; r < rows; ++r) x[r * columns + c] *= factor;
    }
    return true;
  }
};

}  // namespace

// Modified Gram-Schmidt, as PowerSGD's authors use it (Vogels et al. 2019, section 3). A column that the ones before it
// span would be noise at length 1; or it would be zero, and remain zero for ever, since the next step starts from this
// one's result. Instead it becomes the first unit vector that they do not span.
void run_orthogonalise(Machine&, const Call& call) {
  const Columns p{call.output(0, call.op.m * call.op.n), call.op.m, call.op.n};
  ENSURE(p.columns <= p.rows, "{} orthonormal columns of {} values", p.columns, p.rows);
  for (std::int64_t c = 0; c < p.columns; ++c) {
    bool settled = p.settle(c);
    for (std::int64_t unit = 0; !settled && unit < p.rows; ++unit) {
      for (std::int64_t r = 0; r < p.rows; ++r) p.x[r * p.columns + c] = r == unit ? 1.0F : 0.0F;
      settled = p.settle(c);
    }
  }
}

void run_add_scaled(Machine& machine, const Call& call) {
  const float* x = call.input(0, call.op.m);
  float* y = call.output(0, call.op.m);
  const auto scale = static_cast<float>(call.op.scale);
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += scale * x[i];
  });
}

void run_encode(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m, bits = call.op.k;
  const models::Format format = models::format_of(bits);
  const Operand& x = operand(call, call.in, m);
  const Operand& y = operand(call, call.out, models::encoded_bytes(m, bits));
  if (bits == kTen) {
    by_words(machine, m, [&](std::int64_t first, std::int64_t words) {
      Piece values{};
      const std::int64_t at = first * models::kTensToAWord;
      load(machine, x, at, std::min(words * models::kTensToAWord, m - at), values.data());
      auto* out = reinterpret_cast<std::uint32_t*>(y.data) + first;
      for (std::int64_t w = 0; w < words; ++w) {
        const float* three = values.data() + w * models::kTensToAWord;
        out[w] = models::encoded(three[0], format) | models::encoded(three[1], format) << kTen |
                 models::encoded(three[2], format) << 2 * kTen;
      }
    });
    return;
  }
  by_piece(machine, m, [&](std::int64_t at, std::int64_t count) {
    Piece values;
    load(machine, x, at, count, values.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t code = models::encoded(values[static_cast<std::size_t>(i)], format);
      if (bits == 8)
        y.data[at + i] = static_cast<std::byte>(code);
      else
        halves(y)[at + i] = static_cast<std::uint16_t>(code);
    }
  });
}

void run_decode(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m, bits = call.op.k;
  const models::Format format = models::format_of(bits);
  const Operand& x = operand(call, call.in, models::encoded_bytes(m, bits));
  const Operand& y = operand(call, call.out, m);
  if (bits == kTen) {
    by_words(machine, m, [&](std::int64_t first, std::int64_t words) {
      Piece values;
      const auto* in = reinterpret_cast<const std::uint32_t*>(x.data) + first;
      for (std::int64_t w = 0; w < words; ++w)
        for (int i = 0; i < models::kTensToAWord; ++i)
          values[static_cast<std::size_t>(w * models::kTensToAWord + i)] =
              models::decoded(in[w] >> i * kTen & kTenBits, format);
      const std::int64_t at = first * models::kTensToAWord;
      store(machine, values.data(), at, std::min(words * models::kTensToAWord, m - at), y);
    });
    return;
  }
  by_piece(machine, m, [&](std::int64_t at, std::int64_t count) {
    Piece values;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t code =
          bits == 8 ? static_cast<std::uint32_t>(x.data[at + i]) : static_cast<std::uint32_t>(halves(x)[at + i]);
      values[static_cast<std::size_t>(i)] = models::decoded(code, format);
    }
    store(machine, values.data(), at, count, y);
  });
}

}  // namespace orrery::exec
