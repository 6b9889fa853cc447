// Products of mixtures of experts, and moving tokens' rows to experts and back. Rows, weights and results may each be
// fp32 or 16 bits; they are widened row by row or panel by panel, so that missing rows cost nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/ensure.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/panels.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

using models::DType;

constexpr std::int64_t kColumns = 256;  // of the result, per thread at a time; independent of the number of threads
constexpr std::int64_t kRows = 256;     // widened at a time

/// Row `row` of `columns` values: in place, or widened to fp32 in `room`.
const float* row_of(const Kernels& kernels, const Operand& from, std::int64_t row, std::int64_t columns, float* room) {
  if (from.dtype == DType::fp32) return reinterpret_cast<const float*>(from.data) + row * columns;
  load_panel(kernels, {from}, row * columns, columns, 1, columns, room);
  return room;
}

// tf32 works as in other products; 8-bit codes would need a scale for each expert's rows.
void refuse_fp8(const models::Op& op, DType rows) {
  if (op.rounded && rows != DType::fp32)
    throw Failure(
        "CPU ranks cannot compute experts' products in fp8 yet, only plan and price them: use precision: bf16",
        FailureKind::environment);
}

void check(const Call& call, std::size_t index, std::int64_t elements) {
  static_cast<void>(call.input(index, elements));
}

/// A slot's rows for one expert.
struct ExpertRows {
  std::int64_t expert = 0, first = 0, rows = 0;
};

/// All that have rows, grouped by expert: where each expert's begin and end.
struct Segments {
  std::vector<ExpertRows> all;
  std::vector<std::size_t> begin;  ///< has one entry more than experts
};

Segments segments_of(const models::Op& op, const std::int32_t* counts) {
  Segments result;
  std::vector<std::int64_t> next(static_cast<std::size_t>(op.slots));  // next row of each slot
  for (std::int64_t e = 0; e < op.experts; ++e) {
    result.begin.push_back(result.all.size());
    for (std::int64_t slot = 0; slot < op.slots; ++slot) {
      const std::int64_t rows = counts[slot * op.experts + e];
      std::int64_t& first = next[static_cast<std::size_t>(slot)];
      ENSURE(rows >= 0 && first + rows <= op.capacity, "{} rows behind {} in a slot of {}", rows, first, op.capacity);
      if (rows > 0) result.all.push_back({e, slot * op.capacity + first, rows});
      first += rows;
    }
  }
  result.begin.push_back(result.all.size());
  return result;
}

const float* fp32(const Operand& from) {
  return reinterpret_cast<const float*>(from.data);
}

/// The product of one segment's rows with one matrix: columns [column, column + columns) of the result.
struct Piece {
  bool trans_b = false;
  std::int64_t k = 0, n = 0;             // of the matrix
  std::int64_t a_column = 0, lda = 0;    // where the rows' columns begin, and the row length
  std::int64_t c_column = 0, ldc = 0;    // of the result, likewise
  std::int64_t column = 0, columns = 0;  // of the matrix
  std::int64_t matrix = 0;               // its first element
  bool adds = false;
};

/// All operands are fp32 and used in place.
Product product_of(const ExpertRows& s, const Piece& p, const float* a, const float* w, float* c) {
  return {false,
          p.trans_b,
          p.adds,
          s.rows,
          p.columns,
          p.k,
          a + s.first * p.lda + p.a_column,
          p.lda,
          w + p.matrix + (p.trans_b ? p.column * p.k : p.column),
          p.trans_b ? p.k : p.n,
          c + s.first * p.ldc + p.c_column + p.column,
          p.ldc};
}

/// Values of scratch memory that a product of `m` rows needs.
std::int64_t room_of(const Kernels& kernels, std::int64_t m, std::int64_t k) {
  return kernels.product != nullptr ? kernels.product_room({.m = m, .k = k}) : 0;
}

void multiply(const Kernels& kernels, const Product& p, float* room) {
  if (kernels.product != nullptr) return kernels.product(p, room);
  gemm(p.trans_a, p.trans_b, p.m, p.n, p.k, 1.0F, p.a, p.lda, p.b, p.ldb, p.adds ? 1.0F : 0.0F, p.c, p.ldc);
}

/// Columns of matrices that are used in place which a thread takes at a time: all, if it is alone and no division
/// changes a bit, since each part packs the rows again.
std::int64_t columns_at_once(const Machine& machine, bool plain, std::int64_t columns) {
  const bool whole = plain && machine.kernels.product != nullptr && machine.pool.threads() == 1;
  return whole ? std::max(columns, kColumns) : kColumns;
}

}  // namespace

