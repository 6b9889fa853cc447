#pragma once
/// A gated short convolution in place of attention (Liquid AI 2025, "LFM2 Technical Report", section 2). Private to
/// models/; see expand.cpp.
///
/// One product makes two gates and values of each column, b, c and x; a causal convolution over a few tokens runs over
/// b x, its result is multiplied by c, and a product leads back to the residual. Tensor parallelism divides the
/// columns: the first product is split by columns and the last by rows, as in attention.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class ShortConvolution {
 public:
  explicit ShortConvolution(LinearNotes& to) : to_(to), columns_(to.model.hidden / to.options.tensor) {
    const std::int64_t c = to_.model.hidden;
    const std::string at = to_.prefix() + "conv.";
    std::vector<Tensor> pieces;
    for (const char* name : {"b", "c", "x"})
      pieces.push_back(to_.matrix(at + name + ".weight", c, c, 0, to_.model.initial_stddev));
    LayerNotes::in_one_file_tensor({&pieces[0], &pieces[1], &pieces[2]}, 1);
    in_ = {.in = c, .out = 3 * columns_, .rows = to_.all_rows};
    std::tie(in_.weight, in_.weight_gradient) = to_.parameter(LayerNotes::fused(at + "in.weight", std::move(pieces)));
    std::tie(taps_, taps_gradient_) = to_.parameter(to_.taps(at + "taps.weight", c, to_.model.conv_taps));
    out_ = {.in = columns_, .out = c, .rows = to_.all_rows, .scale = to_.model.residual_scale};
    std::tie(out_.weight, out_.weight_gradient) =
        to_.parameter(to_.matrix(at + "proj.weight", c, c, 1, to_.residual_initial_stddev()));
    projected_ = to_.activation("conv.projected", in_.out);
    gated_ = to_.activation("conv.gated", columns_);
  }

  // h (partial over the tensor group) = the mixer of x (all rows).
  void forward(TensorId x, TensorId h) {
    to_.linear_forward(in_, x, projected_, false);
    to_.emit(conv_op(OpKind::gated_conv, {projected_, taps_}, {gated_}));
    to_.linear_forward(out_, gated_, h, false);
  }
  // From dh to dx, the gradient of x, which gets the name `name`.
  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) {
    const TensorId dh = to_.gathered(dh_own, "d_conv.h");
    const TensorId dgated = to_.activation("d_conv.gated", columns_);
    const TensorId dprojected = to_.activation("d_conv.projected", in_.out);
    to_.linear_backward(out_, dh, gated_, dgated);
    to_.emit(conv_op(OpKind::gated_conv_grad, {dgated, projected_, taps_},
                     {dprojected, to_.sum_or_none(taps_, taps_gradient_)}));
    to_.column_backward(in_, dprojected, x, dx, name);
  }

 private:
  Op conv_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, columns_);
    o.ssm.taps = to_.model.conv_taps;
    return o;
  }

  LinearNotes& to_;
  std::int64_t columns_;  ///< of this rank
  Linear in_, out_;
  TensorId taps_, taps_gradient_, projected_, gated_;
};

}  // namespace orrery::models
