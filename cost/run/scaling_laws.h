#pragma once
/// The best number of training tokens for a model according to two papers, and the loss to expect: closed forms with
/// their published constants. N: parameters, D: tokens, C = 6 N D: training FLOPs.
#include <optional>
#include <string>
#include <vector>

namespace orrery::cost {

/// A law's advice.
struct ComputeOptimal {
  std::string law;      ///< "Hoffmann et al. 2022"; for its second fit "the same, approach 3"
  std::string formula;  ///< with its constants and their source
  double parameters = 0, tokens = 0;
  [[nodiscard]] double flops() const { return 6 * parameters * tokens; }
};

/// The tokens at which a model of `parameters` makes the best use of its training FLOPs. First Hoffmann et al.'s
/// approach 1, which practice follows; then their approach 3, then Kaplan et al. All inputs above 0.
[[nodiscard]] std::vector<ComputeOptimal> compute_optimal_tokens(double parameters);
/// The best model and number of tokens for a budget of `flops`, by the same laws.
[[nodiscard]] std::vector<ComputeOptimal> compute_optimal_model(double flops);

/// Tokens that a budget pays for: C / 6N.
[[nodiscard]] double tokens_for(double flops, double parameters);

/// Cross-entropy in nats per token of their data and tokenizer: E + A / N^alpha + B / D^beta (Hoffmann et al. 2022,
/// equation 10). For comparing choices, not for predicting a loss.
[[nodiscard]] double expected_loss(double parameters, double tokens);

}  // namespace orrery::cost
