#pragma once
/// Prices of a stage's equal messages at once, from the links that they cross: the closed form's view of what the
/// replay shares among all ranks of a stage in lockstep (cost/prices/lockstep.h). What other stages, or other kinds of
/// messages, send at the same time depends on the order of events and is left to the replay.
#include <memory>

#include "cost/prices/lockstep.h"

namespace orrery::sim {

/// `pricing` must outlive it. Null for CPU ranks, whose prices are measured under sharing. Routes are found once for
/// groups of equal shape, at the first message. Not thread-safe.
[[nodiscard]] std::unique_ptr<cost::SharedLinks> shared_links(const cost::Pricing& pricing);

}  // namespace orrery::sim
