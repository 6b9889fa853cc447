#pragma once
/// The plan search for recommendation models: how tables are placed, and the type in which pooled vectors are sent.
/// Private to sim/search/.
#include "cost/prices/room.h"
#include "sim/search/search.h"

namespace orrery::sim {

/// Replays every way to split the tables within the job's bounds, with every message type that it names. For `auto` the
/// planner places each table separately, and reports how far from the best the placement may be.
[[nodiscard]] cost::SearchResult search_tables(const std::shared_ptr<const models::Model>& model,
                                               const std::shared_ptr<const clusters::Cluster>& cluster,
                                               const plan::Job& job, const cost::Pricing& pricing,
                                               const SearchOptions& options, const cost::Room& room);

/// The memory besides the device's that a node's ranks overfill, where the cluster states its size; empty: none.
[[nodiscard]] std::string too_much_beside(const cost::Prediction& prediction, const clusters::Cluster& cluster);

}  // namespace orrery::sim
