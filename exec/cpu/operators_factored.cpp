// Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018, algorithms
// 4 and 5): second moments of matrices as sums over rows and columns, updates clipped by their root mean square.
#include <cmath>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {
namespace {

constexpr double kEpsilon1 = 1e-30, kEpsilon2 = 1e-3;  // the values of the paper's section 9

double count_of(const ElementRange& range) {
  return static_cast<double>(range.all_rows) * static_cast<double>(range.all_columns);
}

/// A run within one row of a range: elements [begin, begin + count) of the operand, which start at column `column` of
/// row `row` of the rank's part.
struct Piece {
  std::int64_t begin = 0, row = 0, column = 0, count = 0;
};

Piece piece_at(const ElementRange& range, std::int64_t row) {
  const std::int64_t from = std::max(range.first, row * range.columns);
  const std::int64_t to = std::min(range.first + range.end - range.begin, (row + 1) * range.columns);
  return {range.begin + from - range.first, row, from - row * range.columns, to - from};
}
std::int64_t first_row(const ElementRange& range) {
  return range.first / range.columns;
}
std::int64_t end_row(const ElementRange& range) {
  return (range.first + range.end - range.begin + range.columns - 1) / range.columns;
}

/// 1/sqrt of the estimated second moment: for a matrix from R_i C_j / mean R, otherwise from the element's own.
struct Estimate {
  const float* factors;
  double columns, rows, mean;

  Estimate(const float* all, const ElementRange& range)
      : factors(all),
        columns(static_cast<double>(range.all_columns)),
        rows(static_cast<double>(range.all_rows)),
        mean(range.columns == 0 ? 1 : static_cast<double>(all[range.factor_sum]) / count_of(range) + kEpsilon1) {}

  /// The part of row `i`, without the column's.
  [[nodiscard]] double row(const ElementRange& range, std::int64_t i) const {
    return std::sqrt(mean / (static_cast<double>(factors[range.factor_rows + i]) / columns + kEpsilon1));
  }
  [[nodiscard]] double column(const ElementRange& range, std::int64_t j) const {
    return 1 / std::sqrt(static_cast<double>(factors[range.factor_columns + j]) / rows + kEpsilon1);
  }
  [[nodiscard]] double element(const ElementRange& range, std::int64_t i) const {
    return 1 / std::sqrt(static_cast<double>(factors[range.factor_sum + range.first + i]) + kEpsilon1);
  }
};

/// Calls body(first operand element, count, 1/sqrt of the k-th one's estimate, slot) for runs of a range, divided over
/// threads by rows or chunks. Sums go into the slot of their row or chunk.
template <class Body>
void over_range(Machine& machine, const ElementRange& range, const Estimate& estimate, const Body& body) {
  if (range.columns == 0) {
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      const auto inverse = [&](std::int64_t k) { return estimate.element(range, begin + k); };
      body(range.begin + begin, end - begin, inverse, begin / stream_chunk);
    });
    return;
  }
  std::vector<float> columns(static_cast<std::size_t>(range.columns));
  for (std::int64_t j = 0; j < range.columns; ++j)
    columns[static_cast<std::size_t>(j)] = static_cast<float>(estimate.column(range, j));
  const std::int64_t from = first_row(range);
  machine.pool.each(
      end_row(range) - from, rows_per_chunk(range.columns), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Piece piece = piece_at(range, from + i);
          const double row = estimate.row(range, piece.row);
          const float* const of_columns = columns.data() + piece.column;
          body(
              piece.begin, piece.count, [=](std::int64_t k) { return row * static_cast<double>(of_columns[k]); }, i);
        }
      });
}

std::size_t slots_of(const ElementRange& range) {
  return static_cast<std::size_t>(range.columns == 0 ? (range.end - range.begin) / stream_chunk + 1
                                                     : end_row(range) - first_row(range));
}

}  // namespace

void run_factor_sums(Machine& machine, const Call& call) {
  const float* gradient = call.input(0, call.op.m);
  float* sums = call.output(0, call.op.k);
  const double c = coefficient_of(call);
  const auto square = [&](std::int64_t i) {
    const double g = c * static_cast<double>(gradient[i]);
    return g * g;
  };
  for (const ElementRange& range : call.ranges) {
    if (range.begin == range.end) continue;
    if (range.columns == 0) {
      machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i)
          sums[range.factor_sum + range.first + i] += static_cast<float>(square(range.begin + i));
      });
      continue;
    }
    const std::int64_t from = first_row(range), rows = end_row(range) - from;
    std::vector<double> by_row(static_cast<std::size_t>(rows));
    machine.pool.each(rows, rows_per_chunk(range.columns), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Piece piece = piece_at(range, from + i);
        by_row[static_cast<std::size_t>(i)] =
            c * c * machine.kernels.sum_of_squares(gradient + piece.begin, piece.count);
      }
    });
    double total = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      total += by_row[static_cast<std::size_t>(i)];
      sums[range.factor_rows + from + i] += static_cast<float>(by_row[static_cast<std::size_t>(i)]);
    }
    sums[range.factor_sum] += static_cast<float>(total);
    // Columns in stripes: each thread sums whole columns, in the order of the rows.
    machine.pool.each(range.columns, columns_per_chunk(rows), [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<double> stripe(static_cast<std::size_t>(end - begin));
      for (std::int64_t i = 0; i < rows; ++i) {
        const Piece piece = piece_at(range, from + i);
        const std::int64_t low = std::max(begin, piece.column), high = std::min(end, piece.column + piece.count);
        for (std::int64_t j = low; j < high; ++j)
          stripe[static_cast<std::size_t>(j - begin)] += square(piece.begin + j - piece.column);
      }
      for (std::int64_t j = begin; j < end; ++j)
        sums[range.factor_columns + j] += static_cast<float>(stripe[static_cast<std::size_t>(j - begin)]);
    });
  }
}

