#pragma once
/// The price of a message that all groups of a stage send at the same time, from the links that these messages share.
/// This is how the closed form sees what the replay shares among all ranks of a stage in lockstep
/// (cost/prices/lockstep.h). What other stages, or other kinds of messages, send at the same time depends on the order
/// of events and is left to the replay.
#include <memory>

#include "cost/prices/lockstep.h"

namespace orrery::sim {

/// `pricing` must outlive the result. Null for CPU ranks, whose prices are measured while links are shared. Routes are
/// found once for groups of equal shape, at the first message. Not thread-safe.
[[nodiscard]] std::unique_ptr<cost::SharedLinks> shared_links(const cost::Pricing& pricing);

}  // namespace orrery::sim
