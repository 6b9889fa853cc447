// Which parts of a layer full recomputation repeats, and a backward pass in two halves. Also the parameters of models
// that have no layers.
#include <algorithm>
#include <set>
#include <utility>

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

SplitBackward split_backward(const models::LayerProgram& program, const std::vector<models::Part>& parts) {
  const auto of_weights = [&](const Op& op) {
    return (op.kind == OpKind::matmul || op.kind == OpKind::grouped_weight_grad) &&
           program.tensors[models::tensor_of(op.out.front())].role == models::TensorRole::gradient;
  };
  Tensors for_inputs;  // read by anything except the weights' products, and what is recomputed only for these
  const auto reads = [&](const models::Part& message) {
    for (const TensorId read : {message.source ? message.source : message.tensor, message.sent, message.received})
      for_inputs.add(read);
  };
  const auto writes = [&](const Op& op) {
    return std::any_of(op.out.begin(), op.out.end(), [&](int t) { return for_inputs.contains(models::tensor_of(t)); });
  };
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->is_communication() && (!part->recomputed || for_inputs.contains(part->tensor))) reads(*part);
    for (auto op = part->ops.rbegin(); op != part->ops.rend(); ++op)
      if (part->recomputed ? writes(*op) : !of_weights(*op)) for_inputs.add_operands(op->in);
  }
  SplitBackward out;
  bool join = false;  // the message between two runs of operators has moved to the other half
  const auto add = [](std::vector<models::Part>& half, models::Part run, bool to_last) {
    if (run.ops.empty()) return;
    if (to_last && !half.empty() && !half.back().is_communication() && half.back().recomputed == run.recomputed)
      half.back().ops.insert(half.back().ops.end(), run.ops.begin(), run.ops.end());
    else
      half.push_back(std::move(run));
  };
  for (const models::Part& part : parts) {
    if (part.is_communication()) {
      const bool moves = part.source.exists() && part.tensor != program.dx && !for_inputs.contains(part.tensor);
      (moves ? out.weights : out.inputs).push_back(part);
      join = moves;
      continue;
    }
    models::Part inputs{.ops = {}, .recomputed = part.recomputed}, weights = inputs;
    for (const Op& op : part.ops)
      ((part.recomputed ? !writes(op) : of_weights(op)) ? weights : inputs).ops.push_back(op);
    if (!inputs.ops.empty()) add(out.inputs, std::move(inputs), std::exchange(join, false));
    add(out.weights, std::move(weights), true);
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
