// Activations, additions and the optimizer.
#include "exec/cpu/simd/functions.h"
#include "exec/engine/activations.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

namespace {

/// Phi(x) of the normal distribution, with erfc by the Chebyshev fit of Press et al. (Numerical Recipes, section 6.2),
/// relative error 1.2e-7. Computes the tail, so that nothing cancels.
ORRERY_INLINE F normal_distribution(F x) {
  constexpr float root_half = 0.70710678118654752F;
  const F z = root_half * larger(x, -x);
  const F t = 1.0F / (1.0F + 0.5F * z);
  F p = t * 0.17087277F - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  const F tail = 0.5F * t * exponential(p - z * z);
  return x < 0.0F ? tail : 1.0F - tail;
}

/// What exec/engine/activations.h computes with.
struct LaneMath {
  static ORRERY_MEMBER Sigmoid sigmoid(F x) { return simd::ORRERY_SIMD_LEVEL::sigmoid(x); }
  static ORRERY_MEMBER F positive(F x) { return x <= 0.0F ? F{} : x; }
};

/// To 1e-7. Uses its series near zero, where the quotient would cancel.
ORRERY_INLINE F hyperbolic_tangent(F x) {
  const F size = larger(x, -x);
  const F e = exponential(-2.0F * size);
  const F far = (1.0F - e) / (1.0F + e);
  const F s = x * x;
  const F near = x + x * s * (-0.333333333F + s * (0.133333333F - s * (0.0539682540F - s * 0.0218694885F)));
  return size < 0.3F ? near : (x < 0.0F ? -far : far);
}

}  // namespace

void gelu_erf(const float* x, float* y, Count count) {
  for_each(count, [&](auto at) {
    const F v = at.get_ahead(x);
    at.put(y, v * normal_distribution(v));
  });
}

void gelu_erf_grad(const float* dy, const float* x, float* dx, Count count) {
  constexpr float one_over_root_two_pi = 0.39894228040143268F;
  for_each(count, [&](auto at) {
    const F v = at.get_ahead(x);
    const F density = one_over_root_two_pi * exponential(-0.5F * (v * v));
    at.put(dx, at.get_ahead(dy) * (normal_distribution(v) + v * density));
  });
}

void activate(models::Function function, const float* x, float* y, Count count) {
  with_formula(function, [&]<class Formula>(Formula) {
    for_each(count, [&](auto at) { at.put(y, Formula::template value<LaneMath>(at.get_ahead(x))); });
  });
}

void activate_grad(models::Function function, const float* dy, const float* x, float* dx, Count count) {
  with_formula(function, [&]<class Formula>(Formula) {
    for_each(count,
             [&](auto at) { at.put(dx, at.get_ahead(dy) * Formula::template slope<LaneMath>(at.get_ahead(x))); });
  });
}

void gate(models::Function function, const float* gate, const float* up, float* y, Count count) {
  with_formula(function, [&]<class Formula>(Formula) {
    for_each(count, [&](auto at) {
      at.put(y, Formula::template value<LaneMath>(at.get_ahead(gate)) * Formula::up(at.get_ahead(up)));
    });
  });
}

void gate_grad(models::Function function, const float* dy, const float* gate, const float* up, float* dgate, float* dup,
               Count count) {
  with_formula(function, [&]<class Formula>(Formula) {
    for_each(count, [&](auto at) {
      const F g = at.get_ahead(gate);
      const F d = at.get_ahead(dy);
      const F u = at.get_ahead(up);
      at.put(dgate, d * Formula::up(u) * Formula::template slope<LaneMath>(g));
      at.put(dup, Formula::through(d * Formula::template value<LaneMath>(g), u));
    });
  });
}

void cap(const float* x, float* y, float* slopes, Count count, float scale, float cap) {
  const float inward = scale / cap;
  for_each(count, [&](auto at) {
    const F t = hyperbolic_tangent(at.get_ahead(x) * inward);
    if (y != nullptr) at.put(y, t * cap);
    if (slopes != nullptr) at.put(slopes, 1.0F - t * t);
  });
}

void add(const float* a, const float* b, float* c, Count count) {
  for_each(count, [&](auto at) { at.put(c, at.get(a) + at.get(b)); });
}

void add_bias(const float* a, const float* b, const float* bias, float* y, Count rows, Count columns) {
  if (bias == nullptr) return add(a, b, y, rows * columns);
  for (Count row = 0; row < rows; ++row, a += columns, b += columns, y += columns)
    for_each(columns, [&](auto at) { at.put(y, at.get(a) + (at.get(b) + at.get(bias))); });
}

double sum_of_squares(const float* x, Count count) {
  constexpr int half = W / 2;
  D total[4] = {};
  Count i = 0;
  for (; i + 4 * half <= count; i += 4 * half)
    for (int part = 0; part < 4; ++part) {
      const HalfF narrow = *reinterpret_cast<const UnalignedHalfF*>(x + i + part * half);
      const D v = __builtin_convertvector(narrow, D);
      total[part] += v * v;
    }
  const D all = (total[0] + total[1]) + (total[2] + total[3]);
  double result = 0;
  for (int lane = 0; lane < half; ++lane) result += all[lane];
  for (; i < count; ++i) result += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return result;
}

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2, in one pass over memory.
void adamw(const float* __restrict gradient, float* __restrict parameter, float* __restrict first,
           float* __restrict second, Count count, const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  for (Count i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient;
    const float m = f.beta1 * first[i] + f.rest1 * g;
    const float v = f.beta2 * second[i] + f.rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    parameter[i] = f.keep * parameter[i] - f.step * (m / (__builtin_sqrtf(v) * f.denominator + f.epsilon));
  }
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
