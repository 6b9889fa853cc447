#pragma once
/// collective --replay: beside the library's time, the time of the algorithms themselves on the cluster's links.
#include <functional>
#include <string>
#include <vector>

#include "apps/verbs/measure/collective_options.h"
#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/network/messages.h"
#include "reports/tables/table.h"

namespace orrery::apps {

/// The library's price of a message among these ranks.
using LibraryPrice = std::function<cost::CollectivePrice(base::Bytes message, const std::vector<int>& ranks)>;

struct ReplayedOnLinks {
  reports::Table table;
  std::string json;  ///< `result.replay`
};

/// By size: the requested algorithm, or all that do the operation among these ranks. Usage error if there is no such
/// algorithm, or it does not do the operation here.
[[nodiscard]] base::Result<ReplayedOnLinks> replay_on_links(const CollectiveOptions& options,
                                                            const clusters::Cluster& cluster, cost::Operation operation,
                                                            const std::vector<int>& ranks,
                                                            const std::vector<double>& sizes,
                                                            const LibraryPrice& library);

}  // namespace orrery::apps
