#pragma once
/// The passes of a micro-batch over a chunk of a stage's layers: forward, backward, and the weights' half of a backward
/// pass that is split. Private to plan/.
#include <vector>

#include "plan/lower/layer_steps.h"
#include "plan/lower/pass_buckets.h"
#include "plan/outline/chunk_pass.h"

namespace orrery::plan {

class LayerPasses {
 public:
  /// All arguments must outlive this.
  LayerPasses(const Plan& plan, const LowerOptions& options, const Groups& groups,
              const std::vector<StageLayer>& layers, ClassBuilder& build)
      : spec_(plan.spec()),
        options_(options),
        layers_(layers),
        build_(build),
        steps_(plan, options, groups, build),
        buckets_(plan.spec(), groups, build, options.reduce_beside),
        forward_tensors_(layers.size()),
        backward_tensors_(layers.size()) {}

  /// From x to the returned y, with what the chunk reads of a batch. Neither exists at the ends of the model.
  BufferId forward(const Chunk& chunk, BufferId x);
  /// From dy to the returned dx. Without the gradients of weights if passes are split; weights() then makes these.
  BufferId backward(const Chunk& chunk, BufferId dy);
  void weights(const Chunk& chunk);

 private:
  struct ForwardPass;
  struct BackwardPass;
  struct WeightsPass;
  [[nodiscard]] LayerTensors backward_tensors(std::size_t layer);
  [[nodiscard]] std::vector<models::Part> parts_of_backward(const StageLayer& layer) const;

  const PlanSpec& spec_;
  const LowerOptions& options_;
  const std::vector<StageLayer>& layers_;
  ClassBuilder& build_;
  LayerSteps steps_;
  PassBuckets buckets_;
  std::vector<LayerTensors> forward_tensors_, backward_tensors_;  ///< by layer
};

}  // namespace orrery::plan
