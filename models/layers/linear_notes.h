#pragma once
/// What layers share: normalisation and products with their gradients, as tensor parallelism cuts them. Private to
/// models/; see expand.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/layer_notes.h"
#include "models/operators/fp8.h"
#include "models/operators/operators.h"

namespace orrery::models {

class LinearNotes : public LayerNotes {
 public:
  using LayerNotes::LayerNotes;

  // Whether backward reads the activation's output, as for ReLU; for the others it reads the input.
  bool rectifies() const { return model.activation == Activation::relu; }
  /// With its gate, if any. in: x, or dy and x.
  Op activation_op(bool gradient, const Tensors& in, TensorId out, std::int64_t columns) const {
    const OpKind kind = activation_kind();
    Op o = op(gradient ? gradient_of(kind) : kind, in, {out}, columns);
    o.function = traits_of(model.activation).function;
    return o;
  }
  OpKind activation_kind() const {
    const ActivationTraits& traits = traits_of(model.activation);
    if (traits.function != Function::none) return traits.gated ? OpKind::gate : OpKind::activate;
    if (traits.gated) return OpKind::swiglu;
    if (rectifies()) return OpKind::relu;
    if (model.activation == Activation::xielu) return OpKind::xielu;
    return model.gelu == Gelu::erf ? OpKind::gelu_erf : OpKind::gelu;
  }

  void norm_forward(const Norm& norm, TensorId x, TensorId y) {
    const bool layer_norm = norm.mean.exists();
    Op o = layer_norm ? own_op(OpKind::layer_norm, {x, norm.weight, norm.bias}, {y, norm.mean, norm.rstd}, model.hidden)
                      : own_op(OpKind::rms_norm, {x, norm.weight}, {y, norm.rstd}, model.hidden);
    o.epsilon = model.norm_epsilon;
    emit(o);
  }
  void norm_backward(const Norm& norm, TensorId dy, TensorId x, TensorId addend, TensorId dx) {
    const bool layer_norm = norm.mean.exists();
    const TensorId dweight = norm.weight ? gradient_or_none(norm.weight, norm.weight_gradient) : TensorId();
    Op o = layer_norm
               ? own_op(OpKind::layer_norm_grad, {dy, x, norm.weight, norm.mean, norm.rstd, addend},
                        {dx, dweight, norm.bias ? gradient_or_none(norm.bias, norm.bias_gradient) : TensorId()},
                        model.hidden)
               : own_op(OpKind::rms_norm_grad, {dy, x, norm.weight, norm.rstd, addend}, {dx, dweight}, model.hidden);
    o.accumulate = norm.weight_gradient.exists();
    o.epsilon = model.norm_epsilon;
    emit(o);
  }
  // The gradient of a parameter, for operators that also make x's gradient. For a frozen parameter, a tensor that is
  // never read.
  TensorId gradient_or_none(TensorId parameter, TensorId gradient) {
    if (gradient.exists()) return gradient;
    const Tensor of = program.tensors[parameter];
    return activation("unused." + of.name, of.shape, DType::fp32);
  }
  // The same for an operator that adds to what is there.
  TensorId sum_or_none(TensorId parameter, TensorId gradient) {
    const TensorId target = gradient_or_none(parameter, gradient);
    if (gradient.exists()) return target;
    Op zero = op(OpKind::fill_zero, {}, {target}, program.tensors[target].elements());
    zero.dtype = DType::fp32;
    emit(std::move(zero));
    return target;
  }

  /// Which of a layer's products this is, named by its result.
  enum class Makes : std::uint8_t { output, input_gradient, weight_gradient };
  // fp8 recipes leave the head unchanged (Micikevicius et al. 2022, section 3; Transformer Engine's linear layers).
  // Rounded operands share memory with those of the layer's other products that make the same thing, because these are
  // computed one after another and a pass that is split in two keeps them apart.
  void emit_product(Op product, Makes makes) {
    if (product.out.front() < 0) return;
    const bool four = options.products == DType::fp4;
    const bool fp8 = (four || options.products == DType::fp8) && program.kind == LayerKind::block &&
                     fits_fp8(product.m, product.n, product.k);
    product.rounded = fp8 || options.products == DType::tf32;
    product.four_bits = fp8 && four;
    if (fp8) {
      constexpr const char* kNames[] = {"fp8", "d_input.fp8", "d_weight.fp8"};
      TensorId& casts = casts_[static_cast<std::size_t>(makes)];
      if (!casts.exists()) casts = activation(kNames[static_cast<std::size_t>(makes)], {0}, DType::uint8);
      std::int64_t& bytes = program.tensors[casts].shape[0];
      bytes = std::max(bytes, Fp8Casts(product.m, product.n, product.k).bytes);
      product.out.push_back(operand_of(casts));
    }
    emit(std::move(product));
  }

