#pragma once
/// How a layer's tokens are divided among its experts, as an assumed distribution: how far the fullest rank's load is
/// above the mean.
#include <cstdint>
#include <vector>

namespace orrery::models {

/// Each expert's share of all choices, in falling order: the i-th share is i^-exponent (Zipf 1949), at most 1/chosen,
/// which is an expert that every token takes. What that limit cuts off goes to the others in equal parts. exponent 0:
/// even shares.
[[nodiscard]] std::vector<double> zipf_loads(std::int64_t experts, std::int64_t chosen, double exponent);

/// The load of the fullest of `ranks` / the mean, for ranks with the same number of experts each, in arbitrary order:
/// the mean over 256 orders, drawn from a fixed seed. `ranks` divides the number of loads.
[[nodiscard]] double fullest_over_mean(const std::vector<double>& loads, std::int64_t ranks);
/// The same for experts in the order of `loads`, as a run's log has them.
[[nodiscard]] double fullest_in_order(const std::vector<double>& loads, std::int64_t ranks);

}  // namespace orrery::models
