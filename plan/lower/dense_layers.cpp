// Dense layers of recommendation models.
#include "plan/lower/dense_layers.h"

#include <utility>

#include "plan/lower/recommender_ranges.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

void DenseLayers::know(BucketId bucket) {
  for (const ParameterRange& range : build_.bucket(bucket).ranges)
    places_[range.name] = {bucket, range.offset, range.elements};
}

int DenseLayers::place(const std::string& name, bool gradients) {
  const auto& [bucket, offset, elements] = places_.at(name);
  const Bucket& b = build_.bucket(bucket);
  return build_.view({gradients ? b.gradients : b.parameters, offset, elements});
}

int DenseLayers::weight(const std::string& name, std::vector<Op>& ops) {
  if (step_.type() == DType::fp32) return parameter(name);
  const auto [found, anew] = copies_.try_emplace(name);
  if (!anew) return view(found->second);
  const std::int64_t elements = places_.at(name).elements;
  found->second = value(name + ".copy", elements);
  ops.push_back(build_.flat(OpKind::convert, step_.type(), elements, {parameter(name)}, {view(found->second)}));
  return view(found->second);
}

void DenseLayers::weight_gradient(const std::string& name, Op op, std::vector<Op>& ops) {
  const BufferId narrow = step_.type() == DType::fp32 ? BufferId() : value(name + ".dw", places_.at(name).elements);
  op.out = {narrow ? view(narrow) : place(name, true)};
  ops.push_back(std::move(op));
  if (narrow)
    ops.push_back(
        build_.flat(OpKind::convert, step_.type(), places_.at(name).elements, {view(narrow)}, {place(name, true)}));
}

BufferId DenseLayers::value(const std::string& name, std::int64_t elements) {
  return build_.buffer(name, Purpose::activations, step_.type(), elements);
}

Op DenseLayers::value_op(OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k, std::vector<int> in,
                         std::vector<int> out) const {
  Op op = op_of(kind, n, m, k, std::move(in), std::move(out));
  op.dtype = step_.type();
  return op;
}

Op DenseLayers::product(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<int> in, int out, bool trans_a,
                        bool trans_b) const {
  Op op = value_op(OpKind::matmul, n, m, k, std::move(in), {out});
  op.rounded = step_.spec.numerics.precision == DType::tf32;
  op.batch = step_.spec.shape.batch;
  op.trans_a = trans_a;
  op.trans_b = trans_b;
  return op;
}

Op DenseLayers::bias_gradient(std::int64_t width, BufferId dy, const std::string& name) {
  Op op = value_op(OpKind::bias_grad, step_.layout.samples, width, 0, {view(dy)}, {place(name, true)});
  op.batch = step_.spec.shape.batch;
  return op;
}

std::vector<BufferId> DenseLayers::forward(const Mlp& mlp, BufferId x, Ops& ops) {
  const std::vector<std::int64_t>& widths = mlp.widths;
  const std::int64_t n = step_.layout.samples;
  std::vector<BufferId> outputs;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string name = mlp.prefix + std::to_string(2 * i);
    const bool last = i + 2 == widths.size();
    const BufferId y = value(name, n * widths[i + 1]);
    const int w = weight(name + ".weight", ops);
    ops.push_back(product(n, widths[i + 1], widths[i], {view(x), w, parameter(name + ".bias")}, view(y), false, true));
    if (!last || !mlp.last_is_linear) ops.push_back(value_op(OpKind::relu, n, widths[i + 1], 0, {view(y)}, {view(y)}));
    outputs.push_back(y);
    x = y;
  }
  return outputs;
}

BufferId DenseLayers::backward(const Mlp& mlp, BufferId x, const std::vector<BufferId>& outputs, BufferId dy,
                               bool wants_dx, Ops& ops) {
  const std::vector<std::int64_t>& widths = mlp.widths;
  const std::int64_t n = step_.layout.samples;
  for (std::size_t i = widths.size() - 1; i-- > 0;) {
    const std::string name = mlp.prefix + std::to_string(2 * i);
    const bool last = i + 2 == widths.size();
    if (!last || !mlp.last_is_linear)
      ops.push_back(value_op(OpKind::relu_grad, n, widths[i + 1], 0, {view(dy), view(outputs[i])}, {view(dy)}));
    const BufferId input = i > 0 ? outputs[i - 1] : x;
    ops.push_back(bias_gradient(widths[i + 1], dy, name + ".bias"));
    weight_gradient(name + ".weight", product(widths[i + 1], widths[i], n, {view(dy), view(input)}, -1, true, false),
                    ops);
    if (i == 0 && !wants_dx) return {};
    const BufferId dx = value(name + ".dx", n * widths[i]);
    const int w = weight(name + ".weight", ops);
    ops.push_back(product(n, widths[i], widths[i + 1], {view(dy), w}, view(dx), false, false));
    dy = dx;
  }
  return dy;
}

}  // namespace orrery::plan
