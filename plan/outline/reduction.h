#pragma once
/// What passes need of a bucket, and how its gradients are zeroed, summed over its replicas and squared.
///
/// In 16 bits, a bucket of n replicas: values are rounded; an all-to-all brings each replica its piece of all others';
/// it adds them up in fp32, in the order of the replicas; ZeRO 0 rounds the sum and gathers it from all. A sum in 16
/// bits, hop by hop, would lose a part of each value with every hop.
///
/// Of an exchange of all with all every device sends nearly a whole message to other nodes, where a ring of them sends
/// one for all devices of a node: with g replicas on a node a plain all-reduce has a g-th of the traffic, twice as
/// wide. So where `group` is g, the replicas of a node first add up in fp32 among them and keep a g-th each
/// (reduce-scatter); equals on the nodes exchange that in 16 bits as above, gather its sum, and then gather the others'
/// within the node. Each node's sum is rounded once, and the sum of all. (ZeRO++, Wang et al. 2023, section 3.3, found
/// the same of quantised gradients: its hierarchical all-to-all.) With ZeRO 1 and 2 the sum of what came from the nodes
/// is a rank's shard, in fp32, and parameters are gathered among its equals and then within the node. ZeRO++ puts the
/// parts of a message in another order first, so that each rank gets the shard that it owns; here ranks own what they
/// get (PlanSpec::shard_index).
///
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019, algorithms 1 and 2): of each matrix M of replica i, whose error E_i is
/// what has not been sent so far,
///   M_i += E_i; P = sum_i M_i Q; P := orthonormal columns; Q = sum_i M_i^T P; the gradient is P Q^T;
///   E_i = M_i - P Q^T / n.
/// Gradients are sums over replicas here, as the loss is divided by all tokens: the sum of the errors is what the
/// gradient lacks. Q is where the next step begins. What travels whole is summed up in fp32, as one message.
/// Where PowerSGD starts late (`start`), a step has both reductions, of which the number of the training step says
/// which runs (Step::from_step): until then errors are 0 and each Q is where it began.
#include "plan/outline/outline.h"

namespace orrery::plan {

/// When a reduction runs: of every pass (ZeRO 2 and 3), behind the last pass, or within it.
enum class Reduces : std::uint8_t { in_every_pass, at_the_end, in_the_last_pass };

/// What a bucket needs at this time: nothing, if it is reduced at another. `low_rank`: by PowerSGD where the plan has
/// it; false: as the steps before its start.
[[nodiscard]] Outline reduction_of(const BucketShape& bucket, const PlanSpec& spec, Reduces when, bool low_rank = true);

/// Whether reductions outside of the passes need memory.
[[nodiscard]] bool reductions_need_memory(const PlanSpec& spec);

/// Zeroes what a step's gradients are added up in; every pass zeroes ZeRO-2's and 3's by itself (zeroed_in_pass).
[[nodiscard]] Outline zeroed_at_start(const BucketShape& bucket, const PlanSpec& spec);
[[nodiscard]] Outline zeroed_in_pass(const BucketShape& bucket, const PlanSpec& spec);

/// ZeRO-3: gathers a bucket's parameters for a pass over its layer; nothing otherwise.
[[nodiscard]] Outline gathered_in_pass(const BucketShape& bucket, const PlanSpec& spec);

/// Adds the squares of the gradients that a rank optimizes to the norm's.
[[nodiscard]] Outline squared(const BucketShape& bucket, const PlanSpec& spec);

}  // namespace orrery::plan
