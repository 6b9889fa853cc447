/// Prices and lifetimes of one layer.
#include "cost/layer_costs.h"

#include "plan/buckets.h"
#include "plan/lower.h"
#include "plan/place.h"

namespace orrery::cost {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

plan::CollectiveKind kind_of(models::GroupCollective collective) {
  switch (collective) {
    case models::GroupCollective::all_reduce: return plan::CollectiveKind::all_reduce;
    case models::GroupCollective::all_gather: return plan::CollectiveKind::all_gather;
    case models::GroupCollective::reduce_scatter: return plan::CollectiveKind::reduce_scatter;
  }
  return plan::CollectiveKind::all_reduce;
}

/// Walks over the parts of a pass as lowering does: a run of ops is a step, a message is a step.
template <class Touch>
Pass walk(const std::vector<models::Part>& parts, const models::LayerProgram& program, const Pricing& pricing,
          const std::vector<int>& group, const Touch& touch) {
  Pass pass;
  for (const models::Part& part : parts) {
    if (part.is_communication()) {
      const int whole = part.collective == models::GroupCollective::reduce_scatter ? part.source : part.tensor;
      const auto bytes = static_cast<double>(program.tensors[static_cast<std::size_t>(whole)].bytes());
      pass.messages += pricing.collective_time(kind_of(part.collective), base::Bytes{bytes}, group).value;
      pass.message_bytes += bytes;
      ++pass.message_count;
      touch(part.source, pass.steps);
      touch(part.tensor, pass.steps++);
      continue;
    }
    if (part.ops.empty()) continue;
    (part.recomputed ? pass.recomputed : pass.compute) += pricing.compute_time(part.ops).value;
    pass.host += pricing.host_time(part.ops).value;
    for (const models::Op& op : part.ops) {
      for (const int t : op.in) touch(t, pass.steps);
      for (const int t : op.out) touch(t, pass.steps);
    }
    ++pass.steps;
  }
  return pass;
}

void note(int& first, int& last, int step) {
  if (first < 0) first = step;
  last = step;
}

}  // namespace

LayerCosts layer_costs(const models::LayerProgram& program, plan::Recompute recomputation, const Pricing& pricing,
                       const std::vector<int>& group) {
  LayerCosts out;
  out.recomputation = recomputation;
  out.kind = program.kind;
  std::vector<int> life_of(program.tensors.size(), -1);
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const models::Tensor& t = program.tensors[i];
    if (t.role == models::TensorRole::parameter) {
      std::int64_t& elements = t.shared ? out.shared_elements : out.own_elements;
      elements = round_up(elements, plan::kParameterAlignment) + t.elements();
      if (t.partial_gradient)
        out.partial_elements = round_up(out.partial_elements, plan::kParameterAlignment) + t.elements();
    } else if (t.role != models::TensorRole::gradient && t.role != models::TensorRole::loss) {
      life_of[i] = static_cast<int>(out.lives.size());
      out.lives.push_back({static_cast<double>(round_up(t.bytes(), plan::kAlignment)), t.role});
    }
  }
  const auto toucher = [&](int Life::*first, int Life::*last) {
    return [&, first, last](int tensor, int step) {
      if (tensor < 0 || life_of[static_cast<std::size_t>(tensor)] < 0) return;
      Life& life = out.lives[static_cast<std::size_t>(life_of[static_cast<std::size_t>(tensor)])];
      note(life.*first, life.*last, step);
    };
  };
  out.forward = walk(program.forward, program, pricing, group, toucher(&Life::forward_first, &Life::forward_last));
  out.recompute = walk(pricing.stack().recompute_whole_layer ? program.forward : plan::needed_parts(program), program,
                       pricing, group, toucher(&Life::recompute_first, &Life::recompute_last));
  out.backward = walk(plan::backward_parts(program, recomputation), program, pricing, group,
                      toucher(&Life::backward_first, &Life::backward_last));
  const int core = plan::core_tensor(program);
  if (recomputation == plan::Recompute::selective && core >= 0)
    out.lives[static_cast<std::size_t>(life_of[static_cast<std::size_t>(core)])].dropped = true;
  const auto place = [&](int tensor) { return tensor < 0 ? -1 : life_of[static_cast<std::size_t>(tensor)]; };
  out.x = place(program.x);
  out.y = place(program.y);
  out.dy = place(program.dy);
  out.dx = place(program.dx);
  for (const models::Part& part : program.backward)
    for (const models::Op& op : part.ops)
      for (const int t : op.in)
        if (t >= 0 && program.tensors[static_cast<std::size_t>(t)].role == models::TensorRole::parameter)
          out.backward_reads_parameters = true;
  return out;
}

}  // namespace orrery::cost
