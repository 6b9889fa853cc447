#pragma once
/// Holds the replay, which is what `plan` and `simulate` tell, against published rows.
#include <atomic>
#include <cstddef>
#include <functional>

#include "cost/parameters/intervals.h"
#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

[[nodiscard]] cost::ErrorSummary summary_of(std::vector<double> errors);

struct ValidateOptions {
  int threads = 1;                                 ///< that share the rows; the result is the same with any number
  std::function<void(std::size_t)> progress = {};  ///< told now and then how many cases are begun
  const std::atomic<bool>* stop = nullptr;         ///< set: what is not predicted by then is missing from the result
};

/// Predicts what could be made ready, each with its interval where `intervals` has one.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, const Cases& cases,
                                        const cost::Intervals& intervals = {}, const ValidateOptions& options = {});

/// Predicts every row that can be expressed; the rest is left out with its reason. `progress` is told how many rows are
/// done and may stop the work by returning false: what is done is returned.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, Library library,
                                        const std::function<bool(std::size_t)>& progress = {});

}  // namespace orrery::sim
