#pragma once
/// The plan search of recommendation models: how tables are placed, and in what pooled vectors travel. Private to
/// sim/search/.
#include "sim/search/search.h"

namespace orrery::sim {

/// Every way to split the tables within the job's bounds, with every type for what travels that it names; all of them
/// replayed. Of `auto` the planner places each table by itself, and says how far from the best it may be.
[[nodiscard]] cost::SearchResult search_tables(const std::shared_ptr<const models::Model>& model,
                                               const std::shared_ptr<const clusters::Cluster>& cluster,
                                               const plan::Job& job, const cost::Pricing& pricing,
                                               const SearchOptions& options);

/// Which memory beside the device's a node's ranks have too much in, where the cluster says its size; empty: none.
[[nodiscard]] std::string too_much_beside(const cost::Prediction& prediction, const clusters::Cluster& cluster);

}  // namespace orrery::sim
