#pragma once
/// Coefficients from a probe's measurements of one machine: operators, messages and copies timed one by one, no
/// training run. The same prices (Pricing::op_time and the message formulas), observations and least squares as a fit
/// to runs (cost/fit/fit.h).
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/fit/fit.h"

namespace orrery::cost {

/// One operator on one rank alone, warm, in the company of `workload`'s others.
struct ProbedOperator {
  int workload = 0;  ///< each workload weighs as a run does: its operators by their share of its time
  models::Op op;
  double count = 1;    ///< executions in the workload
  double seconds = 0;  ///< of one
};

/// A collective over `ranks` ranks of one machine, or (`send`) one message.
struct ProbedMessage {
  bool send = false;
  plan::CollectiveKind kind{};
  int ranks = 2;
  double bytes = 0;  ///< of the full vector (plan::Step::message_bytes)
  double seconds = 0;
};

/// A copy between a rank's memory and its host's, while all ranks of the machine do the same.
struct ProbedCopy {
  bool to_host = false;
  double bytes = 0;
  double seconds = 0;
};

struct Probed {
  std::vector<ProbedOperator> operators;
  std::vector<ProbedMessage> messages;
  std::vector<ProbedCopy> copies;
  double neighbour_slowdown = -1;  ///< share by which a rank computes longer when all compute; negative: not measured
  double rank_jitter = -1;         ///< share by which the slowest of them exceeds their mean; negative: not measured
};

/// `before` gives cluster, stack and the coefficients to start from. Coefficients that nothing reveals stay as they are
/// and are not in the result. F04 when there are no operators.
[[nodiscard]] base::Result<Fitted> fit_probe(const Probed& probed, const Pricing& before, const FitOptions& options);

}  // namespace orrery::cost
