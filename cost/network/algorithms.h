#pragma once
/// Each collective algorithm in closed form on an otherwise idle graph: latency per step plus bytes over the
/// bottleneck (Hockney's alpha-beta model; Thakur, Rabenseifner and Gropp 2005), both taken from the routes between
/// members that the algorithm uses. It contains no library's tuning (NCCL's is in cost/network/collectives.h), only the
/// time of the algorithm itself. sim/collectives/replay_transfers.h replays the same algorithms step by step.
///
/// All messages of a step begin together. On a shared link, bytes queue: a link that is never idle has passed
/// everything at max over j of (a_j + bytes of the messages that begin at a_j or later / bandwidth), where a_j are the
/// messages' latencies; a step ends with its last link. This is exact if no message is delayed by two different
/// bottlenecks. If links can be full and messages are not in step, no such formula is exact: up to 10,000 messages are
/// then computed as a fluid (cost/network/fluid.h); beyond that, the formula is an estimate.
#include <vector>

#include "base/units.h"
#include "clusters/paths.h"
#include "plan/transfers/transfers.h"

namespace orrery::cost {

/// Positions of the members: vertices of the graph, and for nvls the switch.
struct Places {
  std::vector<int> members;
  int switch_vertex = -1;
};

[[nodiscard]] Places places_of(const clusters::Paths& paths, const std::vector<int>& devices, int switch_vertex = -1);

/// n members, S bytes; P(x): the time of a step in which each message has x bytes.
///   ring              all-reduce 2(n-1) P(S/n), all-gather and reduce-scatter half of it;
///                     broadcast and reduce in k pieces: sum of t_i + (k-1) max t_i, t_i = a_i + S/k b_i of hop i
///   halving-doubling  sum over d = n/2, n/4, ... 1 of P(S d/n), twice for all-reduce; P(S) twice beyond powers of two
///   pat               sum over d of P(S/n ceil((n-d)/2d))
///   binomial          sum over d of P(S)
///   tree              two trees of S/2 in k pieces, up and down: sum over 2 depth + k - 1 steps
///   nvls              the larger of up and down: S/k and S/kn up, S/kn and S/k down, over k+3 (k+1) steps
///   direct            P of all members' parts at once;   pairwise  sum over r of P of one part
///   hierarchical      2 (g-1) P(S/g) in all nodes, 2 (n/g - 1) P(S/n) on all rings across nodes
/// If messages of a step differ in length, members drift apart and a sum of P is too long: each member's own time is
/// then followed from step to step, with every message at its even share of the links. `shape` as for plan::steps_of;
/// `message` as for cost::collective_time.
[[nodiscard]] base::Seconds time_alone(plan::Algorithm algorithm, plan::Goal goal, const plan::GroupShape& shape,
                                       clusters::Paths& paths, const Places& places, base::Bytes message);

/// A whole collective as one fluid activity, for replaying many at once. `bytes`: what its busiest connection carries;
/// a load's share: how many times those bytes cross the link. Alone it takes its rounds' latency plus bytes x max(share
/// / bandwidth), which for the ring equals time_alone.
struct FluidActivity {
  base::Seconds latency;  ///< sum over rounds of the farthest message's latency
  double bytes = 0;
  std::vector<clusters::Load> loads;  ///< one per link
};
[[nodiscard]] FluidActivity activity_of(const plan::CollectiveSteps& steps, clusters::Paths& paths,
                                        const Places& places, base::Bytes message);

}  // namespace orrery::cost
