// Checks that a parameter server applies each worker's gradient once, in worker order.
#include "plan/schedule/check_server.h"

#include <fmt/core.h>

#include <map>
#include <vector>

#include "base/index.h"

namespace orrery::plan {

using base::at;
using models::Op;

void check_server(const Schedule& schedule, base::Diagnostics& found) {
  if (!schedule.spec.has_server()) return;
  for (const RankClass& c : schedule.classes) {
    std::map<int, std::vector<const Op*>> applied;  // by buffer that received
    for (const Entry& entry : c.program) {
      if (entry.opening || entry.ahead > 0) continue;
      for (const Step& step : c.blocks[at(entry.block)].steps)
        for (const Op& op : step.ops)
          if (models::updates_parameters(op.kind)) applied[c.views[at(op.in.front())].buffer].push_back(&op);
    }
    for (const Bucket& bucket : c.buckets) {
      const std::vector<const Op*>& ops = applied[bucket.received];
      bool sound = bucket.received >= 0 && static_cast<int>(ops.size()) == schedule.spec.data;
      for (std::size_t w = 0; sound && w < ops.size(); ++w) {
        const View& v = c.views[at(ops[w]->in.front())];
        sound = ops[w]->turn == static_cast<int>(w) && ops[w]->turns == schedule.spec.data &&
                v.elements == bucket.shard_elements() &&
                v.offset == static_cast<std::int64_t>(w) * bucket.shard_elements();
      }
      if (!sound)
        found.push_back({base::Severity::error,
                         "S14",
                         {},
                         fmt::format("bucket {}: the server does not apply the gradient of each of {} workers once, in "
                                     "their order",
                                     bucket.name, schedule.spec.data),
                         "",
                         {}});
    }
  }
}

}  // namespace orrery::plan
