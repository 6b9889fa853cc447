#pragma once
/// Compares the replay, which `plan` and `simulate` report, with published rows.
#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "cost/parameters/intervals.h"
#include "cost/parameters/stack.h"
#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

[[nodiscard]] cost::ErrorSummary summary_of(std::vector<double> errors);

struct ValidateOptions {
  int threads = 1;                                 ///< the result does not depend on their number
  std::function<void(std::size_t)> progress = {};  ///< called at intervals with the number of cases begun
  const std::atomic<bool>* stop = nullptr;         ///< when set: cases not yet predicted are missing from the result
  /// The catalogue's stacks, whose numbers those of the cases' stacks may follow ("as NAME"); none: the cases' alone.
  const std::vector<cost::Stack>* stacks = nullptr;
};

/// Predicts the prepared cases, each with its interval if `intervals` has one.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, const Cases& cases,
                                        const cost::Intervals& intervals = {}, const ValidateOptions& options = {});

/// Predicts every row that can be expressed; the others are left out with a reason. `progress` is called with the
/// number of rows done; returning false stops, and what is done is returned.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, Library library,
                                        const std::function<bool(std::size_t)>& progress = {});

}  // namespace orrery::sim
