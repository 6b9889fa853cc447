#pragma once
/// What passes need from a bucket, and how its gradients are zeroed, summed over its replicas and squared.
///
/// In 16 bits, for a bucket with n replicas: values are rounded; an all-to-all brings each replica its piece of all
/// other replicas' values; it adds them up in fp32, in the order of the replicas; ZeRO 0 rounds the sum and gathers all
/// sums. A sum in 16 bits, hop by hop, would lose a part of each value with every hop.
///
/// In an all-to-all over all replicas, every device sends nearly a whole message to other nodes, where a ring sends one
/// for all devices of a node. With g replicas on a node, a plain all-reduce thus has 1/g of the traffic, in values
/// twice as wide. So where `group` is g, the replicas of a node first sum in fp32 and each keep 1/g of the result
/// (reduce-scatter); counterparts on the nodes exchange that in 16 bits as above and gather its sum; then the replicas
/// of a node gather the rest from each other. Each node's sum is rounded once, and so is the sum of all. (ZeRO++, Wang
/// et al. 2023, section 3.3, found the same for quantised gradients: its hierarchical all-to-all.) With ZeRO 1 and 2
/// the sum of what came from the nodes is a rank's shard, in fp32; parameters are gathered among its counterparts and
/// then within the node. ZeRO++ reorders the parts of a message first, so that each rank gets the shard that it owns;
/// here ranks own what they get (PlanSpec::shard_index).
///
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019, algorithms 1 and 2): for each matrix M of replica i, with its error E_i,
/// the part of its gradients that has not been sent so far,
///   M_i += E_i; P = sum_i M_i Q; P := orthonormal columns; Q = sum_i M_i^T P; the gradient is P Q^T;
///   E_i = M_i - P Q^T / n.
/// Gradients are sums over replicas here, because the loss is divided by all tokens: the sum of the errors is what the
/// gradient lacks. The next step begins with Q. Parameters that travel whole are summed in fp32, as one message. Where
/// PowerSGD starts late (`start`), a step contains both reductions, and the number of the training step decides which
/// one runs (Step::from_step): until then errors are 0 and each Q is as it began.
#include "plan/outline/outline.h"

namespace orrery::plan {

/// When a reduction runs: in every pass (ZeRO 2 and 3), after the last pass, or within it.
enum class Reduces : std::uint8_t { in_every_pass, at_the_end, in_the_last_pass };

/// The items that reduce a bucket at this time; none if it is reduced at another time. `low_rank`: by PowerSGD where
/// the plan has it; false: as in the steps before PowerSGD starts.
[[nodiscard]] Outline reduction_of(const BucketShape& bucket, const PlanSpec& spec, Reduces when, bool low_rank = true);

/// Whether reductions outside of the passes need memory.
[[nodiscard]] bool reductions_need_memory(const PlanSpec& spec);

/// Zeroes the buffers in which a step's gradients are summed. Those of ZeRO 2 and 3 are zeroed in every pass
/// (zeroed_in_pass).
[[nodiscard]] Outline zeroed_at_start(const BucketShape& bucket, const PlanSpec& spec);
[[nodiscard]] Outline zeroed_in_pass(const BucketShape& bucket, const PlanSpec& spec);

/// ZeRO-3: gathers a bucket's parameters for a pass over its layer; nothing otherwise.
[[nodiscard]] Outline gathered_in_pass(const BucketShape& bucket, const PlanSpec& spec);

/// Adds the squares of the gradients that a rank optimizes to the squared norm.
[[nodiscard]] Outline squared(const BucketShape& bucket, const PlanSpec& spec);

}  // namespace orrery::plan
