#pragma once
/// How a layer's tokens are divided among its experts, as a stated distribution: what the fullest of the ranks that
/// have them gets over the mean.
#include <cstdint>
#include <vector>

namespace orrery::models {

/// Shares of all choices that go to each of `experts`, in falling order: the i-th as i^-exponent (Zipf 1949), none
/// above 1/chosen, which is an expert that every token takes; what that cuts off goes to the others alike. exponent 0:
/// even.
[[nodiscard]] std::vector<double> zipf_loads(std::int64_t experts, std::int64_t chosen, double exponent);

/// The fullest of `ranks` that have as many experts each, over the mean: where experts stand in any order, the mean
/// over 256 orders that are drawn from a fixed seed. `ranks` divides the number of loads.
[[nodiscard]] double fullest_over_mean(const std::vector<double>& loads, std::int64_t ranks);
/// The same for experts that stand in the order of `loads`, as a run's log has them.
[[nodiscard]] double fullest_in_order(const std::vector<double>& loads, std::int64_t ranks);

}  // namespace orrery::models
