// Transfers between the ranks of a run.
#include "cost/estimate/running_rank.h"

#include <algorithm>

namespace orrery::cost {

bool RunningPipeline::settle(int stage) {
  RunningRank& me = rank(stage);
  bool moved = false;
  while (!me.sends.empty()) {
    const std::size_t id = me.sends.front();
    StageMessage& message = messages[id];
    RunningRank& other = rank(message.to);
    if (other.receives.empty() || other.receives.front() != id || message.wanted < 0) break;
    message.begin = std::max({message.sent, message.wanted, me.send_free, other.receive_free});
    message.end = message.begin + message.hop;
    me.send_free = other.receive_free = message.end;
    me.send_hop = message.hop;
    me.sends.pop_front();
    other.receives.pop_front();
    moved = settled = true;
  }
  return moved;
}

}  // namespace orrery::cost
