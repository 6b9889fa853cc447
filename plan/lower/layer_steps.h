#pragma once
/// A layer's operators and messages as steps of a class, on views of its tensors. Private to plan/.
#include <map>
#include <string>
#include <vector>

#include "plan/lower/groups.h"
#include "plan/lower/lower.h"
#include "plan/lower/stage_layers.h"

namespace orrery::plan {

/// Views of a layer's tensors in one pass: forward, backward, or backward with what it recomputes.
struct LayerTensors {
  base::ById<models::TensorId, int> views;  ///< -1: not made yet
  std::vector<BufferId> parameters;         ///< by the layer's buckets: the buffer with the full values
  std::vector<BufferId> gradients;          ///< by the layer's buckets: the buffer for gradients
  const char* suffix = "";                  ///< of the names of new buffers
};

class LayerSteps {
 public:
  /// The class has its loss, its counts and its scaling before layers run. All arguments must outlive this.
  LayerSteps(const Plan& plan, const LowerOptions& options, const Groups& groups, ClassBuilder& build)
      : plan_(plan), options_(options), groups_(groups), build_(build) {}

  /// No views yet.
  [[nodiscard]] static LayerTensors none_of(const StageLayer& layer, const char* suffix);
  /// A step that loads what an embedding, a head or both read of a batch; none for neither.
  void load_inputs(bool embeds, bool heads);
  void set_view(LayerTensors& tensors, models::TensorId tensor, BufferId buffer) {
    tensors.views[tensor] = build_.view(build_.whole(buffer));
  }
  /// The buffer that holds a tensor.
  [[nodiscard]] BufferId buffer_of(const StageLayer& layer, LayerTensors& tensors, models::TensorId tensor) {
    return build_.view_at(view_of(layer, tensors, tensor)).buffer;
  }
  /// A buffer of its own for a tensor of the layer; `suffix` follows its name.
  [[nodiscard]] BufferId buffer_for(const StageLayer& layer, models::TensorId tensor, const char* suffix,
                                    bool persistent = false);
  /// `first_ops` run before the first part's operators, in the same step.
  void run(const StageLayer& layer, LayerTensors& tensors, const std::vector<models::Part>& parts, Phase phase,
           std::vector<models::Op> first_ops = {});

 private:
  int view_of(const StageLayer& layer, LayerTensors& tensors, models::TensorId tensor);
  [[nodiscard]] int make_view(const StageLayer& layer, LayerTensors& tensors, models::TensorId tensor);
  void communicate(const StageLayer& layer, LayerTensors& tensors, const models::Part& part, Phase phase);
  [[nodiscard]] models::Op bound(const StageLayer& layer, LayerTensors& tensors, models::Op op);

  const Plan& plan_;
  const LowerOptions& options_;
  const Groups& groups_;
  ClassBuilder& build_;
  std::map<models::TensorRole, BufferId> inputs_;  ///< that load_inputs fills
};

}  // namespace orrery::plan