void run_factor_moments(Machine& machine, const Call& call) {
  const UpdateClock clock = clock_of(call, 1);
  if (clock.skips) return;
  const float* sums = call.input(0, call.op.m);
  float* factors = call.output(0, call.op.m);
  const double rest = std::pow(clock.time, -call.context.decay_power);
  machine.pool.each(call.op.m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      factors[i] =
          static_cast<float>((1 - rest) * static_cast<double>(factors[i]) + rest * static_cast<double>(sums[i]));
  });
}

void run_factor_norms(Machine& machine, const Call& call) {
  const float* gradient = call.input(0, call.op.m);
  const float* parameter = call.input(2, call.op.m);
  const float* factors = call.input(3, call.op.k);
  const double c = coefficient_of(call);
  for (const ElementRange& range : call.ranges) {
    if (range.begin == range.end) continue;
    float* norms = call.output(0, 2 * (range.norms + 1)) + 2 * range.norms;
    const Estimate estimate(factors, range);
    std::vector<double> sums(2 * slots_of(range));
    over_range(machine, range, estimate,
               [&](std::int64_t first, std::int64_t count, const auto& inverse, std::int64_t slot) {
                 const float* const g = gradient + first;
                 const float* const x = parameter + first;
                 // Several sums side by side: a single one would wait for each addition.
                 constexpr std::int64_t kLanes = 8;
                 std::array<double, kLanes> of_x{}, of_u{};
                 const auto add = [&](std::int64_t k, std::size_t lane) {
                   const double u = c * static_cast<double>(g[k]) * inverse(k), v = static_cast<double>(x[k]);
                   of_x[lane] += v * v;
                   of_u[lane] += u * u;
                 };
                 std::int64_t k = 0;
                 for (; k + kLanes <= count; k += kLanes)
                   for (std::int64_t lane = 0; lane < kLanes; ++lane) add(k + lane, static_cast<std::size_t>(lane));
                 for (; k < count; ++k) add(k, 0);
                 double* const into = &sums[static_cast<std::size_t>(2 * slot)];
                 for (std::size_t lane = 0; lane < kLanes; ++lane) into[0] += of_x[lane], into[1] += of_u[lane];
               });
    double total[2] = {0, 0};
    for (std::size_t i = 0; i < sums.size(); ++i) total[i % 2] += sums[i];
    for (int i = 0; i < 2; ++i) norms[i] = static_cast<float>(static_cast<double>(norms[i]) + range.share * total[i]);
  }
}

void run_adafactor(Machine& machine, const Call& call) {
  if (clock_of(call, 4).skips) return;
  const StepContext& context = call.context;
  const float* gradient = call.input(0, call.op.m);
  const float* factors = call.input(2, call.op.k);
  float* parameter = call.output(0, call.op.m);
  const double c = coefficient_of(call);
  for (const ElementRange& range : call.ranges) {
    if (range.begin == range.end) continue;
    const float* norms = call.input(3, 2 * (range.norms + 1)) + 2 * range.norms;
    const double of_parameter = std::sqrt(static_cast<double>(norms[0]) / count_of(range));
    const double of_update = std::sqrt(static_cast<double>(norms[1]) / count_of(range));
    const double size = context.adaptive ? std::max(kEpsilon2, of_parameter) : 1.0;
    const double rate = context.learning_rate * size / std::max(1.0, of_update / context.clip_update);
    const double keep = range.decay ? 1 - context.learning_rate * size * context.weight_decay : 1.0;
    over_range(machine, range, Estimate(factors, range),
               [&](std::int64_t first, std::int64_t count, const auto& inverse, std::int64_t) {
                 const float* const g = gradient + first;
                 float* const x = parameter + first;
                 for (std::int64_t k = 0; k < count; ++k)
                   x[k] = static_cast<float>(keep * static_cast<double>(x[k]) -
                                             rate * c * static_cast<double>(g[k]) * inverse(k));
               });
  }
  write_copy(machine, call, parameter, 1);
}

}  // namespace orrery::exec
