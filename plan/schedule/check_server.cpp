// Checks that a parameter server applies each worker's gradient once, in worker order.
#include "plan/schedule/check_server.h"

#include <fmt/core.h>

#include <map>
#include <vector>

#include "base/index.h"

namespace orrery::plan {

using base::at;
using models::Op;
using models::OpKind;

namespace {

bool in_turns(const std::vector<const Op*>& ops, int workers) {
  bool sound = static_cast<int>(ops.size()) == workers;
  for (std::size_t w = 0; sound && w < ops.size(); ++w)
    sound = ops[w]->turn == static_cast<int>(w) && ops[w]->turns == workers;
  return sound;
}

}  // namespace

void check_server(const Schedule& schedule, base::Diagnostics& found) {
  if (!schedule.spec.states.has_server()) return;
  const int workers = schedule.spec.mesh.data;
  const auto fault = [&](const std::string& of) {
    found.push_back(
        {base::Severity::error,
         "S14",
         {},
         fmt::format("{}: the server does not apply the gradient of each of {} workers once, in their order", of,
                     workers),
         "",
         {}});
  };
  for (const RankClass& c : schedule.classes) {
    std::map<BufferId, std::vector<const Op*>> applied;  // by buffer that received
    std::vector<const Op*> rows;                         // to sharded tables
    for (const Entry& entry : c.program) {
      if (entry.opening || entry.ahead > 0) continue;
      for (const Step& step : c.blocks[at(entry.block)].steps)
        for (const Op& op : step.ops)
          if (op.kind == OpKind::embedding_bag_update)
            rows.push_back(&op);
          else if (models::updates_parameters(op.kind) || op.kind == OpKind::table_update)
            applied[c.views[at(op.in.front())].buffer].push_back(&op);
    }
    if (c.tables.exists() && !in_turns(rows, workers)) fault("tables");
    for (const Bucket& bucket : c.buckets) {
      const std::vector<const Op*>& ops = applied[bucket.received];
      bool sound = bucket.received.exists() && in_turns(ops, workers);
      for (std::size_t w = 0; sound && w < ops.size(); ++w) {
        const View& v = c.views[at(ops[w]->in.front())];
        sound =
            v.elements == bucket.shard_elements() && v.offset == static_cast<std::int64_t>(w) * bucket.shard_elements();
      }
      if (!sound) fault("bucket " + bucket.name);
    }
  }
}

}  // namespace orrery::plan
