// Layer and RMS normalisation with their gradients, and sums over columns.
#include "exec/cpu/simd/functions.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

void layer_norm(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd, Count rows,
                Count columns, float epsilon) {
  const float per_column = 1.0F / static_cast<float>(columns);
  for (Count row = 0; row < rows; ++row, x += columns, y += columns) {
    const float m = sum_of(columns, [&](auto at) { return at.get(x); }) * per_column;
    const float variance = sum_of(columns,
                                  [&](auto at) {
                                    const F d = at.get(x, m) - m;
                                    return d * d;
                                  }) *
                           per_column;
    const float r = 1.0F / __builtin_sqrtf(variance + epsilon);
    if (bias == nullptr)
      for_each(columns, [&](auto at) { at.put(y, (at.get(x) - m) * r * at.get(weight)); });
    else
      for_each(columns, [&](auto at) { at.put(y, (at.get(x) - m) * r * at.get(weight) + at.get(bias)); });
    mean[row] = m;
    rstd[row] = r;
  }
}

// With h = (x-mean)*rstd and g = dy*weight: dx = rstd * (g - mean(g) - h*mean(g*h)).
void layer_norm_grad(const float* dy, const float* x, const float* weight, const float* mean, const float* rstd,
                     const float* addend, float* dx, Count rows, Count columns) {
  const float per_column = 1.0F / static_cast<float>(columns);
  for (Count row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float m = mean[row], r = rstd[row];
    const float mean_g = sum_of(columns, [&](auto at) { return at.get(dy) * at.get(weight); }) * per_column;
    const float mean_gh =
        sum_of(columns, [&](auto at) { return at.get(dy) * at.get(weight) * ((at.get(x) - m) * r); }) * per_column;
    const auto gradient = [&](auto at) {
      return (at.get(dy) * at.get(weight) - mean_g - (at.get(x) - m) * r * mean_gh) * r;
    };
    if (addend == nullptr) {
      for_each(columns, [&](auto at) { at.put(dx, gradient(at)); });
    } else {
      for_each(columns, [&](auto at) { at.put(dx, gradient(at) + at.get(addend)); });
      addend += columns;
    }
  }
}

void rms_norm(const float* x, const float* weight, float* y, float* rstd, Count rows, Count columns, float epsilon) {
  const float per_column = 1.0F / static_cast<float>(columns);
  for (Count row = 0; row < rows; ++row, x += columns, y += columns) {
    const float mean_square = sum_of(columns,
                                     [&](auto at) {
                                       const F v = at.get(x);
                                       return v * v;
                                     }) *
                              per_column;
    const float r = 1.0F / __builtin_sqrtf(mean_square + epsilon);
    for_each(columns, [&](auto at) { at.put(y, at.get(x) * r * at.get(weight)); });
    rstd[row] = r;
  }
}

// With h = x*rstd and g = dy*weight: dx = rstd * (g - h*mean(g*h)).
void rms_norm_grad(const float* dy, const float* x, const float* weight, const float* rstd, const float* addend,
                   float* dx, Count rows, Count columns) {
  const float per_column = 1.0F / static_cast<float>(columns);
  for (Count row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const float r = rstd[row];
    const float mean_gh =
        sum_of(columns, [&](auto at) { return at.get(dy) * at.get(weight) * (at.get(x) * r); }) * per_column;
    const auto gradient = [&](auto at) { return (at.get(dy) * at.get(weight) - at.get(x) * r * mean_gh) * r; };
    if (addend == nullptr) {
      for_each(columns, [&](auto at) { at.put(dx, gradient(at)); });
    } else {
      for_each(columns, [&](auto at) { at.put(dx, gradient(at) + at.get(addend)); });
      addend += columns;
    }
  }
}

namespace {

/// Rows are added in runs of this length before the runs are added, so that the error grows with the square root.
constexpr Count run = 64;

Count shorter(Count a, Count b) {
  return a < b ? a : b;
}

}  // namespace

void column_sum(const float* x, float* total, Count rows, Count stride, Count columns) {
  for (Count begin = 0; begin < rows; begin += run) {
    const float* first = x + begin * stride;
    const Count count = shorter(run, rows - begin);
    for_each(columns, [&](auto at) {
      F even{}, odd{};
      Count row = 0;
      for (; row + 2 <= count; row += 2) {
        even += at.get(first + row * stride);
        odd += at.get(first + (row + 1) * stride);
      }
      if (row < count) even += at.get(first + row * stride);
      at.put(total, at.get(total) + (even + odd));
    });
  }
}

void norm_weight_grad(const float* dy, const float* x, const float* mean, const float* rstd, float* dweight,
                      float* dbias, Count rows, Count stride, Count columns) {
  for (Count begin = 0; begin < rows; begin += run) {
    const Count end = shorter(begin + run, rows);
    for_each(columns, [&](auto at) {
      F weight{}, bias{};
      for (Count row = begin; row < end; ++row) {
        const F g = at.get(dy + row * stride);
        const float m = mean == nullptr ? 0.0F : mean[row];
        weight += g * ((at.get(x + row * stride) - m) * rstd[row]);
        bias += g;
      }
      at.put(dweight, at.get(dweight) + weight);
      if (dbias != nullptr) at.put(dbias, at.get(dbias) + bias);
    });
  }
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
