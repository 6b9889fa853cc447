#pragma once
/// Fits a stack to a few runs that state their split and their time: `calibrate --rows`.
///
/// The few numbers of a stack (and of the network as it sees it) are the most probable ones under Huber's loss on
/// ln(predicted / measured) and a normal prior on each number's logarithm, centred on the given stack of the family. So
/// sixteen rows move the numbers that they determine, and one outlier moves little. Times are those of the closed form,
/// as in `validate`. Memory numbers are fitted separately: to peaks if given, to runs that ran out of memory (they must
/// need more than there is) and to those that did not.
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/fit/row_fit.h"
#include "cost/parameters/intervals.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// The beginning of a fitted number's source.
inline constexpr const char* kFittedToRuns = "fitted to";

struct RowFitOptions {
  std::string name;  ///< of the stack
  /// Called with the current activity; returning false stops.
  std::function<bool(const std::string&)> progress;
};

/// F05: no row has a time or a peak that can be predicted. An empty list of diagnostics if `progress` stopped it.
[[nodiscard]] base::Result<cost::RowFit> fit_rows(const std::vector<Row>& rows, Library library,
                                                  const cost::Stack& like, const cost::Intervals& intervals,
                                                  const RowFitOptions& options);

}  // namespace orrery::sim
