#pragma once
/// How well fits predict unseen rows: numbers fitted with one source left out at a time or, if a family of stacks has
/// only one source, one model (equal layers and hidden) at a time; and intervals from the residuals of other folds.
///
/// An interval is a pair of weighted quantiles of ln(measured / predicted) over left-out rows. A row from a source of n
/// rows weighs 1/sqrt(n), more if its software is that of the row in question, and more if both run on one node or both
/// on several: a stack with many rows gets its own interval, one with few the interval of all. The interval of a fold
/// uses only residuals of the other folds, each from a fit without either fold.
#include <functional>
#include <string>
#include <vector>

#include "cost/parameters/intervals.h"
#include "cost/parameters/validation.h"
#include "sim/validate/fit.h"

namespace orrery::sim {

/// ln(measured / predicted) of a row, and the properties that weigh it.
struct LogResidual {
  double value = 0;
  std::string source, stack;
  bool several_nodes = false;
  bool tables = false;  ///< of a recommendation model
};

/// 10th and 90th percentile of measured / predicted for runs of `stack`; 1 and 1 without residuals.
[[nodiscard]] cost::Interval spread_over(const std::vector<LogResidual>& residuals, const std::string& stack,
                                         bool several_nodes);

/// `go_on` is called often; when it returns false, the result so far is returned as incomplete. `progress` gets the
/// share of work done, from 0 to 1.
[[nodiscard]] cost::CrossValidation cross_validate(const std::vector<Row>& rows, const Cases& cases,
                                                   StackFitter& fitter, const std::function<bool()>& go_on = {},
                                                   const std::function<void(double)>& progress = {});

/// The same with equal weight for each source, whatever its number of rows, and wider the fewer they are: it holds four
/// of five unseen sources. Of fewer than nine it is all that they show, and holds n - 1 of n + 1.
[[nodiscard]] cost::Interval spread_over_sources(const std::vector<LogResidual>& residuals, bool several_nodes);

/// Spreads of the three kinds of unknown software (cost::is_kind): every row of a kind is predicted as if its software
/// were unknown. `library` contains the stacks. Other generic stacks have the eager one's spread.
[[nodiscard]] std::vector<cost::Spread> generic_spreads(const std::vector<Row>& rows, const Library& library);

/// The spreads of times of software without runs of its own, from rows of such software as `validate` predicts them,
/// those that a known stack stands for included. `predicted` is of these cases, complete. Of memory they say nothing.
[[nodiscard]] std::vector<cost::Spread> strangers_spreads(const std::vector<Row>& rows, const Cases& cases,
                                                          const cost::Validation& predicted);

/// What the measured rows of each stack cover, if at least three are of a kind. Nothing for generic stacks, because the
/// software that they represent has run anywhere.
[[nodiscard]] std::vector<cost::Ground> grounds_of(const std::vector<Row>& rows, const Cases& cases);

/// Intervals for predictions with numbers fitted to all rows: from the left-out residuals of step times and, since no
/// number is fitted to memory, from all residuals of memory. One spread for each of `stacks` and for any other, on one
/// node and on several, and last those of `generic`. Recommendation and language models say nothing about each other:
/// where no row of a kind states a time or a peak, its stacks have the spread of its generic stack.
[[nodiscard]] cost::Intervals intervals_from(const std::vector<Row>& rows, const Cases& cases,
                                             const cost::CrossValidation& left_out,
                                             const std::vector<cost::Stack>& stacks,
                                             const std::vector<cost::Spread>& generic);

}  // namespace orrery::sim
