#pragma once
/// Formulas of activations (models/activation.h), written once for all backends. V is a float, or a vector of floats
/// whose lanes are computed alike. Math provides what the backend computes with: V positive(V) = max(x, 0), which keeps
/// NaN, and sigmoid(V), with members `value` and `complement` = 1 - value.
#include "models/activation.h"

#if defined(__CUDACC__)
#define ORRERY_FORMULA __device__ inline
#else
#define ORRERY_FORMULA inline __attribute__((always_inline))
#endif

namespace orrery::exec {

template <models::Function Which>
struct Formula;

/// The factor that a gate multiplies, unchanged, and how its gradient goes back.
struct UpAsItIs {
  template <class V>
  static ORRERY_FORMULA V up(V u) {
    return u;
  }
  template <class V>
  static ORRERY_FORMULA V through(V gradient, V) {
    return gradient;
  }
};

/// So et al., "Primer: Searching for Efficient Transformers" (2021), section 4.
template <>
struct Formula<models::Function::squared_relu> : UpAsItIs {
  template <class Math, class V>
  static ORRERY_FORMULA V value(V x) {
    const V p = Math::positive(x);
    return p * p;
  }
  template <class Math, class V>
  static ORRERY_FORMULA V slope(V x) {
    return 2.0F * Math::positive(x);
  }
};

/// Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2, tanh form: x/2 (1 + tanh(u)) with
/// u = sqrt(2/pi) (x + 0.044715 x^3), computed as x sigmoid(2u), which is the same and does not cancel.
template <>
struct Formula<models::Function::gelu> : UpAsItIs {
  static constexpr float kTwoRoots = 1.5957691216057308F, kCubic = 0.044715F;
  template <class Math, class V>
  static ORRERY_FORMULA V value(V x) {
    return x * Math::sigmoid(kTwoRoots * (x + kCubic * (x * x * x))).value;
  }
  template <class Math, class V>
  static ORRERY_FORMULA V slope(V x) {
    const auto s = Math::sigmoid(kTwoRoots * (x + kCubic * (x * x * x)));
    return s.value + x * (kTwoRoots * (1.0F + 3.0F * kCubic * (x * x))) * s.value * s.complement;
  }
};

/// x sigmoid(x): the function of SwiGLU's gate (Shazeer, "GLU Variants Improve Transformer", 2020).
template <>
struct Formula<models::Function::silu> : UpAsItIs {
  template <class Math, class V>
  static ORRERY_FORMULA V value(V x) {
    return x * Math::sigmoid(x).value;
  }
  template <class Math, class V>
  static ORRERY_FORMULA V slope(V x) {
    const auto s = Math::sigmoid(x);
    return s.value + x * s.value * s.complement;
  }
};

/// min(x, 7) sigmoid(1.702 min(x, 7)), which multiplies 1 + max(-7, min(x, 7)) (Agarwal et al., "gpt-oss-120b &
/// gpt-oss-20b Model Card", 2025, section 2; alpha and limit of its code). NaN stays NaN.
template <>
struct Formula<models::Function::clamped> {
  static constexpr float kAlpha = 1.702F, kLimit = 7.0F;
  template <class Math, class V>
  static ORRERY_FORMULA V value(V x) {
    const V most = x > kLimit ? V{} + kLimit : x;
    return most * Math::sigmoid(kAlpha * most).value;
  }
  template <class Math, class V>
  static ORRERY_FORMULA V slope(V x) {
    const auto s = Math::sigmoid(kAlpha * x);
    return x > kLimit ? V{} : s.value + kAlpha * x * s.value * s.complement;
  }
  template <class V>
  static ORRERY_FORMULA V up(V u) {
    const V most = u > kLimit ? V{} + kLimit : u;
    return 1.0F + (most < -kLimit ? V{} - kLimit : most);
  }
  template <class V>
  static ORRERY_FORMULA V through(V gradient, V u) {
    const V below = u > kLimit ? V{} : gradient;
    return u < -kLimit ? V{} : below;
  }
};

/// Calls body(Formula) for a function known only at run time.
template <class Body>
inline void with_formula(models::Function function, const Body& body) {
  switch (function) {
    case models::Function::none: return;
    case models::Function::squared_relu: return body(Formula<models::Function::squared_relu>{});
    case models::Function::gelu: return body(Formula<models::Function::gelu>{});
    case models::Function::silu: return body(Formula<models::Function::silu>{});
    case models::Function::clamped: return body(Formula<models::Function::clamped>{});
  }
}

}  // namespace orrery::exec
