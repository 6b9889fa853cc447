#pragma once
/// The MLP of a block, with or without a gate. Private to models/; see expand.cpp.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class Mlp {
 public:
  explicit Mlp(LinearNotes& to) : to_(to) {
    const std::int64_t c = to_.model.hidden;
    const std::int64_t f = to_.model.ffn_of(to_.layer);
    const bool gated = traits_of(to_.model.activation).gated;
    const std::string at = to_.prefix() + "mlp.";
    width_ = f / to_.options.tensor;
    up_ = {.in = c, .out = gated ? 2 * width_ : width_, .rows = to_.all_rows};
    const Tensor fc = to_.matrix(at + (gated ? "gate.weight" : "fc.weight"), f, c, 0, to_.model.initial_stddev);
    std::tie(up_.weight, up_.weight_gradient) = to_.parameter(
        gated ? to_.fused(at + "gate_up.weight", {fc, to_.matrix(at + "up.weight", f, c, 0, to_.model.initial_stddev)})
              : fc);
    to_.adapt(up_, to_.model.lora.up);
    if (to_.model.bias && !gated)
      std::tie(up_.bias, up_.bias_gradient) = to_.parameter(to_.vector(at + "fc.bias", f, 0, 0));
    if (to_.model.activation == Activation::xielu) {
      // Both slopes begin at 0.8: softplus(p) = 0.8 and 1/2 + softplus(n) = 0.8.
      const auto shape = [&](const char* name, double slope) {
        return to_.parameter(to_.by_heads(to_.vector(at + name, 1, -1, std::log(std::expm1(slope)))));
      };
      constexpr double kSlope = 0.8, kLinear = 0.5;
      std::tie(positive_, positive_gradient_) = shape("alpha_p", kSlope);
      std::tie(negative_, negative_gradient_) = shape("alpha_n", kSlope - kLinear);
    }
    down_ = {.in = width_, .out = c, .rows = to_.all_rows, .scale = to_.model.residual_scale * to_.model.mlp_scale};
    std::tie(down_.weight, down_.weight_gradient) =
        to_.parameter(to_.matrix(at + "proj.weight", c, f, 1, to_.residual_initial_stddev()));
    to_.adapt(down_, to_.model.lora.down);
    if (to_.model.bias)
      std::tie(down_.bias, down_.bias_gradient) = to_.parameter(to_.by_rows(to_.vector(at + "proj.bias", c, -1, 0)));
    // In place if nothing reads the values before: a ReLU's output is enough for its backward.
    if (!to_.rectifies()) before_ = to_.activation("mlp.before", up_.out);
    after_ = to_.activation("mlp.after", width_);
    if (to_.rectifies()) before_ = after_;
  }

  // h (partial over the tensor group) = the MLP of x (all rows), without the bias of its last product.
  void forward(TensorId x, TensorId h) {
    to_.linear_forward(up_, x, before_, up_.bias.exists());
    scale_gate(before_);
    to_.emit(to_.activation_op(false, with_shape({before_}), after_, width_));
    to_.linear_forward(down_, after_, h, false);
  }
  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) {
    const TensorId dh = to_.gathered(dh_own, "d_mlp.h");
    const TensorId dafter = to_.activation("d_mlp.after", width_);
    to_.bias_backward(down_, dh_own);
    to_.linear_backward(down_, dh, after_, dafter);
    const TensorId dbefore = traits_of(to_.model.activation).gated ? to_.activation("d_mlp.before", up_.out) : dafter;
    Op slope = to_.activation_op(true, with_shape({dafter, before_}), dbefore, width_);
    if (positive_.exists()) {
      slope.out.push_back(operand_of(to_.sum_or_none(positive_, positive_gradient_)));
      slope.out.push_back(operand_of(to_.sum_or_none(negative_, negative_gradient_)));
      slope.accumulate = true;
    }
    to_.emit(std::move(slope));
    scale_gate(dbefore);
    to_.bias_backward(up_, dbefore);
    to_.column_backward(up_, dbefore, x, dx, name);
  }
  /// Added with the residual; none: there is no such bias.
  [[nodiscard]] TensorId bias() const { return down_.bias; }

 private:
  // In place, of gate and up the gate's columns.
  void scale_gate(TensorId both) {
    if (to_.model.gate_scale == 1) return;
    Op o = to_.op(OpKind::scale_columns, {both}, {both}, up_.out);
    o.runs = {{width_}, {to_.model.gate_scale}};
    to_.emit(std::move(o));
  }
  /// An activation's operands with its parameters, if it has any.
  [[nodiscard]] Tensors with_shape(Tensors operands) const {
    if (positive_.exists()) operands.insert(operands.end(), {positive_, negative_});
    return operands;
  }

  LinearNotes& to_;
  Linear up_, down_;
  TensorId before_, after_;                                               ///< around the activation function
  TensorId positive_, positive_gradient_, negative_, negative_gradient_;  ///< its parameters (1)
  std::int64_t width_ = 0;                                                ///< local F
};

}  // namespace orrery::models