void run_dispatch(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, m = op.m, chosen = op.chosen;
  check(call, 0, n * m);
  const std::int32_t* place = call.ids(1, n * chosen);
  const bool weighted = call.in.size() > 2 && call.in[2].data != nullptr;
  if (weighted) check(call, 2, n * chosen);
  static_cast<void>(call.output(0, op.slots * op.capacity * m));
  const Operand &x = call.in[0], &rows = call.out[0];
  const Operand weights = weighted ? call.in[2] : Operand{};
  const std::int64_t size = models::size_of(x.dtype);
  machine.pool.each(n, rows_per_chunk(m * chosen), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const room = machine.scratch.get(thread, 2 * m + chosen);
    float* const scaled = room + m;
    for (std::int64_t row = begin; row < end; ++row) {
      if (!weighted && x.dtype == rows.dtype) {
        for (std::int64_t i = row * chosen; i < (row + 1) * chosen; ++i)
          if (place[i] >= 0)
            std::memcpy(rows.data + place[i] * m * size, x.data + row * m * size, static_cast<std::size_t>(m * size));
        continue;
      }
      const float* const from = row_of(machine.kernels, x, row, m, room);
      const float* const weight = weighted ? row_of(machine.kernels, weights, row, chosen, scaled + m) : nullptr;
      for (std::int64_t i = 0; i < chosen; ++i) {
        const std::int64_t to = place[row * chosen + i];
        if (to < 0) continue;
        const float factor = weighted ? weight[i] : 1.0F;
        for (std::int64_t c = 0; c < m; ++c) scaled[c] = factor * from[c];
        store_panel(machine.kernels, scaled, rows, to * m, m, 1, m);
      }
    }
  });
}

void run_combine(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, m = op.m, chosen = op.chosen;
  check(call, 0, op.slots * op.capacity * m);
  const std::int32_t* place = call.ids(1, n * chosen);
  const bool weighted = call.in.size() > 2 && call.in[2].data != nullptr;
  if (weighted) check(call, 2, n * chosen);
  static_cast<void>(call.output(0, n * m));
  const Operand weights = weighted ? call.in[2] : Operand{};
  machine.pool.each(n, rows_per_chunk(m * chosen), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const room = machine.scratch.get(thread, 2 * m + chosen);
    float* const sum = room + m;
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const weight = weighted ? row_of(machine.kernels, weights, row, chosen, sum + m) : nullptr;
      std::fill_n(sum, m, 0.0F);
      for (std::int64_t i = 0; i < chosen; ++i) {
        const std::int64_t at = place[row * chosen + i];
        if (at < 0) continue;
        const float* const from = row_of(machine.kernels, call.in[0], at, m, room);
        const float factor = weighted ? weight[i] : 1.0F;
        for (std::int64_t c = 0; c < m; ++c) sum[c] += factor * from[c];
      }
      store_panel(machine.kernels, sum, call.out[0], row * m, m, 1, m);
    }
  });
}

void run_combine_weight_grad(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, m = op.m, chosen = op.chosen;
  check(call, 0, n * m);
  check(call, 1, op.slots * op.capacity * m);
  const std::int32_t* place = call.ids(2, n * chosen);
  static_cast<void>(call.output(0, n * chosen));
  machine.pool.each(n, rows_per_chunk(m * chosen), [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const room = machine.scratch.get(thread, 2 * m + chosen);
    float* const dweights = room + 2 * m;
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const dy = row_of(machine.kernels, call.in[0], row, m, room);
      for (std::int64_t i = 0; i < chosen; ++i) {
        const std::int64_t at = place[row * chosen + i];
        dweights[i] = at < 0 ? 0.0F : machine.kernels.dot(dy, row_of(machine.kernels, call.in[1], at, m, room + m), m);
      }
      store_panel(machine.kernels, dweights, call.out[0], row * chosen, chosen, 1, chosen);
    }
  });
}

