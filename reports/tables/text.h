#pragma once
/// What the verbs print on a terminal: tables with a heading and the figures that belong to them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/results.h"
#include "reports/report.h"
#include "reports/tables/table.h"

namespace orrery::reports {

struct PlanHeading;
/// `plan`: evidence, table of ranked plans, how the search went, what was rejected and, if nothing fits, why.
[[nodiscard]] std::string plan_text(const cost::SearchResult& result, const Table& plans, const PlanHeading& heading,
                                    const TableStyle& style);
/// The same for all plans of a result, without a heading.
[[nodiscard]] std::string plan_text(const cost::SearchResult& result, const TableStyle& style);
/// `simulate`: summary, breakdown, memory by stage, communication, links.
[[nodiscard]] std::string prediction_text(const cost::Prediction& prediction, const TableStyle& style);
/// `calibrate`: parameters before and after, errors, notes.
[[nodiscard]] std::string fit_text(const cost::FitResult& fit, const TableStyle& style);
/// Predicted against measured, with the median error of the runs that can be judged.
[[nodiscard]] std::string runs_text(const std::vector<cost::MeasuredRun>& runs, const TableStyle& style);
/// How far the serial program is from itself with its sums in another order, in figures as of SerialComparison.
struct RoundingAlone {
  std::int64_t micro_batch = 0;  ///< of the other order
  double loss = 0, gradient_first = 0, gradient_last = 0;
};

/// A split run beside the serial run of the same job: largest relative differences.
struct SerialComparison {
  std::string run;  ///< the serial run's directory
  std::int64_t steps = 0;
  double loss = 0;                               ///< of all steps
  double gradient_first = 0, gradient_last = 0;  ///< |g - g'| / |g| of the whole gradient, at the first and last step
  double bound = 0, gradient_bound = 0;          ///< on `loss`, and on both gradients
  bool equal = false;                            ///< all within their bounds
  /// What the split run rounds and the serial run does not, for a reader of a difference; else empty.
  std::string rounded = {};
  /// If not, and the experts' tokens of some step differ: where first (first_other_choice).
  std::string other_choices = {};
  /// If not, and the serial program has another order of sums.
  std::optional<RoundingAlone> rounding = {};
};

/// Where the tokens of two runs' experts first differ: "step 7, layer 2: expert 3 has 129 tokens, serially 128". By
/// step, and within one by layer; empty if nowhere, or if neither says.
[[nodiscard]] std::string first_other_choice(const std::vector<std::vector<ExpertLoad>>& run,
                                             const std::vector<std::vector<ExpertLoad>>& serial);

/// What `train` returns, read back from the run directory by apps.
struct TrainSummary {
  std::string directory;
  std::int64_t steps = 0;  ///< steps done, over all resumptions
  double first_loss = 0, final_loss = 0;
  double step_time_s = 0;  ///< median
  double tokens_per_s = 0;
  double memory_peak_bytes = 0;  ///< worst rank
  bool completed = false;        ///< by the run's own completion record
  std::int64_t restarts = 0;     ///< after failures
  std::string backend;           ///< "cpu", "cuda"
  /// `activations: lossless`: tensors kept, tensors that did not fit and were recomputed, and the largest share of
  /// nonzero values; 0: no tensors are kept this way.
  std::int64_t lossless_tensors = 0, lossless_again = 0;
  double lossless_densest = 0;
  std::optional<SerialComparison> serial = {};
  std::optional<std::int64_t> bad_lines = {};  ///< skipped lines of the training data, if bad lines are skipped
  /// The run's checkpoints: their number, the seconds that they held up training, the seconds of writing meanwhile,
  /// bytes.
  std::int64_t checkpoints = 0;
  double checkpoint_pause_s = 0, checkpoint_write_s = 0, checkpoint_bytes = 0;
  /// Of a recommendation model's last evaluation, and of its samples' true probabilities if they are known.
  std::optional<double> held_out_auc = {}, best_auc = {};
  bool samples = false;  ///< it is one: `tokens_per_s` counts samples
};

/// `train`: the run's figures.
[[nodiscard]] std::string train_text(const TrainSummary& summary, const TableStyle& style);

/// Median |predicted - measured| / measured after calibration over runs that were not used in the fit, are not
/// oversubscribed and spread by at most `max_spread`; not a number when there is none.
[[nodiscard]] double held_out_error(const std::vector<cost::MeasuredRun>& runs, double max_spread = 0.10);

}  // namespace orrery::reports
