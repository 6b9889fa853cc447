#pragma once
/// Fits named coefficients to measured timelines by robust least squares: Gauss-Newton on the logarithms of the
/// coefficients (Eigen QR), Huber weights recomputed each round (Huber 1964), and a prior on every coefficient, so that
/// one which the data does not determine keeps its value. Every executed schedule step is an observation of its price
/// by Pricing; for a receive or collective only end - start counts, without the wait for members.
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/prices/pricing.h"
#include "cost/results.h"
#include "cost/run/checkpoint.h"
#include "plan/schedule/timeline.h"

namespace orrery::cost {

/// One measured run: its timeline and the schedule that it executed.
struct FitRun {
  std::string name;
  plan::Schedule schedule;
  plan::Timeline timeline;
  bool held_out = false;  ///< used for judging, not for fitting
  /// Times of its checkpoints, if it saved any, as means.
  struct Saved {
    CheckpointSize size;
    CheckpointPrice seconds;
  };
  std::optional<Saved> saved = {};
};

struct FitOptions {
  std::string date;      ///< goes into each fitted coefficient's source
  std::string name;      ///< of the resulting calibration
  double huber = 1.345;  ///< in units of the residuals' scale (95 % efficiency for normal residuals; Huber 1981)
  int rounds = 30;
  int skip_iterations = 1;  ///< initial training steps to skip: they touch pages, allocate buffers
};

struct Fitted {
  FitResult result;
  Calibration calibration;  ///< the coefficients that changed, with their provenance
};

/// Compares `before` and `after` with measured runs: errors and residuals; changes nothing. held_out_error_after is for
/// the held-out runs, NaN if there are none.
[[nodiscard]] FitResult compare(const std::vector<FitRun>& runs, const Pricing& before, const Pricing& after,
                                const FitOptions& options);

/// `before` gives cluster, stack and initial coefficients. Oversubscribed runs are skipped with a note; if no run is
/// left, an error (F01). Held-out runs determine held_out_error_after; without any, each run is predicted by a fit to
/// the others.
[[nodiscard]] base::Result<Fitted> fit(const std::vector<FitRun>& runs, const Pricing& before,
                                       const FitOptions& options);

}  // namespace orrery::cost
