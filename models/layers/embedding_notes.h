#pragma once
/// The embedding of a model's tokens, and the table that heads share with it. Private to models/; see expand.cpp.
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/inputs.h"
#include "models/layers/linear_notes.h"
#include "models/layers/streams_notes.h"

namespace orrery::models {

/// The token table and its gradient. `shared`: by the embedding and the head.
inline std::pair<TensorId, TensorId> token_table(LinearNotes& to, bool shared) {
  const std::int64_t padded = padded_vocab(to.model, to.options.tensor, to.options.vocab_multiple);
  Tensor table = to.matrix(shared || to.program.kind == LayerKind::embedding ? "wte.weight" : "lm_head.weight", padded,
                           to.model.hidden, 0, to.model.initial_stddev);
  table.logical_shape[0] = to.model.vocab;
  table.shared = shared;
  return to.parameter(table);
}

/// What the layer reads from the batch; none: this model does not have it.
inline TensorId input(LinearNotes& to, TensorRole wanted) {
  for (const Input& one : inputs_of(to.model, to.options.batch, to.options.sequence))
    if (one.role == wanted) return to.role(one.name, wanted, {one.elements}, DType::int32);
  return {};
}

[[nodiscard]] inline Op table_op(const LinearNotes& to, OpKind kind, const Tensors& in, TensorId out) {
  Op o =
      to.op(kind, in, {out}, padded_vocab(to.model, to.options.tensor, to.options.vocab_multiple) / to.options.tensor);
  o.k = to.model.hidden;
  o.vocab = to.model.vocab;
  o.scale = to.model.embedding_scale;
  if (to.model.scaled_embedding) o.scale *= std::sqrt(static_cast<double>(to.model.hidden));
  o.accumulate = kind == OpKind::embedding_grad;
  return o;
}

/// The rows of the token table for `tokens`, summed over the tensor group where `name` says, as `e`.
inline void look_up(LinearNotes& to, TensorId tokens, TensorId table, TensorId e, const std::string& name) {
  const TensorId sums = to.partial(e, name);
  to.emit(table_op(to, OpKind::embedding, {tokens, table}, sums));
  to.add_up(sums, e);
}

/// What the embedding makes for all layers (Model::layer_inputs): (E(token) sqrt(P) + norm(W x / sqrt(C))) / sqrt(2),
/// with a table E and a product W of P columns for each layer; the norm takes the P of each layer by themselves. What
/// comes back of the layers' gradients changes table and product, and x.
class AllLayerInputs {
 public:
  explicit AllLayerInputs(LinearNotes& to) : to_(to), p_(to.model.layer_inputs.width), all_(p_ * to.model.layers) {
    const std::int64_t multiple = to_.options.vocab_multiple * to_.options.tensor;
    const std::int64_t rows = (to_.model.layer_inputs.vocab + multiple - 1) / multiple * multiple;
    Tensor table = to_.matrix("layer_input.table.weight", rows, all_, 0, to_.model.initial_stddev);
    table.logical_shape[0] = to_.model.layer_inputs.vocab;
    local_rows_ = table.shape[0];
    std::tie(table_, table_gradient_) = to_.parameter(std::move(table));
    product_ = {.in = to_.model.hidden, .out = all_, .rows = to_.own_rows};
    product_.scale = 1 / std::sqrt(static_cast<double>(to_.model.hidden));
    std::tie(product_.weight, product_.weight_gradient) = to_.parameter(
        to_.by_rows(to_.matrix("layer_input.product.weight", all_, to_.model.hidden, -1, to_.model.initial_stddev)));
    std::tie(norm_, norm_gradient_) =
        to_.parameter(to_.by_rows(to_.vector("layer_input.product_norm.weight", p_, -1, 1)));
    rows_ = to_.own_activation("layer_input.rows", all_);
    made_ = to_.own_activation("layer_input.made", all_);
    normed_ = to_.own_activation("layer_input.made.normed", all_);
    rstd_ = to_.rows("layer_input.rstd", to_.own_rows * to_.model.layers);
  }

  void forward(TensorId tokens, TensorId x) {
    const TensorId sums = to_.partial(rows_, "layer_input.rows.partial");
    to_.emit(look(OpKind::embedding, {tokens, table_}, sums));
    to_.add_up(sums, rows_);
    to_.linear_forward(product_, x, made_, false);
    to_.emit(each_layer(OpKind::rms_norm, {made_, norm_}, {normed_, rstd_}));
    to_.emit(to_.own_op(OpKind::add, {rows_, normed_}, {rows_}, all_));
    Op scaled = to_.own_op(OpKind::scale_columns, {rows_}, {rows_}, all_);
    scaled.runs = {{all_}, {std::sqrt(0.5)}};
    to_.emit(std::move(scaled));
  }
  /// Adds to dx.
  void backward(TensorId tokens, TensorId x, TensorId dx) {
    const TensorId d = to_.own_activation("d_layer_input.rows", all_);
    const TensorId dmade = to_.own_activation("d_layer_input.made", all_);
    to_.emit(to_.own_op(OpKind::layer_input, {}, {d}, all_));  // what the layers have made of it
    Op norm = each_layer(OpKind::rms_norm_grad, {d, made_, norm_, rstd_, {}},
                         {dmade, to_.gradient_or_none(norm_, norm_gradient_)});
    norm.accumulate = norm_gradient_.exists();
    to_.emit(std::move(norm));
    to_.weight_backward(product_, dmade, x);
    to_.input_backward(product_, dmade, dx, true);
    to_.emit(look(OpKind::embedding_grad, {tokens, to_.gathered(d, "d_layer_input.gathered")}, table_gradient_));
  }

