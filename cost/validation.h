#pragma once
/// What `validate` finds out beside errors, as plain records: fits of the stacks' numbers.
#include <cstddef>
#include <string>
#include <vector>

namespace orrery::cost {

/// A number of a stack that was chosen over measured rows, in SI units.
struct FittedNumber {
  std::string stack, parameter;
  double before = 0, after = 0;
  std::string source;  ///< names the sources it was chosen over, or whom it follows
};

/// Stacks whose numbers hang together, fitted together.
struct FamilyFit {
  std::vector<std::string> stacks;
  std::size_t rows = 0;
  double error_before = 0, error_after = 0;  ///< median of |predicted / measured - 1|
  std::vector<FittedNumber> numbers;         ///< of all its stacks, those that follow others' too
};

}  // namespace orrery::cost
