/// Hoffmann et al., "Training Compute-Optimal Large Language Models", 2022; Kaplan et al., "Scaling Laws for Neural
/// Language Models", 2020.
#include "cost/run/scaling_laws.h"

#include <cmath>

namespace orrery::cost {
namespace {

constexpr double kPerToken = 6;  // FLOPs per parameter and token, forward and backward: both papers

/// Hoffmann et al., approach 1: tables 2 (N and D grow as C^0.50) and 3 (1 B parameters: 20.2 B tokens).
constexpr double kTokensPerParameter = 20.2;

/// Hoffmann et al., equation 10.
constexpr double kE = 1.69, kA = 406.4, kB = 410.7, kAlpha = 0.34, kBeta = 0.28;
/// Their equation 4: N = G (C/6)^a, D = (C/6)^b / G.
const double kG = std::pow(kAlpha * kA / (kBeta * kB), 1 / (kAlpha + kBeta));
constexpr double kGrowthOfN = kBeta / (kAlpha + kBeta), kGrowthOfD = kAlpha / (kAlpha + kBeta);

/// Kaplan et al., appendix A, compute-efficient frontier: N = 1.3e9 C^0.73, D = 2e10 C^0.27, C in PF-days.
constexpr double kPfDay = 1e15 * 86400;
constexpr double kKaplanN = 1.3e9, kKaplanGrowthOfN = 0.73, kKaplanD = 2e10, kKaplanGrowthOfD = 0.27;

const char* const kHoffmann = "Hoffmann et al. 2022";
const char* const kHoffmann3 = "the same, approach 3";
const char* const kKaplan = "Kaplan et al. 2020";
const char* const kFormula1 = "approach 1: D = 20.2 N (table 3: 1 B parameters, 20.2 B tokens; table 2: both ~ C^0.50)";
const char* const kFormula3 =
    "equations 4 and 10 as printed: N = G (C/6)^0.45, D = (C/6)^0.55 / G, of E 1.69, A 406.4, B 410.7, alpha 0.34, "
    "beta 0.28";
const char* const kFormulaKaplan =
    "appendix A: N = 1.3e9 C^0.73, D = 2e10 C^0.27, C in PF-days far below the critical batch, N without "
    "embeddings; fitted apart, so that 6 N D is not quite C";

}  // namespace

std::vector<ComputeOptimal> compute_optimal_tokens(double n) {
  const double flops_over_six = std::pow(n / kG, 1 / kGrowthOfN);
  const double days = std::pow(n / kKaplanN, 1 / kKaplanGrowthOfN);
  return {{kHoffmann, kFormula1, n, kTokensPerParameter * n},
          {kHoffmann3, kFormula3, n, std::pow(flops_over_six, kGrowthOfD) / kG},
          {kKaplan, kFormulaKaplan, n, kKaplanD * std::pow(days, kKaplanGrowthOfD)}};
}

std::vector<ComputeOptimal> compute_optimal_model(double flops) {
  const double n = std::sqrt(flops / (kPerToken * kTokensPerParameter));
  const double days = flops / kPfDay;
  return {{kHoffmann, kFormula1, n, kTokensPerParameter * n},
          {kHoffmann3, kFormula3, kG * std::pow(flops / kPerToken, kGrowthOfN),
           std::pow(flops / kPerToken, kGrowthOfD) / kG},
          {kKaplan, kFormulaKaplan, kKaplanN * std::pow(days, kKaplanGrowthOfN),
           kKaplanD * std::pow(days, kKaplanGrowthOfD)}};
}

double tokens_for(double flops, double parameters) {
  return flops / (kPerToken * parameters);
}

double expected_loss(double parameters, double tokens) {
  return kE + kA / std::pow(parameters, kAlpha) + kB / std::pow(tokens, kBeta);
}

}  // namespace orrery::cost