 private:
  Op look(OpKind kind, const Tensors& in, TensorId out) const {
    Op o = to_.op(kind, in, {out}, local_rows_);
    o.k = all_;
    o.vocab = to_.model.layer_inputs.vocab;
    o.scale = std::sqrt(static_cast<double>(p_));
    o.accumulate = kind == OpKind::embedding_grad;
    return o;
  }
  Op each_layer(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.own_op(kind, in, out, p_);
    o.n *= to_.model.layers;
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }

  LinearNotes& to_;
  std::int64_t p_, all_;  ///< columns of one layer, and of all
  std::int64_t local_rows_ = 0;
  Linear product_;
  TensorId table_, table_gradient_, norm_, norm_gradient_;
  TensorId rows_, made_, normed_, rstd_;
};

inline void embedding(LinearNotes& to) {
  to.ends(false, true);
  const std::int64_t c = to.model.hidden;
  const auto [table, table_gradient] = token_table(to, to.model.shares_table());
  const TensorId tokens = to.role("tokens", TensorRole::tokens, {to.options.batch, to.options.sequence}, DType::int32);
  const bool learned = to.model.positions == Positions::learned, typed = to.model.token_types > 0;
  TensorId positions, positions_gradient, kinds, kinds_gradient;
  if (learned)
    std::tie(positions, positions_gradient) = to.parameter(
        to.matrix("wpe.weight", to.model.position_offset + to.model.max_sequence, c, -1, to.model.initial_stddev));
  if (typed)
    std::tie(kinds, kinds_gradient) =
        to.parameter(to.matrix("wtt.weight", to.model.token_types, c, -1, to.model.initial_stddev));
  const TensorId types = typed ? input(to, TensorRole::token_types) : TensorId();
  Norm after;
  const bool normed = to.model.embedding_norm || !to.model.pre_norm;
  if (normed) after = to.norm("ln_e");
  std::optional<AllLayerInputs> layer_inputs;
  if (to.model.layer_inputs.any()) layer_inputs.emplace(to);
  const bool streams = to.model.streams.any();
  const TensorId e = normed || layer_inputs || streams ? to.own_activation("embedded", c) : to.program.y;
  to.begin(to.program.forward);
  look_up(to, tokens, table, e, "embedded.partial");
  const auto add_row = [&](OpKind kind, const Tensors& in) {
    Op place = to.own_op(kind, in, {e}, c);
    place.row_shard = to.sharded;
    place.k = kind == OpKind::type_add ? to.model.token_types : to.model.position_offset;
    to.emit(place);
  };
  if (learned) add_row(OpKind::position_add, {e, positions});
  if (typed) add_row(OpKind::type_add, {e, kinds, types});
  if (normed) to.norm_forward(after, e, to.program.y);
  if (layer_inputs) {
    layer_inputs->forward(tokens, e);
    if (!normed) to.emit(to.own_op(OpKind::scale_columns, {e}, {to.program.y}, c));
  }
  if (streams) to.emit(begin_streams(to, false, e, to.program.y));
  const double rate = to.model.dropout.embedding;
  if (to.drops(rate))
    to.emit(to.drawing(to.own_op(OpKind::dropout, {to.program.y}, {to.program.y}, c), rate, kEmbeddingSite));

  to.begin(to.program.backward);
  if (to.model.lora.any()) return;  // nothing here trains
  TensorId dy = to.dropped(to.program.dy, rate, kEmbeddingSite, "d_dropped");
  if (streams) {
    const TensorId sum = to.own_activation("d_embedded.streams", c);
    to.emit(begin_streams(to, true, dy, sum));
    dy = sum;
  }
  if (layer_inputs) {
    const TensorId sum = to.own_activation("d_embedded.sum", c);
    to.emit(to.own_op(OpKind::scale_columns, {dy}, {sum}, c));
    layer_inputs->backward(tokens, e, sum);
    dy = sum;
  }
  TensorId de = dy;
  if (normed) {
    de = to.own_activation("d_embedded", c);
    to.norm_backward(after, dy, e, {}, de);
  }
  de = to.gathered(de, "d_embedded.gathered");
  if (learned) {
    Op grad = to.op(OpKind::position_grad, {de}, {positions_gradient}, c);
    grad.k = to.model.position_offset;
    grad.accumulate = true;
    to.emit(grad);
  }
  if (typed) {
    Op grad = to.op(OpKind::type_grad, {de, types}, {kinds_gradient}, c);
    grad.k = to.model.token_types;
    grad.accumulate = true;
    to.emit(grad);
  }
  to.emit(table_op(to, OpKind::embedding_grad, {tokens, de}, table_gradient));
}

}  // namespace orrery::models
