#pragma once
/// What happens to a bucket of parameters in a training step, as data: the operators and messages that zero, reduce,
/// square, update and gather it, in order, and the memory that they need beside it. Lowering writes these items down as
/// steps (plan/lower/write_outline.h), and cost/ adds up their prices (cost/estimate/fold.h).
///
/// An outline names memory and groups of ranks by what they are, so that equal buckets of a stage have one outline.
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ensure.h"
#include "models/operators/op.h"
#include "plan/outline/factors.h"
#include "plan/outline/low_rank.h"
#include "plan/outline/whole_matrices.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// A flat bucket of parameters without its buffers. Sizes are in elements.
struct BucketShape {
  std::int64_t elements = 0;    ///< padded to its shards
  std::int64_t shard = 0;       ///< of one rank's shard
  std::int64_t partial = 0;     ///< leading elements whose gradients are summed over the tensor group
  std::int64_t parameters = 0;  ///< number of tensors
  FactorCount factors = {};
  bool embedding = false;                              ///< contains the input tables
  bool experts = false;                                ///< contains the rank's own experts
  const std::vector<MatrixShape>* matrices = nullptr;  ///< of its tensors, in order; nullptr: not needed
  const WholeMatrices* whole = nullptr;                ///< those updated as a whole; nullptr: none
};

/// Memory that items name. Memory of a bucket is a separate buffer for each bucket. Memory of a stage serves all of its
/// buckets, and is as large as the largest of them needs.
enum class Memory : std::uint8_t {
  // Of a bucket. Gradients: under ZeRO 2 and 3 those of one pass; where they are whole, they last.
  gradients,
  gradient_shard,
  parameters,
  parameter_shard,
  master,
  first_moment,
  second_moment,
  first_scale,
  second_scale,
  error,
  low_rank_q,
  received,
  temporary,
  // Of a stage.
  norm_squared,
  coefficient,
  scaling,
  factors,
  factor_sums,
  norms,
  newton_schulz,
  gathered_piece,
};
inline constexpr std::size_t kMemories = static_cast<std::size_t>(Memory::gathered_piece) + 1;
/// Memory of a stage that lives during the update alone.
inline constexpr Memory kStageTemporaries[] = {Memory::factor_sums, Memory::norms, Memory::newton_schulz,
                                               Memory::gathered_piece};

struct Slot {
  Memory memory = Memory::temporary;
  const char* name = "";  ///< of its buffer; for memory of a bucket, the bucket's name comes before it
  Purpose purpose = Purpose::communication;
  models::DType dtype = models::DType::fp32;
  std::int64_t elements = 0;
  int part = 0;  ///< the first part that uses it
};

/// A run of a slot's elements: what an operand index of an operator in an outline refers to.
struct Operand {
  int slot = -1;
  std::int64_t offset = 0, elements = 0;
  bool own = false;    ///< this rank's shard, as View::own
  int parameter = -1;  ///< the run of this tensor of the bucket, wherever it is; then offset and elements are unused
};

/// The ranks that a message goes over (plan/lower/groups.h), for experts' parameters and for others
/// (PlanSpec::holders).
enum class Over : std::uint8_t {
  tensor,  ///< the ranks that have parts of the same matrices
  data,    ///< all ranks that hold the bucket's parameters, or ZeRO's sub-group
  copies,  ///< under ZeRO: the ranks that hold the same shard
  near,    ///< replicas of a node, and
  far,     ///< their counterparts on other nodes
  parts,   ///< the ranks that have parts of one parameter
};

/// What each of these is for one kind of parameters: a group, or its ranks.
template <class T>
struct ByOver {
  T tensor{}, data{}, copies{}, near{}, far{}, parts{};
  [[nodiscard]] const T& over(Over which) const {
    switch (which) {
      case Over::tensor: return tensor;
      case Over::data: return data;
      case Over::copies: return copies;
      case Over::near: return near;
      case Over::far: return far;
      case Over::parts: return parts;
    }
    ENSURE(false, "no group {}", static_cast<int>(which));
  }
};

/// A step: of compute, or a message if it has no operators.
struct Item {
  Phase phase = Phase::gradient_reduce;
  int part = 0;
  const char* name = "";
  std::vector<models::Op> ops = {};  ///< their operand indices refer to Operands
  CollectiveKind kind{};
  Over over{};
  bool experts = false;          ///< a message over ranks that hold experts' parameters
  int source = -1, target = -1;  ///< operands
  [[nodiscard]] bool is_message() const { return ops.empty(); }
};

/// Items come in parts. Between two parts of a bucket, other buckets' parts may stand, so that messages move meanwhile.
struct Outline {
  std::vector<Slot> slots;
  std::vector<Operand> operands;
  std::vector<Item> items;
  int parts = 1;
  [[nodiscard]] const Slot& slot_of(int operand) const {
    return slots[static_cast<std::size_t>(operands[static_cast<std::size_t>(operand)].slot)];
  }
  /// Bytes of a message, as Step::message_bytes.
  [[nodiscard]] std::int64_t message_bytes(const Item& item) const;
};