  // y (n,out) = x (n,in) W^T [+ bias]; `adds`: added to y
  void linear_forward(const Linear& linear, TensorId x, TensorId y, bool with_bias, bool adds = false) {
    Op o = op(OpKind::matmul, {x, linear.weight, with_bias ? linear.bias : TensorId()}, {y}, 0);
    o.m = linear.rows;
    o.n = linear.out;
    o.k = linear.in;
    o.trans_b = true;
    o.accumulate = adds;
    o.scale = linear.scale;
    emit_product(std::move(o), Makes::output);
    if (linear.adapter.any()) adapter_forward(linear, x, y);
  }
  // dW += dy^T x, and dx = dy W.
  void linear_backward(const Linear& linear, TensorId dy, TensorId x, TensorId dx) {
    weight_backward(linear, dy, x);
    input_backward(linear, dy, dx);
  }
  void weight_backward(const Linear& linear, TensorId dy, TensorId x) {
    Op weight = op(OpKind::matmul, {dy, x, {}}, {linear.weight_gradient}, 0);
    weight.m = linear.out;
    weight.n = linear.in;
    weight.k = linear.rows;
    weight.trans_a = true;
    weight.accumulate = true;
    weight.scale = linear.scale;
    emit_product(std::move(weight), Makes::weight_gradient);
    if (linear.adapter.any()) adapter_weights_backward(linear, dy, x);
  }
  void input_backward(const Linear& linear, TensorId dy, TensorId dx, bool adds = false) {
    Op input = op(OpKind::matmul, {dy, linear.weight, {}}, {dx}, 0);
    input.m = linear.rows;
    input.n = linear.in;
    input.k = linear.out;
    input.accumulate = adds;
    input.scale = linear.scale;
    emit_product(std::move(input), Makes::input_gradient);
    if (linear.adapter.any()) adapter_input_backward(linear, dy, dx);
  }
  // The same for a product split by columns, whose input gradients are summed over the group. Each rank has kept only
  // its rows of x, so they are gathered again, and the sums travel before the weight's gradient is computed.
  void column_backward(const Linear& linear, TensorId dy, TensorId x, TensorId dx, const std::string& name) {
    if (!sharded) {
      linear_backward(linear, dy, x, dx);
      all_reduce(dx);
      return;
    }
    const TensorId all = linear.trains() ? gathered(x, name + ".gathered_again") : TensorId();
    const TensorId sums = partial(dx, "d_" + name + ".partial");
    input_backward(linear, dy, sums);
    add_up(sums, dx);
    if (linear.trains()) weight_backward(linear, dy, all);
  }
  void bias_backward(const Linear& linear, TensorId dy) {
    if (!linear.bias_gradient.exists()) return;
    Op o = op(OpKind::bias_grad, {dy}, {linear.bias_gradient}, program.tensors[linear.bias_gradient].elements());
    o.n = program.tensors[dy].shape[0];
    o.accumulate = true;
    emit(o);
  }

  // -- low-rank adapters (models/lora.h) ----------------------------------------------------------------------------
  // Adapters are split as the weight is: by columns, B is divided and all ranks have A; by rows, the other way around.
  // A rank uses its undivided matrix for its own part only, so that gradient is summed over the tensor group.
  // Activations need no message beyond the product's own.
  void adapt(Linear& linear, bool wanted) {
    const Lora& lora = model.lora;
    if (!lora.any() || !wanted) return;
    const Tensor weight = program.tensors[linear.weight];
    const auto narrow_columns = [&](Tensor t) {
      t.name += ".lora_b";
      t.shape[1] = t.logical_shape[1] = lora.rank;
      t.split_axis = weight.split_axis == 0 ? 0 : -1;
      t.initial_stddev = 0;
      t.frozen = false;
      return t;
    };
    Tensor b = narrow_columns(weight);
    for (Tensor& piece : b.pieces) piece = narrow_columns(piece);
    // The standard deviation of PEFT's initial values, which are uniform within 1/sqrt(in).
    const std::int64_t in = weight.logical_shape[1];
    Tensor a = matrix(weight.name + ".lora_a", lora.rank, in, weight.split_axis == 1 ? 1 : -1,
                      1 / std::sqrt(3 * static_cast<double>(in)));
    Tensor& whole = weight.split_axis == 1 ? b : a;
    whole = by_heads(std::move(whole));
    std::tie(linear.adapter.a, linear.adapter.a_gradient) = trained(std::move(a));
    std::tie(linear.adapter.b, linear.adapter.b_gradient) = trained(std::move(b));
    linear.adapter.narrow = activation(weight.name + ".lora", {linear.rows, lora.rank}, options.dtype);
  }

