#pragma once
/// Gradients that travel in fewer bits, as lowering notes them down. Private to plan/.
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
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

/// Makes the buffers of a bucket's error and Q, and gives its ranges their places. Nothing unless PowerSGD is asked
/// for.
void add_compression_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket);

/// Reductions of buckets, each in three parts (four by node) with messages behind all but the last, where there is
/// something to send. Parts stand one bucket apart, so that a bucket's messages move while the next one's gradients are
/// made.
class CompressedReduction {
 public:
  CompressedReduction(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, int zero)
      : build_(build), groups_(groups), spec_(spec), zero_(zero) {}

  /// The next bucket's first part, behind the last part of the bucket before the last and the second of the last one.
  /// `gradients`: the buffer that has them all.
  void add(int bucket, int gradients, std::int32_t layer);
  /// What of the buckets added so far is left.
  void flush();

 private:
  struct Under {
    int bucket = -1, gradients = -1;
    std::int32_t layer = -1;
    int sent = -1, pieces = -1;            ///< 16 bits: buffers
    int near = -1, summed = -1, all = -1;  ///< by node: buffers of the node's sum, of all nodes' and of all of it
    int p = -1, rest = -1;                 ///< PowerSGD: buffers
    int part = 0;                          ///< that has been noted last
  };
  void begin(Under& one);
  void meet(Under& one);
  void end(Under& one);
  void begin_halves(Under& one);
  void exchange(Under& one, int values, int group);
  void sum_of_nodes(Under& one);
  void sum_pieces(const Under& one, std::int64_t pieces, const View& target);
  [[nodiscard]] View kept_shard(const Under& one) const;
  [[nodiscard]] bool move_on(Under& one);
  void begin_low_rank(Under& one);
  void move_on();
  [[nodiscard]] std::int64_t rank(const ParameterRange& range) const;
  [[nodiscard]] models::Op product(const Under& one, const ParameterRange& range, int which) const;
  void compute(const Under& one, const char* part, std::vector<models::Op> ops);
  void send(const Under& one, CollectiveKind kind, int group, const View& source, const View& target);
  [[nodiscard]] bool rounds() const;

  ClassBuilder& build_;
  const Groups& groups_;
  const PlanSpec& spec_;
  int zero_;
  std::vector<Under> under_;
};

}  // namespace orrery::plan
