#pragma once
/// What `validate` finds out, as plain records: predictions beside published rows, which plan wins, fits of the stacks'
/// numbers, and what those are worth on rows they have not seen.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/interval.h"

namespace orrery::cost {

/// What a prediction rests on.
enum class Basis : std::uint8_t {
  calibrated,    ///< runs of this very software that were given here
  published,     ///< published runs of it
  generic,       ///< software of its kind; none of it is known
  uncalibrated,  ///< described, never compared with a run
};
[[nodiscard]] const char* name_of(Basis evidence);

/// A published row beside its prediction. What is not stated there is missing here.
struct ValidatedRow {
  std::string id, source, stack, plan;
  double predicted_s = 0, predicted_bytes = 0;  ///< of a training step; of the worst device at its peak
  std::optional<double> measured_s, measured_bytes;
  std::vector<std::string> notes;  ///< defaults that filled what the row leaves open
  std::optional<Interval> time_s, bytes;
  bool out_of_memory = false;  ///< it died for lack of memory: judged by `fits_probability` alone
  std::optional<double> fits_probability;
  Basis evidence = Basis::uncalibrated;
  std::string evidence_text;
};

struct LeftOutRow {
  std::string id, source, reason;
  int line = 0;
  bool scorable = false;  ///< it states all that a score needs, so the simulator is what lacks something
};

/// Of |predicted - measured| / measured; percentiles interpolate linearly between ranks. Not numbers when `count` is 0.
struct ErrorSummary {
  std::int64_t count = 0;
  double median = 0, mean = 0, p90 = 0;
};

struct SourceErrors {
  std::string source;
  ErrorSummary time;
};

/// Measured rows that differ only in their plan. Rows of one plan count once, with the median of what was measured.
struct PlanGroup {
  std::string source, what;  ///< `what`: model, machine and batch in words
  std::size_t plans = 0, rows = 0;
  double regret = 1;  ///< measured time of the plan predicted best over the measured best; of alike, the slowest
  double rank_correlation = 0;  ///< Spearman's, of predicted and measured times; not a number when either are all equal
  std::string predicted_best, measured_best;  ///< in words
};

/// A measured row, predicted with numbers fitted to all rows, and with numbers fitted without the rows of its fold.
struct LeftOutPrediction {
  std::string id, source, stack, fold;  ///< `fold`: what was left out, in words
  double measured_s = 0, in_sample_s = 0, left_out_s = 0;
  double usual_s = 0;  ///< with the stack's defaults alone: its free numbers as they usually are
  Interval interval;   ///< around left_out_s, made without the fold
};

/// What was left out at a time: a source of a family of stacks, or, where the family has but one, a model.
struct FoldErrors {
  std::string fold;
  std::vector<std::string> stacks;
  bool by_model = false;
  std::size_t rows = 0;
  double in_sample = 0, left_out = 0, usual = 0;  ///< medians of |predicted / measured - 1|
  double inside = 0;                              ///< share of rows whose measured value lies in its interval
};

struct CrossValidation {
  std::vector<LeftOutPrediction> rows;
  std::vector<FoldErrors> folds;
  ErrorSummary in_sample, left_out, usual;
  double inside = 0;     ///< share of all rows inside their intervals; not a number without rows
  double width = 0;      ///< median of ln(high / low)
  bool complete = true;  ///< false: stopped before the last fold
};

struct Validation {
  std::size_t given = 0;  ///< rows of all files
  std::vector<ValidatedRow> rows;
  std::vector<LeftOutRow> left_out;
  ErrorSummary time, memory;
  std::vector<SourceErrors> by_source;  ///< in alphabetical order
  std::vector<PlanGroup> groups;        ///< in the order of their first rows
  std::optional<CrossValidation> cross_validation;
};

/// What a source is known for beside what the simulator makes of it.
struct HeadlineResult {
  std::string what, source, said, unit;
  std::string reason;             ///< why nothing is predicted; empty: `predicted` is there
  std::vector<std::string> runs;  ///< the plans simulated, in words
  std::optional<double> predicted, published;
};

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
