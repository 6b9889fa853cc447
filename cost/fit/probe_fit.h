#pragma once
/// Fits coefficients to a probe of one machine: operators, messages and copies timed one by one, without a training
/// run. Uses the same prices (Pricing::op_time and the message formulas), observations and least squares as a fit to
/// runs (cost/fit/fit.h).
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/fit/fit.h"

namespace orrery::cost {

/// One operator on a single rank, warm, timed among the other operators of `workload`.
struct ProbedOperator {
  int workload = 0;  ///< each workload weighs as much as a run; its operators weigh by their share of its time
  models::Op op;
  double count = 1;    ///< executions in the workload
  double seconds = 0;  ///< per execution
};

/// A collective over `ranks` ranks of one machine, or a single message if `send`.
struct ProbedMessage {
  bool send = false;
  plan::CollectiveKind kind{};
  int ranks = 2;
  double bytes = 0;  ///< of the full vector (plan::Step::message_bytes)
  double seconds = 0;
};

/// A copy between a rank's memory and its host's, while all ranks of the machine copy in the same way.
struct ProbedCopy {
  bool to_host = false;
  double bytes = 0;
  double seconds = 0;
};

struct Probed {
  std::vector<ProbedOperator> operators;
  std::vector<ProbedMessage> messages;
  std::vector<ProbedCopy> copies;
  // If measured:
  std::optional<double> neighbour_slowdown;  ///< relative increase of compute time when all ranks compute
  std::optional<double> rank_jitter;         ///< relative excess of the slowest rank over the mean
};

/// `before` gives cluster, stack and initial coefficients. Coefficients that no measurement determines keep their value
/// and are not in the result. F04 if there are no operators.
[[nodiscard]] base::Result<Fitted> fit_probe(const Probed& probed, const Pricing& before, const FitOptions& options);

}  // namespace orrery::cost
