#pragma once
/// The embedding of a model's tokens, and the table that heads share with it. Private to models/; see expand.cpp.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/inputs.h"
#include "models/layers/linear_notes.h"

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
  const TensorId e = normed ? to.own_activation("embedded", c) : to.program.y;
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
  const double rate = to.model.dropout.embedding;
  if (to.drops(rate))
    to.emit(to.drawing(to.own_op(OpKind::dropout, {to.program.y}, {to.program.y}, c), rate, kEmbeddingSite));

  to.begin(to.program.backward);
  if (to.model.lora.any()) return;  // nothing here trains
  const TensorId dy = to.dropped(to.program.dy, rate, kEmbeddingSite, "d_dropped");
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
