#pragma once
/// What fits are worth on rows they have not seen: numbers fitted with one source left out at a time, or, where a
/// family of stacks has but one source, one model (equal layers and hidden) at a time; and intervals made of the
/// residuals of other folds.
///
/// An interval is a pair of weighted quantiles of ln(measured / predicted) over left-out rows. A row of a source of n
/// rows weighs 1/sqrt(n), more where its software is that of the row in question, and where it too runs on one node or
/// on several: with many rows of its own a stack has its own interval, with few that of all. The interval of a fold
/// uses residuals of the other folds only, each from a fit without either fold.
#include <functional>
#include <string>
#include <vector>

#include "cost/parameters/intervals.h"
#include "cost/parameters/validation.h"
#include "sim/validate/fit.h"

namespace orrery::sim {

/// ln(measured / predicted) of a row, and what it is like.
struct LogResidual {
  double value = 0;
  std::string source, stack;
  bool several_nodes = false;
};

/// 10th and 90th percentile of measured / predicted for runs of `stack`; 1 and 1 without residuals.
[[nodiscard]] cost::Interval spread_over(const std::vector<LogResidual>& residuals, const std::string& stack,
                                         bool several_nodes);

/// `go_on` is asked often; when false, what is done so far is returned as incomplete. `progress` is told how much of
/// the work is done, from 0 to 1.
[[nodiscard]] cost::CrossValidation cross_validate(const std::vector<Row>& rows, const Cases& cases,
                                                   StackFitter& fitter, const std::function<bool()>& go_on = {},
                                                   const std::function<void(double)>& progress = {});

/// The same where each source counts as one, however many rows it has: what a source that nobody has seen is like.
[[nodiscard]] cost::Interval spread_over_sources(const std::vector<LogResidual>& residuals, bool several_nodes);

/// Spreads of the generic stacks: every row of their kind is predicted as if its software were unknown. `library` has
/// the stacks.
[[nodiscard]] std::vector<cost::Spread> generic_spreads(const std::vector<Row>& rows, const Library& library);

/// What the measured rows of each stack are of, three of a kind at least. Of generic stacks nothing: what they stand
/// for has run anywhere.
[[nodiscard]] std::vector<cost::Ground> grounds_of(const std::vector<Row>& rows, const Cases& cases);

/// Intervals for predictions with numbers fitted to all rows: from the left-out residuals of step times, and, since no
/// number is fitted to memory, from all residuals of memory. A spread for each of `stacks` and for any other, on one
/// node and on several.
[[nodiscard]] cost::Intervals intervals_from(const std::vector<Row>& rows, const Cases& cases,
                                             const cost::CrossValidation& left_out,
                                             const std::vector<std::string>& stacks);

}  // namespace orrery::sim
