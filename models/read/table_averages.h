#pragma once
/// Tables of which averages alone are known, as papers state them: "1,000 tables, 15 lookups each on average, 793 B
/// parameters".
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::models {

/// `count` whole numbers of at least 1 that sum to `total` (at least `count`) and are, up to rounding, one more than
/// proportional to the quantiles (i + 1/2)/count of a log-normal distribution, in rising order. `spread`: standard
/// deviation of the natural logarithm; 0: as equal as whole numbers can be. Deterministic.
[[nodiscard]] std::vector<std::int64_t> spread_out(std::int64_t total, std::int64_t count, double spread);

/// `values` in an order that does not depend on them: the same for the same number of values.
[[nodiscard]] std::vector<std::int64_t> mixed(const std::vector<std::int64_t>& values);

/// "8,260,417 on average, from 41 to 9,000,000, log-normal with spread 1.5"
[[nodiscard]] std::string spread_text(const std::vector<std::int64_t>& values, double spread);

}  // namespace orrery::models
