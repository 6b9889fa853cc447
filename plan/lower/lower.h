#pragma once
/// Lowers a Plan to a Schedule: decides everything that the simulator predicts and the executor runs.
#include <cstdint>
#include <vector>

#include "plan/schedule/asynchronous.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

#ifdef NDEBUG
inline constexpr bool kIsDebugBuild = false;
#else
inline constexpr bool kIsDebugBuild = true;
#endif

struct LowerOptions {
  /// Recomputation repeats the whole layer, as PyTorch's checkpoint does, including operators whose output backward
  /// does not read (the last product and its all-reduce). A property of the software stack.
  bool recompute_whole_layer = false;
  /// What selective recomputation without modules is (Repeats::operators), where attention is fused. A property of the
  /// software stack.
  bool recompute_operators = false;
  /// ZeRO-2 and 3: a layer's full gradients stay until their sum is added to the shard, one layer later, so that the
  /// next layer does not wait for the reduction. A property of the software stack.
  bool reduce_beside = false;
  /// ZeRO 1 and 2: updated parameters are gathered during the next step's first passes, not at the end of this step.
  /// Not for schedules that are executed: between steps, a rank has only its own part. A property of the software
  /// stack.
  bool gather_next = false;
  /// A step begins by zeroing gradients, and every micro-batch adds to them. Otherwise the first micro-batch writes
  /// them, where its operators can. A property of the software stack.
  bool zero_gradients = false;
  /// Only the forward passes of a step's micro-batches, and the loss: evaluation on held-out data. Parameters, scalars
  /// and their names are those of the training step, so that both can share an arena (plan/schedule/place.h).
  bool forward_only = false;
  /// Layers that compute the same are one program, in which parameters and dropout are those of the first of them: for
  /// schedules that are priced and measured, not executed.
  bool shares_programs = false;
  bool check_passes = kIsDebugBuild;  ///< checks a class after each pass over it (plan/lower/passes.h)
  bool keep_logits = false;           ///< the head's logits stay in a persistent buffer, for sampling
};

/// The parts and operators of a recomputed layer that backward really needs.
[[nodiscard]] std::vector<models::Part> needed_parts(const models::LayerProgram& program);

/// A backward pass in two halves: the operators that lead to the gradient of the input; and the products for the
/// weights' gradients, with what is gathered or recomputed only for them.
struct SplitBackward {
  std::vector<models::Part> inputs, weights;
};
[[nodiscard]] SplitBackward split_backward(const models::LayerProgram& program, const std::vector<models::Part>& parts);
/// The same parts, with the last operator in one of its own.
[[nodiscard]] std::vector<models::Part> with_last_alone(std::vector<models::Part> parts);
[[nodiscard]] Schedule lower(const Plan& plan, const LowerOptions& options = {});
/// The first and the last block of a stage's training step, "begin" and "finish", as lower() writes them, without the
/// passes between them, whatever moves into these (plan/lower/reduce_early.h) or changes how they begin. For a
/// transformer whose pipeline drains, without a parameter server.
[[nodiscard]] Schedule lower_ends(const Plan& plan, StageId stage, const LowerOptions& options = {});

/// Some of a stage's layers.
struct SomeLayers {
  /// By chunk: which of its blocks, by their number in it, ascending.
  std::vector<std::vector<std::int64_t>> blocks;
  std::vector<bool> chunks;  ///< by chunk: whether it is there, with the embedding or the head if it has them
};
/// A stage's passes as lower() writes them, over some of its layers.
struct LoweredPasses {
  Schedule schedule;  ///< one class, without the end of the step
  BlocksOfMoves blocks;
  BucketId shared;  ///< of the tied token table, if it is among these layers'
};
/// `moves`: the stage's, or as many of its first micro-batches as have every pattern. For a transformer whose pipeline
/// drains, without a parameter server.
[[nodiscard]] LoweredPasses lower_passes(const Plan& plan, StageId stage, std::vector<Move> moves,
                                         const SomeLayers& some, const LowerOptions& options = {});

}  // namespace orrery::plan
