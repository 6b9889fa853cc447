#pragma once
/// Ranks that run one program may have unequal shares of the data: of the tokens that choose experts
/// (Tokens::imbalance), of the lookups in tables. A schedule has the share of the rank with most, for which
/// the others wait; these functions give the share of the mean rank.
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// The mean over ranks / the value of the rank with most.
struct MeanShare {
  double rows = 1;     ///< of tokens, in experts' operators and in the messages that carry them
  double lookups = 1;  ///< values read from tables
  double pooled = 1;   ///< values pooled from them
  [[nodiscard]] bool even() const { return rows == 1 && lookups == 1 && pooled == 1; }
};

/// The fullest rank's token rows count only up to what a rank can get: all tokens that may choose its experts, or the
/// model's capacity_factor.
[[nodiscard]] MeanShare mean_share(const plan::Plan& plan);

/// The operator as the mean rank has it; the same if its size does not depend on the data.
[[nodiscard]] models::Op of_mean_rank(models::Op op, const MeanShare& share);

/// The mean rank's share of a message's bytes.
[[nodiscard]] double share_of_message(const plan::Step& step, const MeanShare& share);

}  // namespace orrery::cost
