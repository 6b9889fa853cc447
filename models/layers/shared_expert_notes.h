#pragma once
/// The experts of a mixture that every token takes, with a gate if the model has one. Private to models/; see
/// mixture_notes.h.
#include <string>
#include <tuple>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class SharedExperts {
 public:
  /// `at`: before the names of their parameters. `own_routes`: see MixtureSizes.
  SharedExperts(LinearNotes& to, bool own_routes, const std::string& at) : to_(to) {
    const Experts& e = to_.model.experts;
    const std::int64_t c = to_.model.hidden;
    const bool gated = traits_of(to_.model.activation).gated;
    width_ = e.shared / to_.options.tensor;
    up_ = {.in = c, .out = (gated ? 2 : 1) * width_, .rows = to_.all_rows};
    const Tensor fc =
        to_.matrix(at + (gated ? "shared.gate.weight" : "shared.fc.weight"), e.shared, c, 0, to_.model.initial_stddev);
    std::tie(up_.weight, up_.weight_gradient) = to_.parameter(
        gated ? to_.fused(at + "shared.gate_up.weight",
                          {fc, to_.matrix(at + "shared.up.weight", e.shared, c, 0, to_.model.initial_stddev)})
              : fc);
    down_ = {.in = width_, .out = c, .rows = to_.all_rows, .scale = to_.model.residual_scale};
    std::tie(down_.weight, down_.weight_gradient) =
        to_.parameter(to_.matrix(at + "shared.proj.weight", c, e.shared, 1, to_.residual_initial_stddev()));
    after_ = to_.activation("shared.after", width_);
    before_ = to_.rectifies() ? after_ : to_.activation("shared.before", up_.out);
    const bool apart = own_routes && to_.sharded;  // summed over the tensor group beside the routed experts
    if (e.shared_gate || !apart) out_ = to_.activation("shared.out", c);
    if (!e.shared_gate) return;
    std::tie(gate_, gate_gradient_) =
        to_.parameter(to_.matrix(at + "shared_gate.weight", 1, c, -1, to_.model.initial_stddev));
    scale_ = to_.rows("shared.scale", to_.all_rows);
    gated_ = apart ? TensorId() : to_.activation("shared.gated", c);
  }

  // `adds`: adds to h instead of writing it.
  void forward(TensorId x, TensorId h, bool adds) {
    const std::int64_t c = to_.model.hidden;
    to_.linear_forward(up_, x, before_, false);
    to_.emit(to_.activation_op(false, {before_}, after_, width_));
    const bool alone = !adds && !gate_.exists();
    to_.linear_forward(down_, after_, alone ? h : out_, false);
    TensorId out = out_;
    if (gate_.exists()) {
      Op scale = to_.op(OpKind::matmul, {x, gate_, {}}, {scale_}, 0);
      scale.m = to_.all_rows, scale.n = 1, scale.k = c, scale.trans_b = true;
      to_.emit(scale);
      out = adds ? gated_ : h;
      to_.emit(to_.op(OpKind::row_gate, {out_, scale_}, {out}, c));
    }
    if (adds) to_.emit(to_.op(OpKind::add, {h, out}, {h}, c));
  }

  // Adds to sums, which stay partial over the tensor group.
  void backward(TensorId dh, TensorId x, TensorId sums, bool adds) {
    const std::int64_t c = to_.model.hidden;
    TensorId dout = dh, dscale;
    if (gate_.exists()) {
      dout = to_.activation("d_shared.out", c);
      dscale = to_.rows("d_shared.scale", to_.all_rows);
      to_.emit(to_.op(OpKind::row_gate_grad, {dh, out_, scale_}, {dout, dscale}, c));
    }
    const TensorId dafter = to_.activation("d_shared.after", width_);
    to_.linear_backward(down_, dout, after_, dafter);
    const TensorId dbefore =
        traits_of(to_.model.activation).gated ? to_.activation("d_shared.before", up_.out) : dafter;
    to_.emit(to_.activation_op(true, {dafter, before_}, dbefore, width_));
    const TensorId dx = adds ? to_.activation("d_shared.x", c) : sums;
    to_.linear_backward(up_, dbefore, x, dx);
    if (adds) to_.emit(to_.op(OpKind::add, {sums, dx}, {sums}, c));
    if (!dscale.exists()) return;
    // What this rank's columns contribute to the scale's gradient; its product with the weight is partial likewise.
    Op input = to_.op(OpKind::matmul, {dscale, gate_, {}}, {sums}, 0);
    input.m = to_.all_rows, input.n = c, input.k = 1;
    input.accumulate = true;
    to_.emit(input);
    to_.all_reduce(dscale);
    Op weight = to_.op(OpKind::matmul, {dscale, x, {}}, {gate_gradient_}, 0);
    weight.m = 1, weight.n = c, weight.k = to_.all_rows;
    weight.trans_a = true;
    weight.accumulate = true;
    to_.emit(weight);
  }

 private:
  LinearNotes& to_;
  Linear up_, down_;
  TensorId gate_, gate_gradient_;  ///< (1,C)
  TensorId before_, after_, out_, scale_, gated_;
  std::int64_t width_ = 0;
};

}  // namespace orrery::models
