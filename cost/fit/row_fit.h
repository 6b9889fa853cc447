#pragma once
/// Results of `calibrate --rows`, as a plain record.
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/parameters/stack.h"
#include "cost/parameters/validation.h"

namespace orrery::cost {

/// A possible further run, and the uncertainty of its step time: one standard deviation of its logarithm.
struct TeachingRun {
  std::string what;  ///< devices and plan in words
  double predicted_s = 0, uncertainty = 0;
};

struct RowFit {
  Stack stack;                        ///< with the fitted numbers, and `fitted`
  std::string like;                   ///< the stack that the fit started from
  std::size_t given = 0, used = 0;    ///< rows
  std::vector<LeftOutRow> left_out;   ///< the rows not used
  std::vector<FittedNumber> numbers;  ///< numbers of the memory recipe begin with "memory."
  ErrorSummary before, after;         ///< of step times: before the fit, and after it, in-sample
  ErrorSummary left_one_out;          ///< each run predicted without itself
  ErrorSummary memory_before, memory_after;
  std::vector<TeachingRun> teaching;  ///< the runs that would teach most, best first
  base::Diagnostics warnings;         ///< V07: devices of which others' numbers are taken
};

}  // namespace orrery::cost
