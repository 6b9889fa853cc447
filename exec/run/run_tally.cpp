// Sums over a run's steps.
#include "exec/run/run_tally.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "exec/run/measured.h"

namespace orrery::exec {

void RunTally::resume(const MetricsFile::Kept& kept, bool all_done) {
  first_loss_ = kept.first_loss;
  if (!all_done) return;
  last_loss_ = kept.last_loss;
  memory_peak_ = kept.memory_peak;
  durations_ = kept.seconds;
}

void RunTally::add(const StepMetrics& step) {
  if (std::isnan(first_loss_)) first_loss_ = step.loss;
  last_loss_ = step.loss;
  memory_peak_ = step.memory_peak;
  (step.step > plain_steps_ ? durations_ : plain_durations_).push_back(step.seconds);
  add_lossless(lossless_, step.lossless);
}

void RunTally::write(Completion& record, double tokens) const {
  record.first_loss = first_loss_;
  record.final_loss = last_loss_;
  std::vector<double> durations = durations_.empty() ? plain_durations_ : durations_;  // PowerSGD had not begun
  if (durations.size() > 1) durations.erase(durations.begin());
  record.step_time_s = median(std::move(durations));
  record.tokens_per_s = tokens / record.step_time_s;
  record.memory_peak_bytes = memory_peak_;
  record.lossless_tensors = lossless_.tensors;
  record.lossless_again = lossless_.again;
  record.lossless_densest = lossless_.densest;
}

std::optional<base::Diagnostic> RunTally::little_room(double capacity) const {
  if (lossless_.again == 0) return std::nullopt;
  const double enough = std::ceil(100 * lossless_.densest) / 100;
  return base::Diagnostic{base::Severity::warning,
                          "P100",
                          {},
                          fmt::format("{} of {} tensors to be stored without zeros had more nonzero values than the "
                                      "capacity of {}, and were recomputed",
                                      lossless_.again, lossless_.tensors, capacity),
                          fmt::format("compression: {{capacity: {}}} would have held them all", enough),
                          {}};
}

}  // namespace orrery::exec
