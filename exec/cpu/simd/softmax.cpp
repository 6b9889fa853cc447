// Softmax over rows, for attention scores and for the logits of the loss.
#include "exec/cpu/simd/functions.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

float softmax_row(float* scores, Count count, float scale) {
  const float max = largest_of(scores, count) * scale;
  const float total = sum_of(count, [&](auto at) {
    const F p = exponential(at.get(scores, -__builtin_inff()) * scale - max);
    at.put(scores, p);
    return p;
  });
  const float factor = 1.0F / total;
  for_each(count, [&](auto at) { at.put(scores, at.get(scores) * factor); });
  return max + __builtin_logf(total);
}

void probabilities_row(float* scores, Count count, float scale, float lse) {
  for_each(count, [&](auto at) { at.put(scores, exponential(at.get(scores) * scale - lse)); });
}

void softmax_grad_row(const float* p, float* dp, Count count, float scale, float subtrahend) {
  for_each(count, [&](auto at) { at.put(dp, at.get(p) * (at.get(dp) - subtrahend) * scale); });
}

float dot(const float* a, const float* b, Count count) {
  return sum_of(count, [&](auto at) { return at.get(a) * at.get(b); });
}

void row_max(const float* logits, float* max, Count rows, Count stride, Count columns) {
  for (Count row = 0; row < rows; ++row) max[row] = largest_of(logits + row * stride, columns);
}

void row_exp_sum(const float* logits, const float* max, float* total, Count rows, Count stride, Count columns) {
  for (Count row = 0; row < rows; ++row) {
    const float* l = logits + row * stride;
    const float m = max[row];
    total[row] = sum_of(columns, [&](auto at) { return exponential(at.get(l, -__builtin_inff()) - m); });
  }
}

void row_softmax(const float* logits, const float* max, const float* total, float* dlogits, Count rows, Count stride,
                 Count columns, float scale) {
  for (Count row = 0; row < rows; ++row) {
    const float* l = logits + row * stride;
    float* d = dlogits + row * stride;
    const float m = max[row];
    const float factor = scale / total[row];
    for_each(columns, [&](auto at) { at.put(d, exponential(at.get(l) - m) * factor); });
    for (Count column = columns; column < stride; ++column) d[column] = 0.0F;
  }
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
