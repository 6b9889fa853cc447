#pragma once
/// What `calibrate --rows` finds out, as a plain record.
#include <cstddef>
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "cost/parameters/validation.h"

namespace orrery::cost {

/// A run that is not among the rows, and how far its step time is known: one standard deviation of its logarithm.
struct TeachingRun {
  std::string what;  ///< devices and plan in words
  double predicted_s = 0, uncertainty = 0;
};

struct RowFit {
  Stack stack;                        ///< with its numbers, and `fitted`
  std::string like;                   ///< the stack that it began as
  std::size_t given = 0, used = 0;    ///< rows
  std::vector<LeftOutRow> left_out;   ///< the others
  std::vector<FittedNumber> numbers;  ///< those of the recipe of memory begin with "memory."
  ErrorSummary before, after;         ///< of step times: as the stack was, and as fitted, in-sample
  ErrorSummary left_one_out;          ///< with each run left out
  ErrorSummary memory_before, memory_after;
  std::vector<TeachingRun> teaching;  ///< what would teach most, best first
};

}  // namespace orrery::cost