  void ends(bool has_x, bool has_y) {
    const std::vector<std::int64_t> shape = {own_rows, model.carried()};
    if (has_x) program.x = role("x", TensorRole::input, shape, options.dtype);
    if (has_y) program.y = role("y", TensorRole::output, shape, options.dtype);
    if (has_y) program.dy = role("dy", TensorRole::input, shape, options.dtype);
    if (has_x) program.dx = role("dx", TensorRole::output, shape, options.dtype);
  }

 private:
  // out (m,n) (+)= op(A) op(B), in the precision of the tensors, whatever the weights' products are rounded to.
  Op adapter_product(TensorId a, TensorId b, TensorId out, std::int64_t m, std::int64_t n, std::int64_t k) {
    Op o = op(OpKind::matmul, {a, b, {}}, {out}, 0);
    o.m = m, o.n = n, o.k = k;
    o.rounded = options.products == DType::tf32;
    return o;
  }
  // narrow = scale x A^T, and y += narrow B^T.
  void adapter_forward(const Linear& linear, TensorId x, TensorId y) {
    const Adapter& adapter = linear.adapter;
    const std::int64_t rank = model.lora.rank;
    Op down = adapter_product(x, adapter.a, adapter.narrow, linear.rows, rank, linear.in);
    down.trans_b = true;
    down.scale = model.lora.scale() * linear.scale;
    emit(std::move(down));
    Op up = adapter_product(adapter.narrow, adapter.b, y, linear.rows, linear.out, rank);
    up.trans_b = true;
    up.accumulate = true;
    emit(std::move(up));
  }
  // d_narrow = scale dy B, computed once for the gradients of x and of A, whichever comes first.
  TensorId narrow_gradient(const Linear& linear, TensorId dy) {
    const Adapter& adapter = linear.adapter;
    const auto [known, fresh] = narrow_gradients_.try_emplace(adapter.narrow);
    if (!fresh) return known->second;
    const Tensor& narrow = program.tensors[adapter.narrow];
    known->second = activation("d_" + narrow.name, narrow.shape, options.dtype);
    Op o = adapter_product(dy, adapter.b, known->second, linear.rows, model.lora.rank, linear.out);
    o.scale = model.lora.scale() * linear.scale;
    emit(std::move(o));
    return known->second;
  }
  // dA += d_narrow^T x, dB += dy^T narrow.
  void adapter_weights_backward(const Linear& linear, TensorId dy, TensorId x) {
    const Adapter& adapter = linear.adapter;
    const std::int64_t rank = model.lora.rank;
    const TensorId dnarrow = narrow_gradient(linear, dy);
    Op of_a = adapter_product(dnarrow, x, adapter.a_gradient, rank, linear.in, linear.rows);
    Op of_b = adapter_product(dy, adapter.narrow, adapter.b_gradient, linear.out, rank, linear.rows);
    for (Op* o : {&of_a, &of_b}) {
      o->trans_a = true;
      o->accumulate = true;
      emit(std::move(*o));
    }
  }
  // dx += d_narrow A
  void adapter_input_backward(const Linear& linear, TensorId dy, TensorId dx) {
    Op o = adapter_product(narrow_gradient(linear, dy), linear.adapter.a, dx, linear.rows, linear.in, model.lora.rank);
    o.accumulate = true;
    emit(std::move(o));
  }

  std::map<TensorId, TensorId> narrow_gradients_;  ///< by `Adapter::narrow`
  std::array<TensorId, 3> casts_;                  ///< tensors of rounded operands, by what the product makes
};

}  // namespace orrery::models
