#pragma once
/// How tokens travel to the experts that they chose, beyond the plain all-to-all of cost/network/collectives.h.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "clusters/routes.h"
#include "cost/network/collectives.h"
#include "cost/network/messages.h"
#include "models/expand.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

class Pricing;

/// Of whom a token chooses how many: what tells to how many nodes it goes. `experts` = 0: not known.
struct TokenChoice {
  std::int64_t chosen = 0, experts = 0, groups = 1, groups_chosen = 1;
  [[nodiscard]] bool any() const { return experts > 0; }
};
/// That of a layer's router; none of a layer without experts.
[[nodiscard]] TokenChoice choice_of(const models::LayerProgram& program);

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
[[nodiscard]] Alone two_hops(const Network& network, const clusters::Span& span, int ranks, base::Bytes message,
                             const TokenChoice& choice);

/// Where the rows of an all-to-all go: to the experts, or back to their tokens. In each pass over a layer, forward as
/// backward, the first all-to-all of rows goes there and the second comes back.
enum class Leg : std::uint8_t { there, back };

/// All-to-alls of tokens' rows as a stack does them: closed form and replay ask the same.
class TokenExchange {
 public:
  /// `tensor` ranks share a layer's rows; experts are divided among `experts` ranks that stand `stride` apart.
  TokenExchange(const Pricing& pricing, const TokenChoice& choice, int tensor, int experts, int stride);

  /// Over the ranks that share out experts goes `across`; `within` is what the tensor group needs besides to have whole
  /// what each of its ranks has sent for itself (stack.exchange_own_rows).
  struct Way {
    base::Bytes across;
    base::Seconds within;
  };
  /// Of a message in values of `size` bytes; on its way there it may have fewer (stack.exchange_bytes).
  [[nodiscard]] Way way(Leg leg, base::Bytes message, std::int64_t size) const;
  [[nodiscard]] const TokenChoice& choice() const { return choice_; }

 private:
  const Pricing* pricing_;
  TokenChoice choice_;
  std::vector<int> tensor_;
  double bytes_ = 0;
  bool own_rows_ = false;
};

/// Way::across with the network to itself, for the replay: Pricing::exchange_time without the ranks beside.
struct ExchangeAlone {
  Alone price;
  double far = 1;  ///< of what pairs of ranks would send between nodes, what is sent
};
[[nodiscard]] ExchangeAlone exchange_alone(const Pricing& pricing, const clusters::Span& span, int ranks,
                                           base::Bytes message, const TokenChoice& choice);

/// What an overlap leaves of all-to-alls that run beside another micro-batch's compute (stack.exchange_hidden of them,
/// as far as there is compute), as a share of their time: they wait for nothing, but compute goes without the
/// multiprocessors that move them (stack.exchange_compute: 20 of H800's 132 in DeepSeek-V3, section 3.2.2).
[[nodiscard]] double exchange_left(const Pricing& pricing, double exchanges, double compute);

/// The same of a stage, as it was lowered: a number to multiply the price of its exchange stream with.
[[nodiscard]] double exchange_left(const Pricing& pricing, const plan::Schedule& schedule,
                                   const plan::RankClass& stage);

/// What a stage's router chooses; none of a stage without experts.
[[nodiscard]] TokenChoice choice_of(const plan::RankClass& stage);
/// Of the stage's exchanges.
[[nodiscard]] TokenExchange exchange_of(const Pricing& pricing, const plan::Schedule& schedule,
                                        const plan::RankClass& stage);
/// Bytes of a value of the message.
[[nodiscard]] std::int64_t value_size(const plan::RankClass& stage, const plan::Step& step);
/// Which way the rows of each of a block's steps go; of other steps none.
[[nodiscard]] std::vector<std::optional<Leg>> legs_of(const plan::Block& block);

}  // namespace orrery::cost