void run_grouped_matmul(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, k = op.k, all_rows = op.slots * op.capacity;
  const bool two = call.in.size() > 3 && call.in[3].data != nullptr;
  const std::int64_t products = two ? 2 : 1, lda = op.trans_b ? k : products * k, ldc = op.trans_b ? products * n : n;
  check(call, 0, all_rows * lda);
  check(call, 1, op.experts * n * k);
  if (two) check(call, 3, op.experts * n * k);
  const Segments segments = segments_of(op, call.ids(2, op.slots * op.experts));
  float* const c = call.output(0, all_rows * ldc);
  const Operand &a = call.in[0], &result = call.out[0];
  const Operand weights[] = {call.in[1], two ? call.in[3] : Operand{}};
  const bool plain = !op.rounded && a.dtype == DType::fp32 && result.dtype == DType::fp32 &&
                     weights[0].dtype == DType::fp32 && weights[1].dtype == DType::fp32;
  refuse_fp8(op, a.dtype);

  // A thread takes some columns of one expert's matrix, or of both matrices if their results are side by side.
  const std::int64_t width = columns_at_once(machine, plain, n), blocks = (n + width - 1) / width;
  const std::int64_t sides = op.trans_b ? products : 1;
  machine.pool.each(op.experts * sides * blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t expert = task / (sides * blocks), side = task / blocks % sides;
      const std::span own(segments.all.data() + segments.begin[static_cast<std::size_t>(expert)],
                          segments.all.data() + segments.begin[static_cast<std::size_t>(expert) + 1]);
      if (own.empty()) continue;
      Piece piece{op.trans_b, k, n, 0, lda, side * n, ldc, task % blocks * width, 0, expert * n * k};
      piece.columns = std::min(width, n - piece.column);
      if (plain) {
        for (const ExpertRows& segment : own)
          for (std::int64_t i = 0; i < (op.trans_b ? 1 : products); ++i) {
            piece.a_column = i * k, piece.adds = i > 0;
            multiply(machine.kernels, product_of(segment, piece, fp32(a), fp32(weights[op.trans_b ? side : i]), c),
                     machine.scratch.get(thread, room_of(machine.kernels, segment.rows, k)));
          }
        continue;
      }
      // Widens the matrices' columns once, then the rows multiplied with them.
      const std::int64_t inner = op.trans_b ? k : products * k, tallest = std::min(kRows, op.capacity);
      const std::int64_t own_room = room_of(machine.kernels, tallest, inner);
      float* const room =
          machine.scratch.get(thread, own_room + inner * piece.columns + tallest * (inner + piece.columns));
      float* const b = room + own_room;
      float* const x = b + inner * piece.columns;
      float* const y = x + tallest * inner;
      for (std::int64_t i = 0; i < inner / k; ++i) {
        const Factor factor{weights[op.trans_b ? side : i], nullptr, op.rounded};
        if (op.trans_b)
          load_panel(machine.kernels, factor, piece.matrix + piece.column * k, k, piece.columns, k, b);
        else
          load_panel(machine.kernels, factor, piece.matrix + piece.column, n, k, piece.columns,
                     b + i * k * piece.columns);
      }
      for (const ExpertRows& segment : own)
        for (std::int64_t row = 0; row < segment.rows; row += kRows) {
          const std::int64_t rows = std::min(kRows, segment.rows - row), first = segment.first + row;
          load_panel(machine.kernels, {a, nullptr, op.rounded}, first * lda, lda, rows, inner, x);
          multiply(machine.kernels,
                   {false, op.trans_b, false, rows, piece.columns, inner, x, inner, b, op.trans_b ? k : piece.columns,
                    y, piece.columns},
                   room);
          store_panel(machine.kernels, y, result, first * ldc + piece.c_column + piece.column, ldc, rows,
                      piece.columns);
        }
    }
  });
}

