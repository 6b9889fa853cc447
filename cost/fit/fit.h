#pragma once
/// Fits named coefficients to measured timelines by robust least squares: Gauss-Newton on the logarithms of
/// the coefficients (Eigen QR), Huber weights re-computed each round (Huber 1964), and a prior on every
/// coefficient, so that one which the data does not reveal stays where it was. Every schedule step that ran
/// is an observation of what Pricing says about it; of a receive or collective only end - start counts,
/// waiting for members is left out.
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/prices/pricing.h"
#include "cost/results.h"
#include "cost/run/checkpoint.h"
#include "plan/schedule/timeline.h"

namespace orrery::cost {

/// One measured run: its timeline and the schedule it ran.
struct FitRun {
  std::string name;
  plan::Schedule schedule;
  plan::Timeline timeline;
  bool held_out = false;  ///< judged, not fitted
  /// What its checkpoints took, if it saved any; means over them.
  struct Saved {
    CheckpointSize size;
    CheckpointPrice seconds;
  };
  std::optional<Saved> saved = {};
};

struct FitOptions {
  std::string date;      ///< goes into each fitted coefficient's source
  std::string name;      ///< of the calibration made
  double huber = 1.345;  ///< in units of the residuals' scale (95 % efficiency at the normal; Huber 1981)
  int rounds = 30;
  int skip_iterations = 1;  ///< first training steps left out: pages are touched, buffers allocated
};

struct Fitted {
  FitResult result;
  Calibration calibration;  ///< the coefficients that moved, with their provenance
};

/// `before` and `after` held against measured runs: errors and residuals, nothing is moved. held_out_error_after is
/// that of the held-out runs, not a number when there is none.
[[nodiscard]] FitResult compare(const std::vector<FitRun>& runs, const Pricing& before, const Pricing& after,
                                const FitOptions& options);

/// `before` gives cluster, stack and the coefficients to start from. Oversubscribed runs are refused with a
/// note; if no run is left, an error (F01). Held-out runs give held_out_error_after; without any, each run is predicted
/// by a fit to the others.
[[nodiscard]] base::Result<Fitted> fit(const std::vector<FitRun>& runs, const Pricing& before,
                                       const FitOptions& options);

}  // namespace orrery::cost
