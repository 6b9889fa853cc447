#pragma once
/// Vectors of the width that ORRERY_SIMD_LEVEL offers, using the compilers' vector extension. Every file of
/// exec/cpu/simd is compiled once per level, into a namespace of that name, and includes nothing from the standard
/// library that levels could share: an inline function compiled for AVX-512 must not end up in the program's baseline.
/// Strict floating point: the code spells out the lanes and accumulators of sums.
#include <cstdint>

#define ORRERY_INLINE static inline __attribute__((always_inline))
#define ORRERY_MEMBER inline __attribute__((always_inline))

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

using Count = std::int64_t;
constexpr int vector_bytes = ORRERY_SIMD_BYTES;
constexpr int W = vector_bytes / 4;  ///< lanes

using F = float __attribute__((vector_size(vector_bytes)));
using I = std::int32_t __attribute__((vector_size(vector_bytes)));
using D = double __attribute__((vector_size(vector_bytes)));  // W/2 lanes
using HalfF = float __attribute__((vector_size(vector_bytes / 2)));
typedef float UnalignedF __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
typedef float UnalignedHalfF __attribute__((vector_size(vector_bytes / 2), aligned(4), may_alias));

ORRERY_INLINE F load(const float* p) {
  return *reinterpret_cast<const UnalignedF*>(p);
}
ORRERY_INLINE void store(float* p, F v) {
  *reinterpret_cast<UnalignedF*>(p) = v;
}
ORRERY_INLINE F splat(float value) {
  return F{} + value;
}
ORRERY_INLINE F larger(F a, F b) {
  return a > b ? a : b;
}
ORRERY_INLINE F smaller(F a, F b) {
  return a < b ? a : b;
}

/// The first `count` < W values; the other lanes are `fill`.
ORRERY_INLINE F load_part(const float* p, Count count, float fill = 0.0F) {
  F v = splat(fill);
  for (Count i = 0; i < count; ++i) v[i] = p[i];
  return v;
}
ORRERY_INLINE void store_part(float* p, F v, Count count) {
  for (Count i = 0; i < count; ++i) p[i] = v[i];
}

ORRERY_INLINE float sum(F v) {
  for (int half = W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}
ORRERY_INLINE float largest(F v) {
  float best = v[0];
  for (int i = 1; i < W; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

/// exp to about 1 ulp: x = k ln2 + r, exp(r) by the polynomial of Cephes' expf (S. Moshier), 2^k by the exponent bits.
/// The result is 0 below -87.3 and infinity above 88.3; NaN stays NaN.
ORRERY_INLINE F exponential(F x) {
  constexpr float round_to_integer = 12582912.0F;  // 1.5 * 2^23: the sum's last bits are the rounded integer
  const F shifted = x * 1.44269504088896341F + round_to_integer;
  const F k = shifted - round_to_integer;
  F r = x - k * 0.693359375F;
  r = r - k * -2.12194440e-4F;
  F p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const I power = (reinterpret_cast<I>(shifted) + 127) << 23;
  F y = p * reinterpret_cast<F>(power);
  y = x < -87.3F ? F{} : y;
  return x > 88.3F ? splat(__builtin_inff()) : y;
}

/// 1/(1+exp(-x)) and its complement, both to a few ulp relative.
struct Sigmoid {
  F value, complement;
};
ORRERY_INLINE Sigmoid sigmoid(F x) {
  const F e = exponential(smaller(splat(80.0F), -x));  // capped so that the complement is not infinity * 0; keeps NaN
  const F value = 1.0F / (1.0F + e);
  return {value, e * value};
}

/// How far ahead `get_ahead` prefetches, in elements (2 KiB). Without it, a page that the hardware's prefetcher has not
/// seen costs loops with long arithmetic about a microsecond, because too few loads are in flight.
constexpr Count kAhead = 512;
/// Where a kernel reads and writes: a whole vector at `i`, or the `count` < W values left at the end of a row. Kernels
/// are written once for both.
struct Whole {
  Count i;
  ORRERY_MEMBER F get(const float* p, float = 0.0F) const { return load(p + i); }
  /// For operands that may come from memory, in loops with long arithmetic.
  ORRERY_MEMBER F get_ahead(const float* p) const {
    __builtin_prefetch(p + i + kAhead);
    return load(p + i);
  }
  ORRERY_MEMBER void put(float* p, F v) const { store(p + i, v); }
};
struct Rest {
  Count i, count;
  ORRERY_MEMBER F get(const float* p, float fill = 0.0F) const { return load_part(p + i, count, fill); }
  ORRERY_MEMBER F get_ahead(const float* p) const { return get(p); }
  ORRERY_MEMBER void put(float* p, F v) const { store_part(p + i, v, count); }
};

template <class Body>
ORRERY_INLINE void for_each(Count count, Body body) {
  Count i = 0;
  for (; i + W <= count; i += W) body(Whole{i});
  if (i < count) body(Rest{i, count - i});
}

/// The sum of term(at) over `count` elements, in four accumulators. Lanes past the end must contribute 0, as `get`
/// fills them.
template <class Term>
ORRERY_INLINE float sum_of(Count count, Term term) {
  F a{}, b{}, c{}, d{};
  Count i = 0;
  for (; i + 4 * W <= count; i += 4 * W) {
    a += term(Whole{i});
    b += term(Whole{i + W});
    c += term(Whole{i + 2 * W});
    d += term(Whole{i + 3 * W});
  }
  for (; i + W <= count; i += W) a += term(Whole{i});
  if (i < count) b += term(Rest{i, count - i});
  return sum((a + b) + (c + d));
}

/// The largest of `count` elements; -infinity if there are none.
ORRERY_INLINE float largest_of(const float* x, Count count) {
  const float none = -__builtin_inff();
  F a = splat(none), b = a, c = a, d = a;
  Count i = 0;
  for (; i + 4 * W <= count; i += 4 * W) {
    a = larger(a, load(x + i));
    b = larger(b, load(x + i + W));
    c = larger(c, load(x + i + 2 * W));
    d = larger(d, load(x + i + 3 * W));
  }
  for (; i + W <= count; i += W) a = larger(a, load(x + i));
  if (i < count) b = larger(b, load_part(x + i, count - i, none));
  return largest(larger(larger(a, b), larger(c, d)));
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
