#pragma once
/// Fits a stack to a handful of runs that state their split and what they took: `calibrate --rows`.
///
/// The few numbers of a stack (and of the network as it sees it) are the most probable ones under Huber's loss on
/// ln(predicted / measured) and a normal prior on each number's logarithm, around the stack that is given as the
/// family's: sixteen rows move what they tell, and one outlier moves little. Times are those of the closed form, as
/// `validate` has them. Numbers of memory are fitted apart, to peaks where they are given, to runs that died for lack
/// of memory (it was to need more than there is) and to those that did not.
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/fit/row_fit.h"
#include "cost/parameters/intervals.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

struct RowFitOptions {
  std::string name;  ///< of the stack
  /// Told what is being done; false: stop.
  std::function<bool(const std::string&)> progress;
};

/// F05: no row has a time or a peak that can be predicted. Stopped by `progress`, an empty list of diagnostics.
[[nodiscard]] base::Result<cost::RowFit> fit_rows(const std::vector<Row>& rows, Library library,
                                                  const cost::Stack& like, const cost::Intervals& intervals,
                                                  const RowFitOptions& options);

}  // namespace orrery::sim