/// ZeRO's stage; 0 where there is no other rank to share states with.
[[nodiscard]] inline int zero_of(const PlanSpec& spec) {
  return spec.mesh.replicas() > 1 ? spec.states.zero_stage : 0;
}
/// Elements of the bucket that a rank optimizes.
[[nodiscard]] inline std::int64_t optimized_of(const BucketShape& bucket, const PlanSpec& spec) {
  return zero_of(spec) >= 1 ? bucket.shard : bucket.elements;
}
/// The number of ranks in this group of a bucket (`experts`: one of experts). A message over fewer than two is left
/// out.
[[nodiscard]] int ranks_of(Over over, bool experts, const PlanSpec& spec);

/// Whether PowerSGD reduces such buckets. What no other rank holds is not reduced.
[[nodiscard]] inline bool approximates(bool experts, const PlanSpec& spec) {
  return spec.low_rank() && ranks_of(Over::data, experts, spec) > 1;
}

/// Element types. The type in which gradients are kept and reduced: fp32 for fp32 and bf16 (Megatron-LM accumulates
/// bf16 gradients in fp32), fp16 for fp16 (Micikevicius et al. 2018).
[[nodiscard]] models::DType gradient_dtype(models::DType precision);
/// The type of parameters as compute reads them.
[[nodiscard]] models::DType compute_dtype(models::DType precision);
/// Whether updates change fp32 masters, which are then rounded to parameters.
[[nodiscard]] bool has_master(const PlanSpec& spec);

/// A state of the optimizer or of compression that lasts for the whole run; without elements if the plan has none.
[[nodiscard]] Slot state_of(Memory memory, const BucketShape& bucket, const PlanSpec& spec);
inline constexpr Memory kStates[] = {Memory::master,      Memory::first_moment, Memory::second_moment,
                                     Memory::first_scale, Memory::second_scale, Memory::error,
                                     Memory::low_rank_q};
/// The states that such a bucket has, in the order of its buffers.
[[nodiscard]] std::vector<Slot> states_of(const BucketShape& bucket, const PlanSpec& spec);

/// Notes an outline down, item by item. Private to plan/outline/.
class Sketch {
 public:
  Sketch(const BucketShape& bucket, const PlanSpec& spec) : bucket_(bucket), spec_(spec) {
    result_.slots.reserve(6);
    result_.operands.reserve(10);
    result_.items.reserve(4);
  }

  [[nodiscard]] const BucketShape& bucket() const { return bucket_; }
  [[nodiscard]] const PlanSpec& spec() const { return spec_; }

  /// Temporary memory of the bucket.
  int temporary(const char* name, models::DType dtype, std::int64_t elements);
  /// Memory of a stage.
  int of_stage(Memory memory, const char* name, std::int64_t elements, Purpose purpose = Purpose::communication,
               models::DType dtype = models::DType::fp32);
  /// Memory of the bucket, with the size that its kind has.
  int slot(Memory memory);

  int run(int slot, std::int64_t offset, std::int64_t elements, bool own = false);
  int whole(int slot) { return run(slot, 0, result_.slots[static_cast<std::size_t>(slot)].elements); }
  int whole(Memory memory) { return whole(slot(memory)); }
  int own(Memory memory) { return run(slot(memory), 0, bucket_.shard, true); }
  int own_of(int operand) {
    return run(result_.operands[static_cast<std::size_t>(operand)].slot, 0, bucket_.shard, true);
  }
  int parameter(Memory memory, int index);
  [[nodiscard]] std::int64_t elements(int operand) const {
    return result_.operands[static_cast<std::size_t>(operand)].elements;
  }
  /// The gradients that this rank optimizes, and the values that it updates.
  int optimized_gradient();
  int optimized_values();

  [[nodiscard]] static models::Op flat(models::OpKind kind, models::DType dtype, std::int64_t m, std::vector<int> in,
                                       std::vector<int> out);
  [[nodiscard]] models::Op zero(int operand) const;

  void compute(Phase phase, const char* name, std::vector<models::Op> ops);
  /// Adds nothing if the message would go over one rank. Over ranks that hold the bucket's parameters, or what is said.
  void message(Phase phase, CollectiveKind kind, Over over, int source, int target) {
    message(phase, kind, over, bucket_.experts, source, target);
  }
  void message(Phase phase, CollectiveKind kind, Over over, bool experts, int source, int target);
  void next_part() { result_.parts = ++part_ + 1; }

  [[nodiscard]] Outline take() { return std::move(result_); }

 private:
  const BucketShape& bucket_;
  const PlanSpec& spec_;
  Outline result_;
  int part_ = 0;
};

}  // namespace orrery::plan
