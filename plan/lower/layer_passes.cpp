// The passes over layers, in the order of plan/outline/chunk_pass.h.
#include "plan/lower/layer_passes.h"

#include <utility>

#include "plan/lower/recomputed.h"
#include "plan/lower/repeated_modules.h"

namespace orrery::plan {

using models::Part;
using models::TensorId;

struct LayerPasses::ForwardPass {
  LayerPasses& to;
  BufferId x;  ///< what the next layer reads

  std::vector<BufferId> gather(std::size_t i) const { return to.buckets_.gather(to.layers_[i], ".forward"); }
  void run(std::size_t i, std::vector<BufferId> holders) {
    const StageLayer& layer = to.layers_[i];
    LayerTensors& tensors = to.forward_tensors_[i];
    tensors = LayerSteps::none_of(layer, "");
    tensors.parameters = std::move(holders);
    if (layer.program->x) to.steps_.set_view(tensors, layer.program->x, x);
    const bool evaluates = to.options_.forward_only && !layer.program->evaluation.empty();
    to.steps_.run(layer, tensors, evaluates ? layer.program->evaluation : layer.program->forward, Phase::forward);
    if (layer.program->y) x = to.steps_.buffer_of(layer, tensors, layer.program->y);
  }
};

BufferId LayerPasses::forward(const Chunk& chunk, BufferId x) {
  steps_.load_inputs(layers_[chunk.first].kind == models::LayerKind::embedding,
                     layers_[chunk.last - 1].kind == models::LayerKind::head);
  ForwardPass pass{*this, x};
  forward_order(chunk, pass);
  return pass.x;
}

struct LayerPasses::BackwardPass {
  LayerPasses& to;
  BufferId dy;  ///< what the next layer reads
  LayerTensors tensors = {};
  std::vector<models::Op> zero = {};

  std::vector<BufferId> gather(std::size_t i) const { return to.buckets_.gather_for_backward(to.layers_[i]); }
  void begin(std::size_t i, std::vector<BufferId> holders) {
    const StageLayer& layer = to.layers_[i];
    tensors = to.backward_tensors(i);
    tensors.parameters = std::move(holders);
    // Forward's views of parameters name its gathered copy, so backward makes its own.
    for (const TensorId t : layer.program->tensors.keys())
      if (layer.bucket[t]) tensors.views[t] = -1;
    PassBuckets::Gradients gradients = to.buckets_.gradients_of(layer);
    tensors.gradients = std::move(gradients.buffers);
    zero = std::move(gradients.zero);
    if (layer.program->dy) to.steps_.set_view(tensors, layer.program->dy, dy);
  }
  void recompute(std::size_t i) {
    const StageLayer& layer = to.layers_[i];
    if (!layer.repeats.all) return;
    to.steps_.run(layer, tensors, recomputed_parts(*layer.program, to.options_.recompute_whole_layer),
                  Phase::recompute);
  }
  void run(std::size_t i) {
    const StageLayer& layer = to.layers_[i];
    std::vector<Part> parts = to.parts_of_backward(layer);
    if (to.spec_.stages.splits_backward()) parts = split_backward(*layer.program, parts).inputs;
    to.steps_.run(layer, tensors, parts, Phase::backward, std::move(zero));
    to.backward_tensors_[i] = tensors;
    if (layer.program->dx) dy = to.steps_.buffer_of(layer, tensors, layer.program->dx);
  }
  void reduce(std::size_t i) const { to.buckets_.reduce(to.layers_[i], tensors.gradients); }
  void add_up() const { to.buckets_.add_up(); }
  void end() const { to.buckets_.end(); }
};

BufferId LayerPasses::backward(const Chunk& chunk, BufferId dy) {
  BackwardPass pass{*this, dy};
  backward_order(chunk, spec_, pass);
  return pass.dy;
}

struct LayerPasses::WeightsPass {
  LayerPasses& to;
  void run(std::size_t i, bool last_alone) const {
    const StageLayer& layer = to.layers_[i];
    const std::vector<Part> weights = split_backward(*layer.program, to.parts_of_backward(layer)).weights;
    to.steps_.run(layer, to.backward_tensors_[i], last_alone ? with_last_alone(weights) : weights, Phase::backward);
  }
};

void LayerPasses::weights(const Chunk& chunk) {
  WeightsPass pass{*this};
  weights_order(chunk, pass);
}

std::vector<Part> LayerPasses::parts_of_backward(const StageLayer& layer) const {
  return backward_parts(*layer.program, layer.repeats, options_.recompute_whole_layer);
}

// Backward reads what forward saved, or with recomputation its own tensors, made from x.
LayerTensors LayerPasses::backward_tensors(std::size_t i) {
  const StageLayer& layer = layers_[i];
  if (layer.repeats.all) {
    LayerTensors tensors = LayerSteps::none_of(layer, ".recomputed");
    tensors.views[layer.program->x] = forward_tensors_[i].views[layer.program->x];
    return tensors;
  }
  LayerTensors tensors = forward_tensors_[i];
  tensors.suffix = "";
  for (const TensorId again : made_again(*layer.program, layer.repeats, options_.recompute_whole_layer)) {
    if (layer.program->tensors[again].part_of)
      tensors.views[again] = -1;
    else
      steps_.set_view(tensors, again, steps_.buffer_for(layer, again, ".recomputed"));
  }
  return tensors;
}

}  // namespace orrery::plan
