#pragma once
/// What a layer's own input adds behind its block (Google 2026, Gemma 4's per-layer embeddings; Model::layer_inputs).
/// Private to models/; see block_notes.h.
///
/// y = x + norm(U (gelu(G x) * input)), with G of (P, C), U of (C, P) and P columns of input. Every tensor rank has all
/// of G and U, for its own rows.
#include <string>
#include <tuple>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class LayerInputGate {
 public:
  explicit LayerInputGate(LinearNotes& to) : to_(to) {
    const std::int64_t c = to_.model.hidden, p = to_.model.layer_inputs.width;
    const std::string at = to_.prefix() + "layer_input.";
    make(gate_, at + "gate.weight", c, p, to_.model.initial_stddev);
    make(widen_, at + "proj.weight", p, c, to_.residual_initial_stddev());
    norm_ = to_.norm(at + "norm");
    made_ = to_.own_activation("layer_input.gate", p);
    input_ = to_.own_activation("layer_input", p);
    both_ = to_.own_activation("layer_input.both", 2 * p);
    gated_ = to_.own_activation("layer_input.gated", p);
    widened_ = to_.own_activation("layer_input.widened", c);
    normed_ = to_.own_activation("layer_input.normed", c);
  }

  void forward(TensorId x, TensorId y) {
    const std::int64_t c = to_.model.hidden, p = to_.model.layer_inputs.width;
    to_.linear_forward(gate_, x, made_, false);
    to_.emit(to_.own_op(OpKind::layer_input, {}, {input_}, p));
    to_.emit(columns(OpKind::join_columns, {made_, input_}, {both_}));
    to_.emit(own(to_.activation_op(false, {both_}, gated_, p)));
    to_.linear_forward(widen_, gated_, widened_, false);
    to_.norm_forward(norm_, widened_, normed_);
    to_.emit(to_.own_op(OpKind::add, {x, normed_}, {y}, c));
  }
  /// From dy to dx.
  void backward(TensorId dy, TensorId x, TensorId dx) {
    const std::int64_t c = to_.model.hidden, p = to_.model.layer_inputs.width;
    const TensorId dwidened = to_.own_activation("d_layer_input.widened", c);
    const TensorId dgated = to_.own_activation("d_layer_input.gated", p);
    const TensorId dboth = to_.own_activation("d_layer_input.both", 2 * p);
    const TensorId dmade = to_.own_activation("d_layer_input.gate", p);
    const TensorId dinput = to_.own_activation("d_layer_input", p), own_dx = to_.own_activation("d_layer_input.x", c);
    to_.norm_backward(norm_, dy, widened_, {}, dwidened);
    to_.linear_backward(widen_, dwidened, gated_, dgated);
    to_.emit(own(to_.activation_op(true, {dgated, both_}, dboth, p)));
    to_.emit(columns(OpKind::split_columns, {dboth}, {dmade, dinput}));
    to_.linear_backward(gate_, dmade, x, own_dx);
    to_.emit(to_.own_op(OpKind::add, {dy, own_dx}, {dx}, c));
  }

 private:
  void make(Linear& linear, const std::string& name, std::int64_t in, std::int64_t out, double stddev) {
    linear = {.in = in, .out = out, .rows = to_.own_rows};
    std::tie(linear.weight, linear.weight_gradient) = to_.parameter(to_.by_rows(to_.matrix(name, out, in, -1, stddev)));
  }
  Op columns(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.own_op(kind, in, out, to_.model.layer_inputs.width);
    o.k = to_.model.layer_inputs.width;
    return o;
  }
  Op own(Op o) const {
    o.n = to_.own_rows;
    return o;
  }

  LinearNotes& to_;
  Linear gate_, widen_;
  Norm norm_;
  TensorId made_, input_, both_, gated_, widened_, normed_;
};

}  // namespace orrery::models
