#pragma once
/// Rows in the slots in which a mixture's tokens travel to the ranks that share its experts (models/operators/op.h):
/// how many a slot can get, gets on average, and has room for.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/experts.h"

namespace orrery::models {

/// How many tokens of a sequence one expert takes at most (Experts::capacity_factor); 0: any number. `tokens`: of the
/// whole sequence.
[[nodiscard]] inline std::int64_t token_limit(const Experts& experts, std::int64_t tokens) {
  if (experts.capacity_factor <= 0) return 0;
  const double mean = static_cast<double>(experts.chosen) * static_cast<double>(tokens);
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(experts.capacity_factor * mean / static_cast<double>(experts.count)));
}

/// What one rank sends in a micro-batch.
struct ExpertTraffic {
  std::int64_t rows = 0;       ///< that it routes
  std::int64_t sequences = 0;  ///< of which they are
  std::int64_t tokens = 0;     ///< of a whole sequence, on all ranks
  std::int64_t ranks = 1;      ///< that share the experts equally
};

/// Rows of one slot, of which a rank has as many as there are ranks.
struct ExpertSlot {
  std::int64_t most = 0;  ///< whatever tokens choose
  double balanced = 0;    ///< if they choose all experts equally
  /// The expert_bound at which it cannot overflow.
  [[nodiscard]] double bound_that_holds() const { return balanced > 0 ? static_cast<double>(most) / balanced : 1; }
};

/// A rank that has all experts gets all its rows. Of several, each gets of a token at most as many rows as the token
/// chooses experts, and as the rank has; and of a sequence no more than its experts take.
[[nodiscard]] inline ExpertSlot expert_slot(const Experts& experts, const ExpertTraffic& sent) {
  const std::int64_t local = experts.count / std::max<std::int64_t>(1, sent.ranks);
  ExpertSlot out;
  out.most = sent.rows * (sent.ranks > 1 ? std::min(experts.chosen, local) : experts.chosen);
  if (const std::int64_t limit = token_limit(experts, sent.tokens); limit > 0)
    out.most = std::min(out.most, local * sent.sequences * limit);
  out.balanced = static_cast<double>(sent.rows) * static_cast<double>(experts.chosen) / static_cast<double>(sent.ranks);
  return out;
}

}  // namespace orrery::models
