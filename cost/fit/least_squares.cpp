/// Gauss-Newton with Huber weights and priors.
#include "cost/fit/least_squares.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::cost {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

/// The smallest meaningful spread of log residuals: timers and schedulers cause about this much.
constexpr double kLeastScale = 0.02;
/// Step of the finite differences, in log units.
constexpr double kDifference = 1e-4;
/// Largest change of an unknown in one round, in log units: a factor of e.
constexpr double kLongestStep = 1.0;

VectorXd vector_of(const std::vector<double>& values) {
  return Eigen::Map<const VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
}

class Solver {
 public:
  Solver(const std::vector<Unknown>& unknowns, const std::vector<double>& weights, const Residuals& residuals,
         double huber, int rounds)
      : unknowns_(unknowns), residuals_(residuals), huber_(huber), rounds_(rounds), weight_(vector_of(weights)) {
    theta_ = VectorXd(static_cast<Eigen::Index>(unknowns_.size()));
    for (std::size_t j = 0; j < unknowns_.size(); ++j) theta_[static_cast<Eigen::Index>(j)] = unknowns_[j].start;
  }

  /// Gauss-Newton with Huber weights.
  Solved run() {
    VectorXd residuals = residuals_at(theta_);
    for (int round = 0; round < rounds_; ++round) {
      const MatrixXd jacobian = jacobian_at(theta_, residuals);
      const double scale = scale_of(residuals);
      const VectorXd step = solve_round(jacobian, residuals, scale);
      const VectorXd next = bounded(theta_ + step);
      const double moved = (next - theta_).cwiseAbs().maxCoeff();
      double factor = 1;  // halve the step while it increases the error
      VectorXd tried = next, after = residuals_at(next);
      while (factor > 1e-3 && objective(after, tried, scale) > objective(residuals, theta_, scale) + 1e-12) {
        factor /= 2;
        tried = bounded(theta_ + factor * step);
        after = residuals_at(tried);
      }
      theta_ = tried;
      residuals = after;
      if (moved * factor < 1e-5) break;
    }
    const VectorXd sensitivity = jacobian_at(theta_, residuals).colwise().norm();
    return {{theta_.begin(), theta_.end()}, {sensitivity.begin(), sensitivity.end()}};
  }

