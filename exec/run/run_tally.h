#pragma once
/// What a run has done so far, summed up from its steps for its record (rank 0).
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/result.h"
#include "exec/engine/execute.h"
#include "exec/launch/supervise.h"
#include "exec/run/metrics.h"

namespace orrery::exec {

class RunTally {
 public:
  /// `plain_steps`: of PowerSGD before it begins, whose times are not the run's.
  explicit RunTally(std::int64_t plain_steps) : plain_steps_(plain_steps) {}

  /// From the lines of an earlier part of the run. `all_done`: no step is left, only the record is missing.
  void resume(const MetricsFile::Kept& kept, bool all_done);
  void add(const StepMetrics& step);

  /// Losses, time of a step (the median, without the first one) and memory. `tokens`: of a step.
  void write(Completion& record, double tokens) const;
  /// A warning if values to be kept without zeros, of which there was room for the share `capacity`, did not fit and
  /// were recomputed.
  [[nodiscard]] std::optional<base::Diagnostic> little_room(double capacity) const;

 private:
  std::int64_t plain_steps_;
  double first_loss_ = std::numeric_limits<double>::quiet_NaN();  ///< of the run, including the resumed part
  double last_loss_ = 0, memory_peak_ = 0;
  std::vector<double> durations_, plain_durations_;
  Executor::Lossless lossless_;  ///< over all ranks and this run's steps
};

}  // namespace orrery::exec
