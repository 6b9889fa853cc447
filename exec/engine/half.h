#pragma once
/// 16-bit values on the host: bf16 (the upper half of an fp32) and fp16 (IEEE 754 binary16), to and from fp32, rounded
/// to nearest even. Also converts buffers of any floating type.
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/dtype.h"

namespace orrery::exec {

[[nodiscard]] float from_bf16(std::uint16_t bits);
[[nodiscard]] std::uint16_t to_bf16(float value);
[[nodiscard]] float from_fp16(std::uint16_t bits);
[[nodiscard]] std::uint16_t to_fp16(float value);

[[nodiscard]] bool is_16_bit(models::DType dtype);

/// Converts a buffer's bytes to `values`, and back. fp32, bf16 and fp16.
void widen(models::DType dtype, const std::byte* stored, std::span<float> values);
void narrow(models::DType dtype, std::span<const float> values, std::byte* stored);

/// Stochastic rounding to bf16: rounds up with a probability equal to the part that is cut off, so that the mean is the
/// value. `random` has 16 bits. Infinities and NaNs as in to_bf16.
[[nodiscard]] std::uint16_t to_bf16_randomly(float value, std::uint32_t random);

/// 16 random bits for each of `count` elements of a tensor from `first` on. They depend only on (seed, tensor, element,
/// step), so any sharding draws the same.
class RandomBits {
 public:
  RandomBits(std::uint64_t seed, std::uint64_t stream, std::int64_t step);
  void draw(std::int64_t first, std::span<std::uint16_t> bits) const;

 private:
  std::uint64_t key_;
  std::uint64_t step_;
};

}  // namespace orrery::exec
