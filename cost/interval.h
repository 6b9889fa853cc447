#pragma once
/// The interval of a prediction or of a measured value.

namespace orrery::cost {

/// A range that contains a measured value with a probability of 80 %: from the 10th to the 90th percentile.
struct Interval {
  double low = 0, high = 0;
  bool operator==(const Interval&) const = default;
};

}  // namespace orrery::cost
