#pragma once
/// Results of `validate` as plain records: predictions beside published rows, which plan wins, fits of the stacks'
/// numbers, and how well these predict rows that they have not seen.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/interval.h"

namespace orrery::cost {

/// The basis of a prediction.
enum class Basis : std::uint8_t {
  calibrated,    ///< runs of this very software, given by the user
  published,     ///< published runs of this software
  generic,       ///< software of its kind; no run of it is known
  uncalibrated,  ///< described, never compared with a run
};
[[nodiscard]] const char* name_of(Basis evidence);

/// A published row beside its prediction. What the row does not state is missing here.
struct ValidatedRow {
  std::string id, source, stack, plan;
  double predicted_s = 0, predicted_bytes = 0;  ///< of a training step; of the worst device at its peak
  std::optional<double> measured_s, measured_bytes;
  std::vector<std::string> notes;  ///< defaults used for what the row leaves open
  std::optional<Interval> time_s, bytes;
  bool out_of_memory = false;  ///< it ran out of memory: judged by `fits_probability` only
  std::optional<double> fits_probability;
  Basis evidence = Basis::uncalibrated;
  std::string evidence_text;
  std::string cluster = {};  ///< the catalogue's machine, of whose nodes it was taken to have run on
};

struct LeftOutRow {
  std::string id, source, reason;
  int line = 0;
  bool scorable = false;  ///< the row states all that a score needs; only the simulator may lack support for it
};

/// Summary of |predicted - measured| / measured; percentiles interpolate linearly between ranks. NaN if `count` is 0.
struct ErrorSummary {
  std::int64_t count = 0;
  double median = 0, mean = 0, p90 = 0;
};

struct SourceErrors {
  std::string source;
  ErrorSummary time;
};

/// Rows that one stack priced, beside the number of its numbers that were fitted to measured rows.
struct StackErrors {
  std::string stack;
  std::int64_t rows = 0, fitted_numbers = 0;
  ErrorSummary time;
};

/// Measured rows that differ only in their plan. Rows with the same plan count once, with their median measurement.
struct PlanGroup {
  std::string source, what;  ///< `what`: model, machine and batch in words
  std::size_t plans = 0, rows = 0;
  double regret = 1;  ///< measured time of the plan predicted best / of the one measured best; the slowest of ties
  double rank_correlation = 0;  ///< Spearman's, of predicted and measured times; NaN if either are all equal
  std::string predicted_best, measured_best;  ///< in words
};

/// A measured row, predicted with numbers fitted to all rows and with numbers fitted without the rows of its fold.
struct LeftOutPrediction {
  std::string id, source, stack, fold;  ///< `fold`: the rows left out, in words
  double measured_s = 0, in_sample_s = 0, left_out_s = 0;
  double usual_s = 0;  ///< with the stack's default values of its free numbers
  Interval interval;   ///< around left_out_s, computed without the fold
};

/// The rows left out together: one source of a family of stacks or, if the family has only one source, one model.
struct FoldErrors {
  std::string fold;
  std::vector<std::string> stacks;
  bool by_model = false;
  std::size_t rows = 0;
  double in_sample = 0, left_out = 0, usual = 0;  ///< medians of |predicted / measured - 1|
  double inside = 0;                              ///< share of rows whose measured value lies inside its interval
};

struct CrossValidation {
  std::vector<LeftOutPrediction> rows;
  std::vector<FoldErrors> folds;
  ErrorSummary in_sample, left_out, usual;
  double inside = 0;     ///< share of all rows inside their intervals; NaN without rows
  double width = 0;      ///< median of ln(high / low)
  bool complete = true;  ///< false: stopped before the last fold
};

struct Validation {
  std::size_t given = 0;  ///< rows in all files
  std::vector<ValidatedRow> rows;
  std::vector<LeftOutRow> left_out;
  ErrorSummary time, memory;
  std::vector<SourceErrors> by_source;  ///< in alphabetical order
  std::vector<StackErrors> by_stack;    ///< likewise
  std::vector<PlanGroup> groups;        ///< in the order of their first rows
  std::optional<CrossValidation> cross_validation;
};

/// A source's well-known claim beside the simulator's result.
struct HeadlineResult {
  std::string what, source, said, unit;
  std::string reason;             ///< why there is no prediction; empty: `predicted` is set
  std::vector<std::string> runs;  ///< the plans simulated, in words
  std::optional<double> predicted, published;
  bool in_sample = false;  ///< read off a step time, by a stack with a number that was fitted to this source's rows
  /// Peak memory over a device's, of the fullest run; none without a prediction.
  std::optional<double> memory_share = {};
  bool fits = true;  ///< all runs fit their devices and, with offload, what is beside them
};

/// A number of a stack that was chosen to fit measured rows, in SI units.
struct FittedNumber {
  std::string stack, parameter;
  double before = 0, after = 0;
  std::string source;  ///< the sources that it was fitted to, or the number that it follows
};

/// Stacks that share numbers, fitted together.
struct FamilyFit {
  std::vector<std::string> stacks;
  std::size_t rows = 0;
  double error_before = 0, error_after = 0;  ///< median of |predicted / measured - 1|
  std::vector<FittedNumber> numbers;         ///< of all its stacks, including those that follow others
};

}  // namespace orrery::cost
