// Which parts of a layer recomputation repeats: all that backward needs, or only the core of attention. Also the
// parameters of models that have no layers.
#include <algorithm>
#include <set>

#include "plan/lower/lower_recommender.h"
#include "plan/lower/recomputed.h"

namespace orrery::plan {

using models::Op;
using models::OpKind;
using models::TensorId;

namespace {

/// Tensors that exist: an absent operand adds none, and is never among them.
class Tensors {
 public:
  void add(TensorId tensor) {
    if (tensor) all_.insert(tensor);
  }
  void add_operands(const std::vector<int>& operands) {
    for (const int operand : operands) add(models::tensor_of(operand));
  }
  [[nodiscard]] bool contains(TensorId tensor) const { return all_.contains(tensor); }

 private:
  std::set<TensorId> all_;
};

}  // namespace

std::vector<models::Part> needed_parts(const models::LayerProgram& program) {
  Tensors needed;
  for (const models::Part& part : program.backward)
    for (const Op& op : part.ops) needed.add_operands(op.in);
  std::vector<models::Part> kept;
  for (auto part = program.forward.rbegin(); part != program.forward.rend(); ++part) {
    if (part->is_communication()) {
      if (!needed.contains(part->tensor)) continue;
      kept.push_back(*part);
      for (const TensorId read : {part->source, part->sent, part->received}) needed.add(read);
      continue;
    }
    models::Part reduced;
    for (auto op = part->ops.rbegin(); op != part->ops.rend(); ++op) {
      const bool used =
          std::any_of(op->out.begin(), op->out.end(), [&](int t) { return needed.contains(models::tensor_of(t)); });
      if (!used) continue;
      needed.add_operands(op->in);
      reduced.ops.push_back(*op);
    }
    std::reverse(reduced.ops.begin(), reduced.ops.end());
    if (!reduced.ops.empty()) kept.push_back(std::move(reduced));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

std::vector<models::Part> recomputed_parts(const models::LayerProgram& program, bool whole_layer) {
  if (!whole_layer) return needed_parts(program);
  std::vector<models::Part> parts = program.forward;
  for (models::Part& part : parts)
    std::erase_if(part.ops, [](const Op& op) { return op.kind == OpKind::count_choices; });
  std::erase_if(parts, [](const models::Part& part) { return part.ops.empty() && !part.is_communication(); });
  return parts;
}

std::vector<models::Part> with_last_alone(std::vector<models::Part> parts) {
  if (parts.empty() || parts.back().ops.size() < 2) return parts;
  const Op last = parts.back().ops.back();
  parts.back().ops.pop_back();
  parts.push_back({.ops = {last}});
  return parts;
}

std::vector<models::Part> parts_of_experts(const models::LayerProgram& program) {
  std::vector<models::Part> out;
  bool inside = false;
  for (const models::Part& part : program.forward) {
    if (inside) {
      out.push_back(part);
      continue;
    }
    const auto route =
        std::find_if(part.ops.begin(), part.ops.end(), [](const Op& op) { return op.kind == OpKind::route; });
    if (route == part.ops.end()) continue;
    models::Part rest = part;
    const auto router = std::max<std::ptrdiff_t>(0, route - part.ops.begin() - 1);  // from its product on
    rest.ops.erase(rest.ops.begin(), rest.ops.begin() + router);
    out.push_back(std::move(rest));
    inside = true;
  }
  return out;
}

std::vector<TensorId> made_by(const models::LayerProgram& program, const std::vector<models::Part>& parts) {
  Tensors made;
  for (const models::Part& part : parts) {
    made.add(models::owner_of(program, part.tensor));
    for (const Op& op : part.ops)
      for (const int t : op.out) made.add(models::owner_of(program, models::tensor_of(t)));
  }
  std::vector<TensorId> all;
  for (const TensorId t : program.tensors.keys())
    if (made.contains(models::owner_of(program, t))) all.push_back(t);
  return all;
}

namespace {

const Op* core_of(const models::LayerProgram& program) {
  for (const models::Part& part : program.forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::attention) return &op;
  return nullptr;
}

}  // namespace

TensorId core_tensor(const models::LayerProgram& program) {
  const Op* core = core_of(program);
  return core ? models::tensor_of(core->out.at(1)) : TensorId();
}

SplitBackward split_backward(const models::LayerProgram& program, const std::vector<models::Part>& parts) {
  const auto of_weights = [&](const Op& op) {
    return (op.kind == OpKind::matmul || op.kind == OpKind::grouped_weight_grad) &&
           program.tensors[models::tensor_of(op.out.front())].role == models::TensorRole::gradient;
  };
  Tensors for_inputs;  // read by anything except the weights' products
  for (const models::Part& part : parts) {
    for (const TensorId read : {part.source ? part.source : part.tensor, part.sent, part.received})
      for_inputs.add(read);
    for (const Op& op : part.ops)
      if (!of_weights(op)) for_inputs.add_operands(op.in);
  }
  SplitBackward out;
  bool join = false;  // the message between two runs of operators has moved to the other half
  for (const models::Part& part : parts) {
    if (part.is_communication()) {
      const bool moves = part.source.exists() && part.tensor != program.dx && !for_inputs.contains(part.tensor);
      (moves ? out.weights : out.inputs).push_back(part);
      join = moves;
      continue;
    }
    models::Part inputs{.ops = {}, .recomputed = part.recomputed}, weights{};
    for (const Op& op : part.ops) (of_weights(op) ? weights : inputs).ops.push_back(op);
    if (!inputs.ops.empty()) {
      if (join && !out.inputs.empty() && !out.inputs.back().is_communication())
        out.inputs.back().ops.insert(out.inputs.back().ops.end(), inputs.ops.begin(), inputs.ops.end());
      else
        out.inputs.push_back(std::move(inputs));
      join = false;
    }
    if (weights.ops.empty()) continue;
    if (!out.weights.empty() && !out.weights.back().is_communication())
      out.weights.back().ops.insert(out.weights.back().ops.end(), weights.ops.begin(), weights.ops.end());
    else
      out.weights.push_back(std::move(weights));
  }
  return out;
}

std::vector<models::Part> backward_parts(const models::LayerProgram& program, Recompute recompute) {
  const Op* core = core_of(program);
  if (recompute != Recompute::selective || !core) return program.backward;
  std::vector<models::Part> out;
  for (const models::Part& part : program.backward) {
    const auto gradient =
        std::find_if(part.ops.begin(), part.ops.end(), [](const Op& op) { return op.kind == OpKind::attention_grad; });
    if (gradient == part.ops.end()) {
      out.push_back(part);
      continue;
    }
    out.push_back({.ops = {part.ops.begin(), gradient}});
    out.push_back({.ops = {*core}, .recomputed = true});
    out.push_back({.ops = {gradient, part.ops.end()}});
  }
  return out;
}

ParameterRange range_of_parameter(const std::string& name, const std::vector<std::int64_t>& shape, double stddev) {
  ParameterRange range;
  range.name = name;
  range.replicated = true;
  models::Tensor& tensor = range.tensor;
  tensor.name = name;
  tensor.role = models::TensorRole::parameter;
  tensor.shape = tensor.logical_shape = shape;
  tensor.initial_stddev = stddev;
  range.elements = tensor.elements();
  return range;
}

}  // namespace orrery::plan
