// Dropout factors, 0 or the scale, by Philox 4x32-10 as models/operators/dropout.h defines it, a vector of draws at a
// time.
#include "exec/cpu/simd/functions.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

namespace {

using U = std::uint32_t __attribute__((vector_size(vector_bytes)));
using L = std::uint64_t __attribute__((vector_size(vector_bytes)));  // W/2 lanes

constexpr std::uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
constexpr std::uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;
constexpr int rounds = 10, served = 8, words = 4;

/// Multiplies the lower halves of the 64-bit lanes.
ORRERY_INLINE L product_of_lower_halves(L a, L b) {
#if defined(__AVX512F__)
  return reinterpret_cast<L>(_mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<L>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<L>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  const L half = L{} + 0xFFFFFFFFU;
  return (a & half) * (b & half);
#endif
}

struct Product {
  U low, high;
};
ORRERY_INLINE Product product(U a, std::uint32_t factor) {
  const L lower = L{} + 0xFFFFFFFFU, b = L{} + factor;
  const L even = product_of_lower_halves(reinterpret_cast<L>(a), b);
  const L odd = product_of_lower_halves(reinterpret_cast<L>(a) >> 32, b);
  return {reinterpret_cast<U>((even & lower) | odd << 32), reinterpret_cast<U>(even >> 32 | (odd & ~lower))};
}

struct Drawn {
  U v[words];
};
ORRERY_INLINE Drawn philox(U c0, U c1, U c2, U c3, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < rounds; ++round) {
    const Product p0 = product(c0, multiplier_0), p1 = product(c2, multiplier_1);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += weyl_0;
    k1 += weyl_1;
  }
  return {{c0, c1, c2, c3}};
}

/// The factors for the elements of draws [group, group + W).
ORRERY_INLINE void serve(const DropoutDraw& draw, std::uint64_t group, float* factors) {
  U low{}, high{};
  for (int lane = 0; lane < W; ++lane) {
    low[lane] = static_cast<std::uint32_t>(group + static_cast<std::uint64_t>(lane));
    high[lane] = static_cast<std::uint32_t>((group + static_cast<std::uint64_t>(lane)) >> 32);
  }
  const Drawn drawn = philox(low, high, U{} + draw.site, U{} + draw.sequence, static_cast<std::uint32_t>(draw.key),
                             static_cast<std::uint32_t>(draw.key >> 32));
  const F kept = splat(draw.scale);
  for (int word = 0; word < words; ++word) {
    const U first = drawn.v[word] & 0xFFFFU, second = drawn.v[word] >> 16;
    const F a = first < draw.threshold ? F{} : kept, b = second < draw.threshold ? F{} : kept;
    for (int lane = 0; lane < W; ++lane) {
      factors[lane * served + 2 * word] = a[lane];
      factors[lane * served + 2 * word + 1] = b[lane];
    }
  }
}

}  // namespace

void dropout_factors(const DropoutDraw& draw, std::uint64_t first, Count count, float* factors) {
  constexpr Count at_once = static_cast<Count>(W) * served;
  std::uint64_t group = first / served;
  Count done = -static_cast<Count>(first % served);  // the first draw may include elements before ours
  for (; done < count; done += at_once, group += W) {
    if (done >= 0 && done + at_once <= count) {
      serve(draw, group, factors + done);
      continue;
    }
    float some[at_once];
    serve(draw, group, some);
    for (Count i = done < 0 ? -done : 0; i < at_once && done + i < count; ++i) factors[done + i] = some[i];
  }
}

void relu(const float* x, float* y, Count count) {
  for_each(count, [&](auto at) {
    const F v = at.get(x);
    at.put(y, v <= 0.0F ? F{} : v);  // NaN stays NaN
  });
}

void relu_grad(const float* dy, const float* y, float* dx, Count count) {
  for_each(count, [&](auto at) { at.put(dx, at.get(y) > 0.0F ? at.get(dy) : F{}); });
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
