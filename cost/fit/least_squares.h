#pragma once
/// Robust least squares over logarithms of positive unknowns: Gauss-Newton (Eigen QR), Huber weights recomputed each
/// round (Huber 1964), and a prior on every unknown, so that one which the data does not determine keeps its value.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace orrery::cost {

struct Unknown {
  double start = 0;          ///< natural logarithm of the prior value
  double prior = 1;          ///< standard deviation of the prior, in log units
  double low = 0, high = 0;  ///< bounds of the value; a low of 0 means unbounded
};

/// The value of an unknown's logarithm, within its bounds: exp(log(10)) is a little more than 10, which a file that
/// knows the bound would refuse.
[[nodiscard]] inline double value_between(double theta, double low, double high) {
  return std::clamp(std::exp(theta), low, high);
}

/// log(predicted / measured) of every observation, given the logarithms of the unknowns.
using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;

struct Solved {
  std::vector<double> theta;        ///< logarithms of the unknowns
  std::vector<double> sensitivity;  ///< norm of each unknown's column of the Jacobian: 0 if no residual depends on it
};

/// `weights` multiply residuals, one each. `huber` is in units of the residuals' scale.
[[nodiscard]] Solved least_squares(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                   const Residuals& residuals, double huber, int rounds);

/// The result of one more round from `theta` without each observation in turn, and the uncertainty of the unknowns
/// given all observations and priors (covariance of their logarithms). Both are for the linearised problem.
struct LeftOneOut {
  std::vector<std::vector<double>> theta;       ///< by observation
  std::vector<std::vector<double>> covariance;  ///< by unknown, by unknown
};
[[nodiscard]] LeftOneOut left_one_out(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                      const Residuals& residuals, double huber, const std::vector<double>& theta);

}  // namespace orrery::cost
