#pragma once
/// Spikes: a loss or a gradient norm far above its values in the last steps, judged by the median and the median
/// absolute deviation, which a few outliers hardly change (Iglewicz and Hoaglin 1993, modified z-scores).
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace orrery::exec {

struct Spike {
  std::string quantity;  ///< "loss", "gradient_norm"
  double value = 0, median = 0;
  double score = 0;  ///< modified z-score; for the norm, which varies by factors, that of its logarithm
};

class SpikeDetector {
 public:
  /// Number of past steps considered; how many of them are required; and the score from which a value is a spike.
  static constexpr std::size_t kWindow = 64, kLeast = 24;
  static constexpr double kFar = 10;

  /// Takes the values of a finished step. Values that are not finite are left to other guards.
  [[nodiscard]] std::vector<Spike> see(double loss, double gradient_norm);

 private:
  std::deque<double> losses_, norms_;
};

}  // namespace orrery::exec
