#pragma once
/// Which passes of an order stand beside a pass of the other direction.
#include <cstdint>
#include <vector>

#include "plan/schedule/orders.h"

namespace orrery::plan {

/// The share of a stage's forward and backward passes that have a partner: a pass of the other direction, of another
/// micro-batch or chunk, right before or after it in the order; no pass is the partner of two. Software that runs two
/// micro-batches at a time hides the messages of one behind the compute of the other in such pairs alone (DeepSeek-AI
/// 2024, "DeepSeek-V3 Technical Report", section 3.2.1; Megatron-Core's 1F1B with all-to-all overlap): not while a
/// pipeline fills and drains, and in GPipe only where it turns. From 0 to 1.
[[nodiscard]] double paired_share(const std::vector<Move>& moves);

/// The same of a plan's stage; 1 where the pipeline never drains.
[[nodiscard]] double paired_share(const PlanSpec& spec, StageId stage, std::int64_t micro_batches);

}  // namespace orrery::plan
