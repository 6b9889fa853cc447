#pragma once
/// How many tokens a model is best trained on, as two papers say, and what loss to expect: closed forms with their
/// published constants. N: parameters, D: tokens, C = 6 N D: FLOPs of training.
#include <optional>
#include <string>
#include <vector>

namespace orrery::cost {

/// A law's advice.
struct ComputeOptimal {
  std::string law;      ///< "Hoffmann et al. 2022"; of its second fit "the same, approach 3"
  std::string formula;  ///< with its constants and where they stand
  double parameters = 0, tokens = 0;
  [[nodiscard]] double flops() const { return 6 * parameters * tokens; }
};

/// The tokens at which a model of `parameters` is the best use of the FLOPs that they take. The first is Hoffmann et
/// al.'s approach 1, which runs go by; then their approach 3, then Kaplan et al. All inputs above 0.
[[nodiscard]] std::vector<ComputeOptimal> compute_optimal_tokens(double parameters);
/// The model and the tokens that a budget of `flops` is best spent on, by the same laws.
[[nodiscard]] std::vector<ComputeOptimal> compute_optimal_model(double flops);

/// Tokens that a budget pays for: C / 6N.
[[nodiscard]] double tokens_for(double flops, double parameters);

/// Cross-entropy in nats per token of their data and tokenizer: E + A / N^alpha + B / D^beta (Hoffmann et al. 2022,
/// equation 10). For comparing choices, not for promising a loss.
[[nodiscard]] double expected_loss(double parameters, double tokens);

}  // namespace orrery::cost