void run_grouped_weight_grad(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m, n = op.n, all_rows = op.slots * op.capacity;
  const bool two = call.out.size() > 1 && call.out[1].data != nullptr;
  const std::int64_t products = two ? 2 : 1, ldy = products * m;
  check(call, 0, all_rows * ldy);
  check(call, 1, all_rows * n);
  const Segments segments = segments_of(op, call.ids(2, op.slots * op.experts));
  static_cast<void>(call.output(0, op.experts * m * n));
  if (two) static_cast<void>(call.output(1, op.experts * m * n));
  const Operand &dy = call.in[0], &x = call.in[1];
  refuse_fp8(op, dy.dtype);

  // A thread takes some rows of one matrix's gradient.
  const bool in_place = !op.rounded && dy.dtype == DType::fp32 && x.dtype == DType::fp32;
  const std::int64_t high = columns_at_once(machine, in_place, m), blocks = (m + high - 1) / high;
  machine.pool.each(op.experts * products * blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t expert = task / (products * blocks), side = task / blocks % products;
      const std::int64_t first = task % blocks * high, height = std::min(high, m - first);
      const Operand& target = call.out[static_cast<std::size_t>(side)];
      const std::int64_t at = (expert * m + first) * n;
      const std::span own(segments.all.data() + segments.begin[static_cast<std::size_t>(expert)],
                          segments.all.data() + segments.begin[static_cast<std::size_t>(expert) + 1]);
      const bool direct = target.dtype == DType::fp32;
      const bool plain = direct && in_place;
      const std::int64_t tallest = plain ? 0 : std::min(kRows, op.capacity);
      const std::int64_t own_room = plain ? 0 : room_of(machine.kernels, height, tallest);
      float* const room = machine.scratch.get(thread, own_room + tallest * (height + n) + (direct ? 0 : height * n));
      float* const a = room + own_room;
      float* const b = a + tallest * height;
      float* const sum = direct ? reinterpret_cast<float*>(target.data) + at : b + tallest * n;
      if (!direct && op.accumulate) load_panel(machine.kernels, {target}, at, n, height, n, sum);
      if (own.empty() && !op.accumulate) std::fill_n(sum, height * n, 0.0F);
      bool adds = op.accumulate;
      for (const ExpertRows& segment : own) {
        const std::int64_t step = plain ? segment.rows : kRows;
        for (std::int64_t row = 0; row < segment.rows; row += step, adds = true) {
          const std::int64_t rows = std::min(step, segment.rows - row), start = segment.first + row;
          const std::int64_t dy_at = start * ldy + side * m + first, x_at = start * n;
          if (plain) {
            multiply(machine.kernels,
                     {true, false, adds, height, n, rows, fp32(dy) + dy_at, ldy, fp32(x) + x_at, n, sum, n},
                     machine.scratch.get(thread, room_of(machine.kernels, height, rows)));
            continue;
          }
          load_panel(machine.kernels, {dy, nullptr, op.rounded}, dy_at, ldy, rows, height, a);
          load_panel(machine.kernels, {x, nullptr, op.rounded}, x_at, n, rows, n, b);
          multiply(machine.kernels, {true, false, adds, height, n, rows, a, height, b, n, sum, n}, room);
        }
      }
      if (!direct) store_panel(machine.kernels, sum, target, at, n, height, n);
    }
  });
}

void run_scale_choices(Machine&, const Call& call) {
  const std::int64_t count = call.op.n * call.op.chosen;
  const float* weights = call.input(0, count);
  const std::int32_t* choice = call.ids(1, count);
  const float* scales = call.input(2, call.op.m);
  float* y = call.output(0, count);
  for (std::int64_t i = 0; i < count; ++i) y[i] = weights[i] * scales[choice[i]];
}

// Sums over rows in their order, so that they do not depend on the number of threads.
void run_scale_choices_grad(Machine&, const Call& call) {
  const std::int64_t count = call.op.n * call.op.chosen;
  const float* dy = call.input(0, count);
  const float* weights = call.input(1, count);
  const std::int32_t* choice = call.ids(2, count);
  const float* scales = call.input(3, call.op.m);
  float* dweights = call.output(0, count);
  float* dscales = call.output(1, call.op.m);
  std::vector<double> sums(static_cast<std::size_t>(call.op.m));
  for (std::int64_t i = 0; i < count; ++i)
    sums[static_cast<std::size_t>(choice[i])] += static_cast<double>(dy[i]) * static_cast<double>(weights[i]);
  for (std::int64_t e = 0; e < call.op.m; ++e) dscales[e] += static_cast<float>(sums[static_cast<std::size_t>(e)]);
  for (std::int64_t i = 0; i < count; ++i) dweights[i] = dy[i] * scales[choice[i]];
}

void run_row_gate(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float* x = call.input(0, n * m);
  const float* g = call.input(1, n);
  float* y = call.output(0, n * m);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float factor = 1.0F / (1.0F + std::exp(-g[row]));
      for (std::int64_t i = row * m; i < (row + 1) * m; ++i) y[i] = factor * x[i];
    }
  });
}

void run_row_gate_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float* dy = call.input(0, n * m);
  const float* x = call.input(1, n * m);
  const float* g = call.input(2, n);
  float* dx = call.output(0, n * m);
  float* dg = call.output(1, n);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float factor = 1.0F / (1.0F + std::exp(-g[row]));
      dg[row] = machine.kernels.dot(dy + row * m, x + row * m, m) * factor * (1.0F - factor);  // dx may be dy
      for (std::int64_t i = row * m; i < (row + 1) * m; ++i) dx[i] = factor * dy[i];
    }
  });
}

}  // namespace orrery::exec
