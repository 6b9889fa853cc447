#pragma once
/// Attention's sinks: each head has a learned logit, without key or value, beside the scores of each of its rows
/// (Agarwal et al. 2025, gpt-oss). With scores s and a sink z, a row's probabilities are exp(s) / (sum exp(s) +
/// exp(z)). With D = dy . y, which a row's gradients share, z's gradient is -exp(z) / (the same sum) D, summed over
/// rows.
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/cpu/machine.h"

namespace orrery::exec {

class Sinks {
 public:
  /// `operand`: index of the input with the sinks, if the operator has any.
  Sinks(const Call& call, std::size_t operand) : logits_(call.optional_input(operand, call.op.heads)) {}
  [[nodiscard]] bool any() const { return logits_ != nullptr; }
  [[nodiscard]] float of(std::int64_t head) const { return logits_[head]; }
  /// Turns a row's probabilities and the log of their sum, computed without the sink, into those with it.
  float join(float* probabilities, std::int64_t count, std::int64_t head, float lse) const {
    if (!any()) return lse;
    const float all = std::max(lse, of(head)) + std::log1p(std::exp(-std::abs(lse - of(head))));
    const float keep = std::exp(lse - all);
    for (std::int64_t i = 0; i < count; ++i) probabilities[i] *= keep;
    return all;
  }
  /// Adds the sums, one per head and sequence, to the sinks' gradients in output `operand`, in the order of the
  /// sequences, whatever the number of threads.
  static void add(const Call& call, std::size_t operand, const std::vector<double>& sums) {
    const auto heads = static_cast<std::size_t>(call.op.heads);
    float* gradients = call.output(operand, call.op.heads);
    for (std::size_t head = 0; head < heads; ++head) {
      double sum = 0;
      for (std::size_t i = head; i < sums.size(); i += heads) sum += sums[i];
      gradients[head] += static_cast<float>(sum);
    }
  }

 private:
  const float* logits_;
};

}  // namespace orrery::exec
