#pragma once
/// From what nccl-tests measured on a cluster to its network.* coefficients: the least squares of cost/fit/fit.h, with
/// the collectives' own formulas as the prediction.
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/fit/fit.h"
#include "cost/network/nccl_tests.h"

namespace orrery::cost {

/// Smaller messages are latency, which no coefficient moves: NCCL's own constants say it, and launching it. They are
/// predicted and not fitted.
inline constexpr double kFittedFrom = 1e6;

/// E0310 when a log ran on GPUs or on more nodes than the cluster has; F01 when no size is left to fit. Each log weighs
/// the same. With several logs, each is predicted by a fit to the others (held_out_error_after); one log by its halves.
[[nodiscard]] base::Result<Fitted> fit_nccl_tests(const std::vector<NcclTest>& tests, const clusters::Cluster& cluster,
                                                  const std::vector<Calibration>& calibrations,
                                                  const FitOptions& options);

}  // namespace orrery::cost
