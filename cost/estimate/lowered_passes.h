#pragma once
/// The passes of a chunk that keeps something outside the device, taken from its lowered blocks (plan::lower_passes) as
/// steps of a rank's clock. The buffers that steps use decide which copies wait for which messages and operators. Of
/// many equal layers only a few are lowered, and the steps that repeat are copied. Private to cost/estimate/.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cost/estimate/pass_program.h"
#include "cost/estimate/stage_moves.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

/// Which of a chunk's layers are lowered, in forward order.
struct FewLayers {
  std::vector<std::size_t> kept;
  /// Layers left out: the `period` layers before kept layer `gap`, `times` more times.
  std::size_t gap = 0, period = 0;
  std::int64_t times = 0;
};
/// `ahead`: layers by which copies run ahead.
[[nodiscard]] FewLayers few_of(const std::vector<const LayerCosts*>& layers, int ahead);

/// A chunk of a stage. `layers`: in forward order.
struct LoweredChunk {
  const plan::Plan& plan;
  plan::StageId stage;
  int chunk = 0;
  const std::vector<plan::Move>& moves;  ///< the stage's; of enough micro-batches for every pattern to appear
  int ahead = 1;                         ///< layers by which copies run ahead, or more to lower more layers
};
/// `chunks`: the layers of all of the stage's.
[[nodiscard]] ChunkPrograms lowered_passes(const LoweredChunk& chunk, const std::vector<std::vector<LayerRun>>& chunks,
                                           const PassSurroundings& around);

/// Remembers programs, because most chunks of a plan are alike.
class LoweredMemo {
 public:
  [[nodiscard]] std::shared_ptr<const ChunkPrograms> of(const plan::Plan& plan, plan::StageId stage, int chunk,
                                                        const std::vector<std::vector<LayerRun>>& chunks,
                                                        const PassSurroundings& around, MovesMemo& moves);

 private:
  /// What a chunk's passes depend on besides the plan.
  struct Key {
    std::vector<LayerRun> layers;
    std::int64_t staying = 0;
    double exchange_left = 1;
    int in_node = 0;
    std::array<bool, 4> messages = {};
    bool operator==(const Key&) const = default;
  };
  struct Known {
    Key key;
    std::shared_ptr<const ChunkPrograms> programs;
  };
  plan::PlanSpec plan_;  ///< the plan that was asked for last
  std::vector<Known> known_;
};

}  // namespace orrery::cost
