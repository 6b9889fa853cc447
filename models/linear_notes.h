#pragma once
/// What layers share: normalisation and products with their gradients, as tensor parallelism cuts them. Private to
/// models/: see expand.cpp.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "models/fp8.h"
#include "models/layer_notes.h"

namespace orrery::models {

class LinearNotes : protected LayerNotes {
 protected:
  using LayerNotes::LayerNotes;

  // Of a layer that is not gated. ReLU's backward reads what it has made, the others' what they were given.
  bool rectifies() const { return model_.activation == Activation::relu; }
  /// With whatever gates it: in: x, or dy and x.
  Op activation_op(bool gradient, std::vector<int> in, int out, std::int64_t columns) const {
    const ActivationTraits& traits = traits_of(model_.activation);
    OpKind kind = activation_kind(gradient);
    if (traits.function == Function::none && traits.gated) kind = gradient ? OpKind::swiglu_grad : OpKind::swiglu;
    if (traits.function != Function::none)
      kind = traits.gated ? (gradient ? OpKind::gate_grad : OpKind::gate)
                          : (gradient ? OpKind::activate_grad : OpKind::activate);
    Op o = op(kind, std::move(in), {out}, columns);
    o.function = traits.function;
    return o;
  }
  OpKind activation_kind(bool gradient) const {
    if (rectifies()) return gradient ? OpKind::relu_grad : OpKind::relu;
    if (model_.gelu == Gelu::erf) return gradient ? OpKind::gelu_erf_grad : OpKind::gelu_erf;
    return gradient ? OpKind::gelu_grad : OpKind::gelu;
  }

  void norm_forward(const Norm& norm, int x, int y) {
    const bool layer_norm = norm.bias >= 0;
    Op o = layer_norm
               ? own_op(OpKind::layer_norm, {x, norm.weight, norm.bias}, {y, norm.mean, norm.rstd}, model_.hidden)
               : own_op(OpKind::rms_norm, {x, norm.weight}, {y, norm.rstd}, model_.hidden);
    o.epsilon = model_.norm_epsilon;
    emit(o);
  }
  void norm_backward(const Norm& norm, int dy, int x, int addend, int dx) {
    const bool layer_norm = norm.bias >= 0;
    Op o = layer_norm ? own_op(OpKind::layer_norm_grad, {dy, x, norm.weight, norm.mean, norm.rstd, addend},
                               {dx, norm.weight_gradient, norm.bias_gradient}, model_.hidden)
                      : own_op(OpKind::rms_norm_grad, {dy, x, norm.weight, norm.rstd, addend},
                               {dx, norm.weight_gradient}, model_.hidden);
    o.accumulate = true;
    o.epsilon = model_.norm_epsilon;
    emit(o);
  }

  /// Which product of a layer it is, by what it makes.
  enum class Makes : std::uint8_t { output, input_gradient, weight_gradient };
  // fp8 recipes leave the head as it is (Micikevicius et al. 2022, section 3; Transformer Engine's linear layers).
  // Rounded operands share memory with those of the layer's other products that make the same: one is computed after
  // the other, and a pass that is split in two has these apart.
  void emit_product(Op product, Makes makes) {
    const bool fp8 = options_.products == DType::fp8 && program_.kind == LayerKind::block &&
                     fits_fp8(product.m, product.n, product.k);
    product.rounded = fp8 || options_.products == DType::tf32;
    if (fp8) {
      constexpr const char* kNames[] = {"fp8", "d_input.fp8", "d_weight.fp8"};
      int& casts = casts_[static_cast<std::size_t>(makes)];
      if (casts < 0) casts = activation(kNames[static_cast<std::size_t>(makes)], {0}, DType::uint8);
      std::int64_t& bytes = program_.tensors[static_cast<std::size_t>(casts)].shape[0];
      bytes = std::max(bytes, Fp8Casts(product.m, product.n, product.k).bytes);
      product.out.push_back(casts);
    }
    emit(std::move(product));
  }

  // y (n,out) = x (n,in) W^T [+ bias]
  void linear_forward(const Linear& linear, int x, int y, bool with_bias) {
    Op o = op(OpKind::matmul, {x, linear.weight, with_bias ? linear.bias : -1}, {y}, 0);
    o.m = linear.rows;
    o.n = linear.out;
    o.k = linear.in;
    o.trans_b = true;
    emit_product(std::move(o), Makes::output);
  }
  // dW += dy^T x, and dx = dy W.
  void linear_backward(const Linear& linear, int dy, int x, int dx) {
    weight_backward(linear, dy, x);
    input_backward(linear, dy, dx);
  }
  void weight_backward(const Linear& linear, int dy, int x) {
    Op weight = op(OpKind::matmul, {dy, x, -1}, {linear.weight_gradient}, 0);
    weight.m = linear.out;
    weight.n = linear.in;
    weight.k = linear.rows;
    weight.trans_a = true;
    weight.accumulate = true;
    emit_product(std::move(weight), Makes::weight_gradient);
  }
  void input_backward(const Linear& linear, int dy, int dx, bool adds = false) {
    Op input = op(OpKind::matmul, {dy, linear.weight, -1}, {dx}, 0);
    input.m = linear.rows;
    input.n = linear.in;
    input.k = linear.out;
    input.accumulate = adds;
    emit_product(std::move(input), Makes::input_gradient);
  }
  // The same of a product split by columns, whose input gradients are added up over the group. Each rank kept its rows
  // of x: they are gathered again, and the sums travel before the weight's gradient is computed.
  void column_backward(const Linear& linear, int dy, int x, int dx, const std::string& name) {
    if (!sharded_) {
      linear_backward(linear, dy, x, dx);
      all_reduce(dx);
      return;
    }
    const int all = gathered(x, name + ".gathered_again");
    const int sums = partial(dx, "d_" + name + ".partial");
    input_backward(linear, dy, sums);
    add_up(sums, dx);
    weight_backward(linear, dy, all);
  }
  void bias_backward(const Linear& linear, int dy) {
    if (linear.bias_gradient < 0) return;
    Op o = op(OpKind::bias_grad, {dy}, {linear.bias_gradient},
              program_.tensors[static_cast<std::size_t>(linear.bias_gradient)].elements());
    o.n = program_.tensors[static_cast<std::size_t>(dy)].shape[0];
    o.accumulate = true;
    emit(o);
  }

  void ends(bool has_x, bool has_y) {
    const std::vector<std::int64_t> shape = {own_rows_, model_.hidden};
    if (has_x) program_.x = role("x", TensorRole::input, shape, options_.dtype);
    if (has_y) program_.y = role("y", TensorRole::output, shape, options_.dtype);
    if (has_y) program_.dy = role("dy", TensorRole::input, shape, options_.dtype);
    if (has_x) program_.dx = role("dx", TensorRole::output, shape, options_.dtype);
  }

 private:
  std::array<int, 3> casts_ = {-1, -1, -1};  ///< tensors of rounded operands, by what they make
};

}  // namespace orrery::models
