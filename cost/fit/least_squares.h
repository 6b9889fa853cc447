#pragma once
/// Robust least squares over logarithms of positive unknowns: Gauss-Newton (Eigen QR), Huber weights re-computed each
/// round (Huber 1964), and a prior on every unknown, so that one which the data does not reveal stays where it was.
#include <functional>
#include <vector>

namespace orrery::cost {

struct Unknown {
  double start = 0;          ///< natural logarithm of the value believed before
  double prior = 1;          ///< width of that belief, in log units
  double low = 0, high = 0;  ///< of the value; a low of 0 is no bound
};

/// log(predicted / measured) of every observation at the logarithms of the unknowns.
using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;

struct Solved {
  std::vector<double> theta;        ///< logarithms of the unknowns
  std::vector<double> sensitivity;  ///< norm of each unknown's column of the Jacobian: 0 where nothing depends on it
};

/// `weights` multiply residuals, one for each. `huber` in units of the residuals' scale.
[[nodiscard]] Solved least_squares(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                   const Residuals& residuals, double huber, int rounds);

/// What one more round from `theta` makes of it without each observation, and how sure the unknowns are with all:
/// covariance of their logarithms, with the priors. Both are of the linearised problem.
struct LeftOneOut {
  std::vector<std::vector<double>> theta;       ///< by observation
  std::vector<std::vector<double>> covariance;  ///< by unknown, by unknown
};
[[nodiscard]] LeftOneOut left_one_out(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                      const Residuals& residuals, double huber, const std::vector<double>& theta);

}  // namespace orrery::cost
