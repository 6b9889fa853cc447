#pragma once
/// How tokens travel to the experts that they choose, beyond the plain all-to-all of cost/network/collectives.h.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "clusters/routes.h"
#include "cost/network/collectives.h"
#include "cost/network/messages.h"
#include "models/layers/expand.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

class Pricing;

/// How many experts a token chooses, and among how many: determines how many nodes it goes to. `experts` = 0: unknown.
struct TokenChoice {
  std::int64_t chosen = 0, experts = 0, groups = 1, groups_chosen = 1;
  [[nodiscard]] bool any() const { return experts > 0; }
};
/// The choice of a layer's router; none for a layer without experts.
[[nodiscard]] TokenChoice choice_of(const models::LayerProgram& program);

/// The expected number of other nodes that a token is sent to, if `nodes` have an equal share of the experts and every
/// choice is equally likely. Experts are drawn without replacement: k draws miss a node with a of A experts with
/// probability (A-a)! (A-k)! / (A! (A-a-k)!). If groups of experts are chosen first (DeepSeek-V3, section 2.1.2), the
/// expectation is over how many of a node's groups are chosen.
[[nodiscard]] double other_nodes(const TokenChoice& choice, int nodes);

/// Two hops, as in DeepEP (DeepSeek-V3, section 3.2.2): a token goes once to each node that has one of its experts,
/// over the NIC of its own device, and from there over NVLink to the devices that have them. Both hops proceed at once,
/// so the slower one counts. `message`: the k copies of each token of a rank, n k rows.
///
///   T = latency + max(message (g-1)/g / fabric, message/k other_nodes / NIC)       g devices of a node
///
/// The NIC's bandwidth is that of other all-to-alls: DeepEP's own table gives 51 GB/s at 64 ranks for 4 copies of a
/// token. 3.5 of these leave the node, which is 45 of the NIC's 50 GB/s.
[[nodiscard]] Alone two_hops(const Network& network, const clusters::GroupSpan& span, int ranks, base::Bytes message,
                             const TokenChoice& choice);

/// Direction of an all-to-all's rows: to the experts, or back to their tokens. In each pass over a layer, forward and
/// backward, the first all-to-all of rows goes to the experts and the second goes back.
enum class Leg : std::uint8_t { there, back };

/// All-to-alls of tokens' rows as a stack does them, for both the closed form and the replay.
class TokenExchange {
 public:
  /// A layer's experts are divided among `experts` groups; the `ways` ranks of a group split each of its experts, and
  /// have the same rows for them. 1 where the layer itself gathers the rows of those that split an expert.
  TokenExchange(const Pricing& pricing, const TokenChoice& choice, int ways, int experts);

  /// `across`: bytes over the ranks that share the experts. `within`: extra time among the ranks that split an expert,
  /// to combine what each of them has sent for itself (stack.exchange_own_rows).
  struct Way {
    base::Bytes across;
    base::Seconds within;
  };
  /// For a message of values with `size` bytes each; on the way to the experts a value may take fewer
  /// (stack.exchange_bytes).
  [[nodiscard]] Way way(Leg leg, base::Bytes message, std::int64_t size) const;
  [[nodiscard]] const TokenChoice& choice() const { return choice_; }

 private:
  const Pricing* pricing_;
  TokenChoice choice_;
  std::vector<int> ways_;
  double bytes_ = 0;
  bool own_rows_ = false;
};

/// Way::across with the network to itself, for the replay: like Pricing::exchange_time, without concurrent groups.
struct ExchangeAlone {
  Alone price;
  double far = 1;  ///< bytes sent between nodes / those of a plain all-to-all
};
[[nodiscard]] ExchangeAlone exchange_alone(const Pricing& pricing, const clusters::GroupSpan& span, int ranks,
                                           base::Bytes message, const TokenChoice& choice);

/// The share of the time of all-to-alls that still counts when they overlap with another micro-batch's compute
/// (stack.exchange_hidden of them overlap, as far as there is compute). Only a pass that stands beside one of the other
/// direction has such compute; `paired` is the share of passes that do (plan/schedule/partners.h). Overlapped, they
/// cause no waiting, but compute lacks the multiprocessors that move them (stack.exchange_compute: 20 of H800's 132 in
/// DeepSeek-V3, section 3.2.2). `exchanges` and `compute` in seconds per micro-batch.
[[nodiscard]] double exchange_left(const Pricing& pricing, double exchanges, double compute, double paired);

/// What all-to-alls of tokens beside another micro-batch's compute cost.
struct BesideCompute {
  double left = 1;   ///< of their time: exchange_left()
  double taken = 0;  ///< of their time: by how much compute before them takes longer
};

/// Whether the stack overlaps all-to-alls of tokens with another micro-batch's compute, so that partners matter, in a
/// plan whose order does not say so itself (plan::runs_beside).
[[nodiscard]] bool hides_exchanges(const Pricing& pricing, const plan::PlanSpec& spec);
/// BesideCompute::taken, in the mean of a stage's passes, of which `paired` have a partner: its compute lacks the
/// multiprocessors that move the messages. All of a message's time counts there. 0 where the stack does not overlap.
[[nodiscard]] double exchange_taken(const Pricing& pricing, const plan::PlanSpec& spec, double paired);

/// The same for a lowered stage: a factor for the price of its exchange stream.
[[nodiscard]] double exchange_left(const Pricing& pricing, const plan::Schedule& schedule,
                                   const plan::RankClass& stage);

/// The choice of a stage's router; none for a stage without experts.
[[nodiscard]] TokenChoice choice_of(const plan::RankClass& stage);
/// The exchange of a lowered stage.
[[nodiscard]] TokenExchange exchange_of(const Pricing& pricing, const plan::Schedule& schedule,
                                        const plan::RankClass& stage);
/// Size in bytes of one value of the message.
[[nodiscard]] std::int64_t value_size(const plan::RankClass& stage, const plan::Step& step);
/// The direction of the rows in each exchange step, by block and step; none for other steps. A block that ends with an
/// exchange goes on in the next (plan/lower/beside.h).
[[nodiscard]] std::vector<std::vector<std::optional<Leg>>> legs_of(const plan::RankClass& stage);

}  // namespace orrery::cost
