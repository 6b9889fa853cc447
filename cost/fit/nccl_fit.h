#pragma once
/// Fits a cluster's network.* coefficients to measurements by nccl-tests: the least squares of cost/fit/fit.h, with the
/// formulas of the collectives as the prediction.
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/fit/fit.h"
#include "cost/network/nccl_tests.h"

namespace orrery::cost {

/// Smaller messages are dominated by latency, which no coefficient changes: it comes from NCCL's constants and the
/// launch. They are predicted but not fitted.
inline constexpr double kFittedFrom = 1e6;

/// E0310 if a log ran on other GPUs or on more nodes than the cluster has; F01 if no size is left to fit. Logs weigh
/// the same. Each is predicted by a fit to the others (held_out_error_after); a single log, by halves.
[[nodiscard]] base::Result<Fitted> fit_nccl_tests(const std::vector<NcclTest>& tests, const clusters::Cluster& cluster,
                                                  const std::vector<Calibration>& calibrations,
                                                  const FitOptions& options);

}  // namespace orrery::cost
