#pragma once
/// What each stage does in its order, messages included, whatever the order. Private to cost/.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "plan/schedule/orders.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

using StageMoves = std::vector<std::vector<plan::Move>>;  ///< by stage

/// `micro_batches`: of a training step. `steps`: how many training steps of a run, from its first; more than one only
/// of an asynchronous order.
[[nodiscard]] StageMoves stage_moves(const plan::PlanSpec& spec, std::int64_t micro_batches, std::int64_t steps);

/// The same, which many plans of a search share.
class MovesMemo {
 public:
  [[nodiscard]] std::shared_ptr<const StageMoves> of(const plan::PlanSpec& spec, std::int64_t micro_batches,
                                                     std::int64_t steps);

 private:
  /// All that stage_moves reads: order, stages, virtual stages, Recomputation::weights_wait, plan::runs_beside, and its
  /// arguments.
  using Key = std::tuple<plan::Order, int, int, bool, bool, std::int64_t, std::int64_t>;
  std::map<Key, std::shared_ptr<const StageMoves>> known_;
  std::size_t moves_ = 0;  ///< in `known_`
};

}  // namespace orrery::cost
