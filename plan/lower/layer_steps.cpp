// Writes layers as steps. The class's buffers of the whole run, which some tensors name, are made before.
#include "plan/lower/layer_steps.h"

#include <algorithm>
#include <utility>

#include "models/operators/operators.h"
#include "plan/outline/layer_pass.h"

namespace orrery::plan {

using models::Op;
using models::OpKind;
using models::Tensor;
using models::TensorId;
using models::TensorRole;

LayerTensors LayerSteps::none_of(const StageLayer& layer, const char* suffix) {
  LayerTensors tensors;
  tensors.views.assign(layer.program->tensors.size(), -1);
  tensors.suffix = suffix;
  return tensors;
}

void LayerSteps::load_inputs(bool embeds, bool heads) {
  if (embeds || heads) inputs_ = plan::load_inputs(build_, plan_, embeds, heads);
}

BufferId LayerSteps::buffer_for(const StageLayer& layer, TensorId tensor, const char* suffix, bool persistent) {
  const Tensor& t = layer.program->tensors[tensor];
  return build_.buffer(label(layer) + "." + t.name + suffix, Purpose::activations, t.dtype, t.elements(), persistent);
}

int LayerSteps::view_of(const StageLayer& layer, LayerTensors& tensors, TensorId tensor) {
  if (!tensor) return -1;
  int& known = tensors.views[tensor];
  if (known < 0) known = make_view(layer, tensors, tensor);
  return known;
}

int LayerSteps::make_view(const StageLayer& layer, LayerTensors& tensors, TensorId tensor) {
  const RankClass& made = build_.result();
  const Tensor& t = layer.program->tensors[tensor];
  if (t.part_of) {
    const View whole = build_.view_at(view_of(layer, tensors, t.part_of));
    return build_.view({whole.buffer, whole.offset + t.first, t.elements()});
  }
  if (t.role == TensorRole::parameter || t.role == TensorRole::gradient) {
    const std::size_t at = place_of(layer, layer.bucket[tensor]);
    const BufferId holder = t.role == TensorRole::parameter ? tensors.parameters[at] : tensors.gradients[at];
    return build_.view({holder, layer.offset[tensor], t.elements()});
  }
  if (t.role == TensorRole::loss) return build_.view(build_.whole(made.loss));
  if (t.role == TensorRole::load) return build_.view({made.pooled, 0, t.elements()});
  if (t.role == TensorRole::tally || t.role == TensorRole::balance) {
    const auto place = std::find(made.expert_layers.begin(), made.expert_layers.end(),
                                 mixture_of(plan_.model(), layer.kind, layer.layer));
    const BufferId buffer = t.role == TensorRole::tally ? made.tally : made.expert_biases;
    return build_.view({buffer, (place - made.expert_layers.begin()) * t.elements(), t.elements()});
  }
  if (const auto read = inputs_.find(t.role); read != inputs_.end()) return build_.view(build_.whole(read->second));
  const bool kept = options_.keep_logits && layer.kind == models::LayerKind::head && t.name == "logits";
  return build_.view(build_.whole(buffer_for(layer, tensor, tensors.suffix, kept)));
}

void LayerSteps::communicate(const StageLayer& layer, LayerTensors& tensors, const models::Part& part, Phase phase) {
  const View target = build_.view_at(view_of(layer, tensors, part.tensor));
  const View source = part.source ? build_.view_at(view_of(layer, tensors, part.source)) : target;
  if (part.collective == models::GroupCollective::all_to_all) {
    CountedRows counted;
    if (part.sent)
      counted = {view_of(layer, tensors, part.sent), view_of(layer, tensors, part.received),
                 layer.program->tensors[part.tensor].shape[1], part.expected};
    build_.exchange(phase, Stream::exchange, groups_.expert, source, target, layer.layer, counted);
    return;
  }
  const bool ring = part.collective == models::GroupCollective::ring_shift;
  build_
      .collective(phase, ring ? Stream::context : Stream::tensor, kind_of(part.collective),
                  ring ? groups_.context : groups_.of(part.experts).tensor, source, target, {}, layer.layer,
                  part.reduce == models::GroupOperation::sum ? Reduce::sum : Reduce::maximum)
      .for_fp8 = part.for_fp8;
}

// Its operands are views, and it has the loss scale if it needs one.
Op LayerSteps::bound(const StageLayer& layer, LayerTensors& tensors, Op op) {
  for (int& t : op.in) t = view_of(layer, tensors, models::tensor_of(t));
  for (int& t : op.out) t = view_of(layer, tensors, models::tensor_of(t));
  const BufferId scaling = build_.result().scaling;
  if (const auto at = models::loss_scale_operand(op); at && scaling.exists()) {
    op.in.resize(*at, -1);
    op.in.push_back(build_.view({scaling, 0, 1}));
  }
  return op;
}

void LayerSteps::run(const StageLayer& layer, LayerTensors& tensors, const std::vector<models::Part>& parts,
                     Phase phase, std::vector<Op> first_ops) {
  const bool counts = build_.result().tally.exists();  // tokens count only in training
  bool attention = false;
  for (const models::Part& part : parts) {
    const Phase of_part = part.recomputed ? Phase::recompute : phase;
    if (part.is_communication()) {
      communicate(layer, tensors, part, of_part);
      continue;
    }
    if (part.ops.empty() && first_ops.empty()) continue;
    std::vector<Op> ops = std::exchange(first_ops, {});
    for (const Op& op : part.ops)
      if (op.kind != OpKind::count_choices || counts) ops.push_back(bound(layer, tensors, op));
    std::string name = layer.kind == models::LayerKind::block ? "block" : label(layer);
    if (layer.kind == models::LayerKind::block && plan_.spec().mesh.tensor > 1)
      name = name_of_part(ops, phase, attention);
    build_.compute(of_part, std::move(name), std::move(ops), layer.layer);
  }
}

}  // namespace orrery::plan
