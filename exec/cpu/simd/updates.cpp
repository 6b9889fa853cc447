// Updates of optimizers other than AdamW, each in one pass over memory.
#include "exec/cpu/simd/functions.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

// Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in the form of
// PyTorch's SGD: the momentum sums gradients, and the rate multiplies the sum.
void sgd(const float* __restrict gradient, float* __restrict parameter, float* __restrict momentum, Count count,
         const SgdFactors& factors) {
  const SgdFactors f = factors;
  if (momentum == nullptr) {
    for (Count i = 0; i < count; ++i) parameter[i] -= f.rate * (gradient[i] * f.gradient + f.decay * parameter[i]);
    return;
  }
  const float ahead = f.nesterov ? 1.0F : 0.0F;
  const float along = f.nesterov ? f.momentum : 1.0F;
  for (Count i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient + f.decay * parameter[i];
    const float v = f.momentum * momentum[i] + g;
    momentum[i] = v;
    parameter[i] -= f.rate * (ahead * g + along * v);
  }
}

// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, algorithm 2.
void lamb_direction(const float* __restrict gradient, const float* __restrict parameter, float* __restrict first,
                    float* __restrict second, float* __restrict direction, Count count, const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  for (Count i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient;
    const float m = f.beta1 * first[i] + f.rest1 * g;
    const float v = f.beta2 * second[i] + f.rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    direction[i] = f.step * (m / (__builtin_sqrtf(v) * f.denominator + f.epsilon)) + f.decay * parameter[i];
  }
}

void lamb_step(const float* __restrict first, const float* __restrict second, float* __restrict parameter, Count count,
               const AdamWFactors& factors, float rate) {
  const AdamWFactors f = factors;
  for (Count i = 0; i < count; ++i) {
    const float direction = f.step * (first[i] / (__builtin_sqrtf(second[i]) * f.denominator + f.epsilon));
    parameter[i] -= rate * (direction + f.decay * parameter[i]);
  }
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
