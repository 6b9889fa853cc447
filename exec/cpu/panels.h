#pragma once
/// Panels: parts of a matrix that is not plain fp32, as consecutive fp32 rows.
#include <algorithm>
#include <array>
#include <cstdint>

#include "exec/cpu/kernels.h"
#include "exec/engine/backend.h"
#include "exec/engine/half.h"
#include "models/operators/fp8.h"

namespace orrery::exec {

/// A matrix to read: its memory; the values of its codes if they have 8 bits; and whether fp32 is rounded to tf32.
struct Factor {
  Operand from;
  const std::array<float, 256>* values = nullptr;
  bool rounded = false;
};

/// `rows` rows of `columns` elements, from element `first` on, `stride` apart.
inline void load_panel(const Kernels& kernels, const Factor& factor, std::int64_t first, std::int64_t stride,
                       std::int64_t rows, std::int64_t columns, float* to) {
  const Operand& from = factor.from;
  for (std::int64_t row = 0; row < rows; ++row, first += stride, to += columns) {
    if (from.dtype == models::DType::fp8) {
      const auto* codes = reinterpret_cast<const std::uint8_t*>(from.data) + first;
      for (std::int64_t i = 0; i < columns; ++i) to[i] = (*factor.values)[codes[i]];
    } else if (from.dtype == models::DType::fp32) {
      const auto* x = reinterpret_cast<const float*>(from.data) + first;
      if (factor.rounded)
        std::transform(x, x + columns, to, models::tf32_value);
      else
        std::copy_n(x, columns, to);
    } else {
      (from.dtype == models::DType::bf16 ? kernels.from_bf16 : kernels.from_fp16)(
          reinterpret_cast<const std::uint16_t*>(from.data) + first, to, columns);
    }
  }
}

inline void store_panel(const Kernels& kernels, const float* from, const Operand& to, std::int64_t first,
                        std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, first += stride, from += columns) {
    if (to.dtype == models::DType::fp32)
      std::copy_n(from, columns, reinterpret_cast<float*>(to.data) + first);
    else
      (to.dtype == models::DType::bf16 ? kernels.to_bf16 : kernels.to_fp16)(
          from, reinterpret_cast<std::uint16_t*>(to.data) + first, columns);
  }
}

}  // namespace orrery::exec
