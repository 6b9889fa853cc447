#pragma once
/// Lowers a Plan to a Schedule. Everything that the simulator predicts and the executor runs is decided here.
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct LowerOptions {
  /// Recomputation repeats the whole layer, as PyTorch's checkpoint does, even operators whose output backward does
  /// not read (the last product and its all-reduce). A property of the software stack.
  bool recompute_whole_layer = false;
  /// Backward runs a layer with experts again from its router on, and keeps nothing of that part between the passes
  /// (Megatron-Core's --recompute-modules moe). A property of the software stack; of no account where layers are
  /// recomputed in full.
  bool recompute_experts = false;
  /// ZeRO-2 and 3: a layer's full gradients stay until their sum is added up, one layer later, so that the next layer
  /// does not wait for the reduction. A property of the software stack.
  bool reduce_beside = false;
  /// A step begins by zeroing gradients, to which every micro-batch adds; without, the first one writes them where its
  /// operators can. A property of the software stack.
  bool zero_gradients = false;
  /// The forward passes of a step's micro-batches and the loss, nothing else: evaluation on held-out data. Parameters,
  /// the scalars and their names are those of the training step, so that both can share an arena
  /// (plan/schedule/place.h).
  bool forward_only = false;
  bool keep_logits = false;  ///< the head's logits outlive the pass, as a persistent buffer: sampling reads them
};

/// Element type in which gradients are kept and reduced: fp32 for fp32 and bf16 (Megatron-LM accumulates bf16 gradients
/// in fp32), fp16 for fp16 (Micikevicius et al. 2018).
[[nodiscard]] models::DType gradient_dtype(models::DType precision);

/// Of a recomputed layer, the parts and operators that backward really needs.
[[nodiscard]] std::vector<models::Part> needed_parts(const models::LayerProgram& program);

/// The parts of a layer's forward pass from its router on. Empty without experts.
[[nodiscard]] std::vector<models::Part> parts_of_experts(const models::LayerProgram& program);
/// Tensors, rows of others among them, that hold what these parts make.
[[nodiscard]] std::vector<int> made_by(const models::LayerProgram& program, const std::vector<models::Part>& parts);

/// Backward of a layer under that recomputation: selective has the core of the attention run again just before its
/// gradient.
[[nodiscard]] std::vector<models::Part> backward_parts(const models::LayerProgram& program, Recompute recompute);
/// A backward pass in two: what leads to the input's gradient, and the products that make weights' gradients, with what
/// they alone gather again.
struct SplitBackward {
  std::vector<models::Part> inputs, weights;
};
[[nodiscard]] SplitBackward split_backward(const models::LayerProgram& program, const std::vector<models::Part>& parts);
/// The tensor that the core of the attention leaves to its gradient (probabilities or row statistics); -1: no
/// attention.
[[nodiscard]] int core_tensor(const models::LayerProgram& program);

[[nodiscard]] Schedule lower(const Plan& plan, const LowerOptions& options = {});

}  // namespace orrery::plan
