#pragma once
/// How tokens travel to the experts that they chose, beyond the plain all-to-all of cost/collectives.h.
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "clusters/routes.h"
#include "cost/collectives.h"
#include "cost/messages.h"
#include "models/expand.h"
#include "plan/schedule.h"

namespace orrery::cost {

class Pricing;

/// Of whom a token chooses how many: what tells to how many nodes it goes. `experts` = 0: not known.
struct TokenChoice {
  std::int64_t chosen = 0, experts = 0, groups = 1, groups_chosen = 1;
  [[nodiscard]] bool any() const { return experts > 0; }
};
/// That of a layer's router; none of a layer without experts.
[[nodiscard]] TokenChoice choice_of(const models::LayerProgram& program);

/// The same of what it is lowered to.
[[nodiscard]] TokenChoice choice_of(const plan::RankClass& ranks);

/// Of `nodes` that have an equal part of the experts each, beside a token's own, how many it is expected to be sent to
/// where every choice is as likely. Experts are drawn without putting back: a node with a of A experts is missed by k
/// draws with probability (A-a)! (A-k)! / (A! (A-a-k)!); where groups of experts are chosen first (DeepSeek-V3,
/// section 2.1.2), over how many of a node's groups are among them.
[[nodiscard]] double other_nodes(const TokenChoice& choice, int nodes);

/// Two hops, as DeepEP goes them (DeepSeek-V3, section 3.2.2): a token goes once to each node that has one of its
/// experts, over the NIC of its own device, and there over NVLink to the devices that have them. Both proceed at once,
/// so the slower one counts. `message`: the k copies of each token of a rank, n k rows.
///
///   T = latency + max(message (g-1)/g / fabric, message/k other_nodes / NIC)       g devices of a node
///
/// The NIC gives what it gives to other all-to-alls: DeepEP's own table has 51 GB/s at 64 ranks for 4 copies of a
/// token, of which 3.5 leave the node, 45 of 50 GB/s.
[[nodiscard]] base::Seconds two_hop_time(const Network& network, const clusters::Span& span, int ranks,
                                         base::Bytes message, const TokenChoice& choice);

/// For a replay in which sharing comes of the links: the plain all-to-all, or two hops where the stack takes them
/// (stack.exchange_two_hop), whose fewer bytes are as a shorter stretch.
[[nodiscard]] Alone exchange_alone(const Pricing& pricing, const TokenChoice& choice, base::Bytes message,
                                   const clusters::Span& span, int ranks);

/// The parts of a layer's forward pass from its router on: what is run again where experts alone are recomputed
/// (Megatron-Core's --recompute-modules moe). Empty without experts.
[[nodiscard]] std::vector<models::Part> parts_of_experts(const models::LayerProgram& program);

/// What an overlap leaves of all-to-alls that run beside another micro-batch's compute (stack.exchange_hidden of them,
/// as far as there is compute), as a share of their time: they wait for nothing, but compute goes without the
/// multiprocessors that move them (stack.exchange_compute: 20 of H800's 132 in DeepSeek-V3, section 3.2.2).
[[nodiscard]] double exchange_left(const Pricing& pricing, double exchanges, double compute);

}  // namespace orrery::cost
