// The interaction of vectors, forward and backward.
#include "plan/lower/interaction_layers.h"

#include <utility>

namespace orrery::plan {

using models::OpKind;
using Ops = DenseLayers::Ops;

BufferId InteractionLayers::forward(std::vector<int> in, Ops& ops) {
  const std::int64_t n = step_.layout.samples;
  features_ = dense_.value("vectors", n * step_.model.vectors() * step_.model.embedding_dim);
  ops.push_back(dense_.value_op(OpKind::pooled_join, n, step_.model.vectors() * step_.model.embedding_dim, 0,
                                std::move(in), {view(features_)}));
  if (crosses()) return cross_forward(ops);
  const BufferId out = dense_.value("interaction", n * step_.model.top_input());
  ops.push_back(dense_.value_op(OpKind::interaction_dot, n, step_.model.embedding_dim, step_.model.vectors(),
                                {view(features_)}, {view(out)}));
  return out;
}

// x_{l+1} = x_0 (W V x_l + b) + x_l
BufferId InteractionLayers::cross_forward(Ops& ops) {
  const std::int64_t n = step_.layout.samples, wide = step_.model.top_input(), rank = step_.model.cross_rank;
  BufferId x = features_;
  for (std::int64_t i = 0; i < step_.model.cross_layers; ++i) {
    const std::string name = "cross_l." + std::to_string(i);
    const BufferId v = dense_.value(name + ".v", n * rank), u = dense_.value(name + ".u", n * wide),
                   y = dense_.value(name, n * wide);
    const int wv = dense_.weight(name + ".v.weight", ops), ww = dense_.weight(name + ".w.weight", ops);
    ops.push_back(dense_.product(n, rank, wide, {view(x), wv}, view(v), false, true));
    ops.push_back(
        dense_.product(n, wide, rank, {view(v), ww, dense_.parameter(name + ".w.bias")}, view(u), false, true));
    ops.push_back(dense_.value_op(OpKind::cross, n, wide, 0, {view(features_), view(u), view(x)}, {view(y)}));
    crosses_.push_back({x, v, u});
    x = y;
  }
  return x;
}

BufferId InteractionLayers::backward(BufferId dtop, Ops& ops) {
  if (crosses()) return cross_backward(dtop, ops);
  const std::int64_t n = step_.layout.samples;
  const BufferId dfeatures = dense_.value("dvectors", n * step_.model.vectors() * step_.model.embedding_dim);
  ops.push_back(dense_.value_op(OpKind::interaction_dot_grad, n, step_.model.embedding_dim, step_.model.vectors(),
                                {view(dtop), view(features_)}, {view(dfeatures)}));
  return dfeatures;
}

// dx_l = dy + V^T W^T (dy x_0), and each layer gives dy u to x_0.
BufferId InteractionLayers::cross_backward(BufferId dtop, Ops& ops) {
  const std::int64_t n = step_.layout.samples, wide = step_.model.top_input(), rank = step_.model.cross_rank;
  const BufferId dx0 = dense_.value("dvectors", n * wide);
  ops.push_back(build_.zero_of(dx0));
  for (std::int64_t i = step_.model.cross_layers; i-- > 0;) {
    const std::string name = "cross_l." + std::to_string(i);
    const auto& [x, v, u] = crosses_[static_cast<std::size_t>(i)];
    const BufferId du = dense_.value(name + ".du", n * wide), dv = dense_.value(name + ".dv", n * rank);
    ops.push_back(
        dense_.value_op(OpKind::cross_grad, n, wide, 0, {view(dtop), view(features_), view(u)}, {view(du), view(dx0)}));
    ops.push_back(dense_.bias_gradient(wide, du, name + ".w.bias"));
    const int wv = dense_.weight(name + ".v.weight", ops), ww = dense_.weight(name + ".w.weight", ops);
    dense_.weight_gradient(name + ".w.weight", dense_.product(wide, rank, n, {view(du), view(v)}, -1, true, false),
                           ops);
    ops.push_back(dense_.product(n, rank, wide, {view(du), ww}, view(dv), false, false));
    dense_.weight_gradient(name + ".v.weight", dense_.product(rank, wide, n, {view(dv), view(x)}, -1, true, false),
                           ops);
    ops.push_back(dense_.product(n, wide, rank, {view(dv), wv}, view(dtop), false, false));
    ops.back().accumulate = true;
  }
  ops.push_back(build_.flat(OpKind::accumulate_into, step_.type(), n * wide, {view(dtop)}, {view(dx0)}));
  return dx0;
}

}  // namespace orrery::plan
