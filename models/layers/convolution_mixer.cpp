// A gated short convolution in place of attention (Liquid AI 2025, "LFM2 Technical Report", section 2).
//
// One product makes two gates and values of each column, b, c and x; a causal convolution over a few tokens runs over
// b x, its result is multiplied by c, and a product leads back to the residual. Tensor parallelism divides the
// columns: the first product is split by columns and the last by rows, as in attention.
#include <fmt/core.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

namespace {

class ShortConvolution final : public MixerNotes {
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

  void forward(TensorId x, TensorId h, bool adds) override {
    to_.linear_forward(in_, x, projected_, false);
    to_.emit(conv_op(OpKind::gated_conv, {projected_, taps_}, {gated_}));
    to_.linear_forward(out_, gated_, h, false, adds);
  }
  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) override {
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

std::string undivided_columns(const Model& m, std::int64_t ways) {
  return m.hidden % ways == 0 ? std::string() : fmt::format("the short convolutions' {} columns", m.hidden);
}

}  // namespace

MixerTraits convolution_mixer() {
  return {
      .mixer = Mixer::conv,
      .word = "conv",
      .title = "short convolution",
      .titles = "short convolutions",
      .key = "conv_taps",
      .example = "conv_taps: 3, and pattern: [conv+mlp, attention+mlp]",
      .sized = [](const Model& m) { return m.conv_taps > 0; },
      .in_order = true,
      .core = OpKind::gated_conv,
      .undivided = undivided_columns,
      .divisors = "a tensor degree that divides the hidden width",
      .sizes = [](const Model& m) { return fmt::format("{} taps", m.conv_taps); },
      .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> { return std::make_unique<ShortConvolution>(to); }};
}

}  // namespace orrery::models