  LeftOneOut without_each(const std::vector<double>& theta) {
    theta_ = vector_of(theta);
    const VectorXd residuals = residuals_at(theta_);
    const MatrixXd jacobian = jacobian_at(theta_, residuals);
    const double scale = scale_of(residuals);
    const Eigen::Index k = theta_.size();
    MatrixXd all = MatrixXd::Zero(k, k);
    VectorXd pull(k);
    for (Eigen::Index j = 0; j < k; ++j) {
      const Unknown& unknown = unknowns_[static_cast<std::size_t>(j)];
      all(j, j) = 1 / (unknown.prior * unknown.prior);
      pull[j] = (unknown.start - theta_[j]) * all(j, j);
    }
    VectorXd weight(residuals.size());
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      weight[i] = weight_[i] * weight_[i] * huber_weight(residuals[i], scale) / (scale * scale);
      all += weight[i] * jacobian.row(i).transpose() * jacobian.row(i);
      pull -= weight[i] * residuals[i] * jacobian.row(i).transpose();
    }
    LeftOneOut out;
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      const MatrixXd others = all - weight[i] * jacobian.row(i).transpose() * jacobian.row(i);
      const VectorXd step =
          others.colPivHouseholderQr().solve(pull + weight[i] * residuals[i] * jacobian.row(i).transpose());
      const VectorXd at = bounded(theta_ + step.cwiseMax(-kLongestStep).cwiseMin(kLongestStep));
      out.theta.emplace_back(at.begin(), at.end());
    }
    const MatrixXd covariance = all.inverse();
    for (Eigen::Index j = 0; j < k; ++j) {
      out.covariance.emplace_back();
      for (Eigen::Index l = 0; l < k; ++l) out.covariance.back().push_back(covariance(j, l));
    }
    return out;
  }

 private:
  [[nodiscard]] VectorXd residuals_at(const VectorXd& theta) const {
    return vector_of(residuals_({theta.begin(), theta.end()}));
  }

  [[nodiscard]] MatrixXd jacobian_at(const VectorXd& theta, const VectorXd& residuals) const {
    MatrixXd out(residuals.size(), theta.size());
    for (Eigen::Index j = 0; j < theta.size(); ++j) {
      VectorXd shifted = theta;
      shifted[j] += kDifference;
      out.col(j) = (residuals_at(shifted) - residuals) / kDifference;
    }
    return out;
  }

  /// Weighted median of the absolute residuals, scaled to a normal distribution's standard deviation.
  [[nodiscard]] double scale_of(const VectorXd& residuals) const {
    std::vector<std::pair<double, double>> sizes;  // absolute residual, weight
    double total = 0;
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      sizes.emplace_back(std::abs(residuals[i]), weight_[i] * weight_[i]);
      total += sizes.back().second;
    }
    std::sort(sizes.begin(), sizes.end());
    double below = 0;
    for (const auto& [size, weight] : sizes) {
      below += weight;
      if (below >= total / 2) return std::max(kLeastScale, 1.4826 * size);
    }
    return kLeastScale;
  }

  [[nodiscard]] double huber_weight(double residual, double scale) const {
    const double size = std::abs(residual) / scale;
    return size <= huber_ ? 1 : huber_ / size;
  }

  [[nodiscard]] double objective(const VectorXd& residuals, const VectorXd& theta, double scale) const {
    double sum = 0;
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      const double size = std::abs(residuals[i]) / scale;
      const double loss = size <= huber_ ? size * size / 2 : huber_ * (size - huber_ / 2);
      sum += weight_[i] * weight_[i] * loss;
    }
    for (std::size_t j = 0; j < unknowns_.size(); ++j) {
      const double pull = (theta[static_cast<Eigen::Index>(j)] - unknowns_[j].start) / unknowns_[j].prior;
      sum += pull * pull / 2;
    }
    return sum;
  }

  [[nodiscard]] VectorXd solve_round(const MatrixXd& jacobian, const VectorXd& residuals, double scale) const {
    const Eigen::Index n = residuals.size(), k = theta_.size();
    MatrixXd a = MatrixXd::Zero(n + k, k);
    VectorXd b = VectorXd::Zero(n + k);
    for (Eigen::Index i = 0; i < n; ++i) {
      const double w = weight_[i] * std::sqrt(huber_weight(residuals[i], scale)) / scale;
      a.row(i) = w * jacobian.row(i);
      b[i] = -w * residuals[i];
    }
    for (Eigen::Index j = 0; j < k; ++j) {
      const Unknown& unknown = unknowns_[static_cast<std::size_t>(j)];
      a(n + j, j) = 1 / unknown.prior;
      b[n + j] = (unknown.start - theta_[j]) / unknown.prior;
    }
    VectorXd step = a.colPivHouseholderQr().solve(b);
    return step.cwiseMax(-kLongestStep).cwiseMin(kLongestStep);
  }

  [[nodiscard]] VectorXd bounded(VectorXd theta) const {
    for (std::size_t j = 0; j < unknowns_.size(); ++j) {
      double& t = theta[static_cast<Eigen::Index>(j)];
      t = std::min(t, std::log(unknowns_[j].high));
      if (unknowns_[j].low > 0) t = std::max(t, std::log(unknowns_[j].low));
    }
    return theta;
  }

  const std::vector<Unknown>& unknowns_;
  const Residuals& residuals_;
  const double huber_;
  const int rounds_;
  VectorXd theta_, weight_;
};

}  // namespace

Solved least_squares(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                     const Residuals& residuals, double huber, int rounds) {
  if (unknowns.empty()) return {};
  return Solver(unknowns, weights, residuals, huber, rounds).run();
}

LeftOneOut left_one_out(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                        const Residuals& residuals, double huber, const std::vector<double>& theta) {
  if (unknowns.empty()) return {};
  return Solver(unknowns, weights, residuals, huber, 0).without_each(theta);
}

}  // namespace orrery::cost
