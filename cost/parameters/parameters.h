#pragma once
/// The coefficients that predictions rest on, by name: meaning, unit and range. A calibration file may contain only
/// these, so that a misspelt coefficient is an error and not a silent default.
///
/// Names: `device.*` belong to a kind of device, `network.*` to its links, `stack.*` to the software.
/// `device.*` and `network.*` are shared by all stacks; `stack.*` belong to one.
#include <optional>
#include <string>
#include <vector>

#include "models/dtype.h"
#include "models/operators/price_family.h"

namespace orrery::cost {

enum class Unit { number, seconds, bytes, bytes_per_second };

/// The definition of a coefficient. `low` and `high` bound plausible values, in SI units. `prior`: standard deviation
/// of the natural logarithm of the default's error, assumed before any measurement; 0: never fitted.
struct ParameterKind {
  std::string name;
  Unit unit = Unit::number;
  double low = 0, high = 0;
  double prior = 0;
  std::string meaning;
};

using models::PriceFamily;
inline constexpr int kFamilies = static_cast<int>(models::kPriceFamilies.size());

/// All known coefficients, sorted by name. Builds a new vector on each call.
[[nodiscard]] std::vector<ParameterKind> known_parameters();
[[nodiscard]] std::optional<ParameterKind> known_parameter(const std::string& name);
[[nodiscard]] Unit unit_of(const std::string& parameter);  ///< number if unknown
[[nodiscard]] const char* name_of(Unit unit);
/// The value with its unit as in a calibration file: "12.3 us", "0.87".
[[nodiscard]] std::string parameter_text(double value, Unit unit);
/// A coefficient as a file has it, beneath `parameters`: NAME: {value: …, source: "…"}, on one line or more.
[[nodiscard]] std::string parameter_row(const std::string& name, double value, Unit unit, const std::string& source);

}  // namespace orrery::cost
