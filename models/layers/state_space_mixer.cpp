// Mixers that keep a state, in place of attention: Mamba-2's (Dao and Gu 2024, "Transformers are SSMs", section 7.1)
// and gated delta networks (Yang, Kautz and Hatamizadeh 2024, section 3.4, as Qwen3-Next has them).
//
// One product makes the gate z, the values x, keys B and queries C of each group of heads, and the raw step widths dt;
// or z, v, k, q, and two raw numbers for each head, a and b. A short causal convolution runs over x, B and C (v, k and
// q); the recurrence lets each head's state take in a token and be read; a norm gated by z and a product lead back to
// the residual.
//
// Tensor parallelism divides the heads with their groups, and the runs of columns that the norm takes by themselves
// (section 8.1): the first product is split by columns and the last by rows, as in attention, so that one all-reduce
// follows in forward and one in backward.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

namespace {

class StateMixer final : public MixerNotes {
 public:
  StateMixer(LinearNotes& to, bool delta) : to_(to), delta_(delta) {
    const StateSpace& s = to_.model.ssm;
    const std::string at = to_.prefix() + (delta_ ? "delta." : "ssm.");
    const Op sizes = state_op(OpKind::state_scan, {}, {});
    make_product(at, sizes);
    make_convolution(at);
    const auto of_heads = [&](const char* name, Initial initial, double value) {
      Tensor t = to_.vector(at + name, s.heads, 0, value);
      t.initial = initial;
      return to_.parameter(std::move(t));
    };
    std::tie(dt_bias_, dt_bias_gradient_) = of_heads("dt_bias", Initial::step_width, 0);
    std::tie(a_log_, a_log_gradient_) = of_heads("a_log", Initial::decay_log, 0);
    if (!delta_) std::tie(d_, d_gradient_) = of_heads("d", Initial::normal, 1);
    // All heads of a gated delta network share one norm's weight.
    if (s.normed)
      std::tie(norm_, norm_gradient_) =
          to_.parameter(delta_ ? to_.by_heads(to_.vector(at + "norm.weight", s.width, -1, 1))
                               : to_.vector(at + "norm.weight", s.inner(), 0, 1));
    out_ = {.in = inner_columns(sizes),
            .out = to_.model.hidden,
            .rows = to_.all_rows,
            .scale = to_.model.residual_scale * s.out_scale};
    std::tie(out_.weight, out_.weight_gradient) =
        to_.parameter(to_.matrix(at + "proj.weight", to_.model.hidden, s.inner(), 1, to_.residual_initial_stddev()));
    projected_ = to_.activation("ssm.projected", in_.out);
    convolved_ = to_.activation("ssm.convolved", convolved_columns(sizes));
    scanned_ = to_.activation("ssm.scanned", out_.in);
    normed_ = to_.activation("ssm.normed", out_.in);
    if (s.normed) rstd_ = to_.activation("ssm.rstd", {to_.all_rows, sizes.ssm.norm_groups}, DType::fp32);
  }

  void forward(TensorId x, TensorId h, bool adds) override {
    to_.linear_forward(in_, x, projected_, false);
    scale(projected_);
    to_.emit(state_op(OpKind::causal_conv, {projected_, conv_, conv_bias_}, {convolved_}));
    to_.emit(delta_ ? state_op(OpKind::delta_rule, {convolved_, projected_, dt_bias_, a_log_}, {scanned_})
                    : state_op(OpKind::state_scan, {convolved_, projected_, dt_bias_, a_log_, d_}, {scanned_}));
    to_.emit(state_op(OpKind::gated_norm, {scanned_, projected_, norm_}, {normed_, rstd_}));
    to_.linear_forward(out_, normed_, h, false, adds);
  }
  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) override {
    const TensorId dh = to_.gathered(dh_own, "d_ssm.h");
    const TensorId dnormed = to_.activation("d_ssm.normed", out_.in),
                   dscanned = to_.activation("d_ssm.scanned", out_.in);
    const TensorId dprojected = to_.activation("d_ssm.projected", in_.out);
    const TensorId dconvolved = to_.activation("d_ssm.convolved", to_.columns_of(convolved_));
    to_.linear_backward(out_, dh, normed_, dnormed);
    to_.emit(state_op(OpKind::gated_norm_grad, {dnormed, scanned_, projected_, norm_, rstd_},
                      {dscanned, dprojected, norm_ ? to_.sum_or_none(norm_, norm_gradient_) : TensorId()}));
    const Op sizes = state_op(OpKind::state_scan, {}, {});
    const TensorId states = to_.activation(
        "d_ssm.states", {to_.options.batch, chunks_of(sizes), sizes.heads, sizes.head_dim, sizes.ssm.state},
        DType::fp32);
    const TensorId dbias = to_.sum_or_none(dt_bias_, dt_bias_gradient_),
                   da_log = to_.sum_or_none(a_log_, a_log_gradient_);
    to_.emit(delta_ ? state_op(OpKind::delta_rule_grad, {dscanned, convolved_, projected_, dt_bias_, a_log_},
                               {dconvolved, dprojected, dbias, da_log, states})
                    : state_op(OpKind::state_scan_grad, {dscanned, convolved_, projected_, dt_bias_, a_log_, d_},
                               {dconvolved, dprojected, dbias, da_log, to_.sum_or_none(d_, d_gradient_), states}));
    to_.emit(state_op(OpKind::causal_conv_grad, {dconvolved, projected_, conv_, conv_bias_},
                      {dprojected, to_.sum_or_none(conv_, conv_gradient_),
                       conv_bias_ ? to_.sum_or_none(conv_bias_, conv_bias_gradient_) : TensorId()}));
    scale(dprojected);
    to_.column_backward(in_, dprojected, x, dx, name);
  }

 private:
  // In place.
  void scale(TensorId projected) {
    const StateSpace& s = to_.model.ssm;
    if (!s.scaled()) return;
    Op o = to_.op(OpKind::scale_columns, {projected}, {projected}, in_.out);
    const std::int64_t ways = to_.options.tensor, inner = s.inner() / ways, bc = s.groups * s.state / ways;
    o.runs = {{inner, inner, bc, bc, s.heads / ways}, s.scales};
    to_.emit(std::move(o));
  }
  // The product's rows and the convolution's, which files have in one tensor or two, in an order of their own.
  void make_product(const std::string& at, const Op& sizes) {
    const StateSpace& s = to_.model.ssm;
    const std::int64_t c = to_.model.hidden, bc = s.groups * s.state;
    const auto piece = [&](const char* name, std::int64_t rows) {
      return to_.matrix(at + name + ".weight", rows, c, 0, to_.model.initial_stddev);
    };
    in_ = {.in = c, .out = projected_columns(sizes), .rows = to_.all_rows};
    std::vector<Tensor> pieces;
    if (delta_) {
      pieces = {piece("z", s.inner()), piece("v", s.inner()), piece("k", bc),
                piece("q", bc),        piece("a", s.heads),   piece("b", s.heads)};
      LayerNotes::in_one_file_tensor({&pieces[3], &pieces[2], &pieces[1], &pieces[0]}, s.groups);
      LayerNotes::in_one_file_tensor({&pieces[5], &pieces[4]}, s.groups);
    } else {
      pieces = {piece("z", s.inner()), piece("x", s.inner()), piece("b", bc), piece("c", bc), piece("dt", s.heads)};
      LayerNotes::in_one_file_tensor({&pieces[0], &pieces[1], &pieces[2], &pieces[3], &pieces[4]}, 1);
    }
    std::tie(in_.weight, in_.weight_gradient) = to_.parameter(LayerNotes::fused(at + "in.weight", std::move(pieces)));
  }
  void make_convolution(const std::string& at) {
    const StateSpace& s = to_.model.ssm;
    std::vector<Tensor> taps, biases;
    const auto piece = [&](const char* name, std::int64_t rows) {
      taps.push_back(to_.taps(at + name + ".weight", rows, s.taps));
      biases.push_back(to_.vector(at + name + ".bias", rows, 0, 0));
    };
    piece(delta_ ? "conv_v" : "conv_x", s.inner());
    piece(delta_ ? "conv_k" : "conv_b", s.groups * s.state);
    piece(delta_ ? "conv_q" : "conv_c", s.groups * s.state);
    for (std::vector<Tensor>* all : {&taps, &biases}) {
      std::vector<Tensor*> order = {all->data(), all->data() + 1, all->data() + 2};
      if (delta_) std::reverse(order.begin(), order.end());
      LayerNotes::in_one_file_tensor(order, 1);
    }
    std::tie(conv_, conv_gradient_) = to_.parameter(LayerNotes::fused(at + "conv.weight", std::move(taps)));
    if (s.conv_bias)
      std::tie(conv_bias_, conv_bias_gradient_) = to_.parameter(LayerNotes::fused(at + "conv.bias", std::move(biases)));
  }

  Op state_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    const StateSpace& s = to_.model.ssm;
    Op o = to_.op(kind, in, out, 0);
    o.heads = s.heads / to_.options.tensor;
    o.kv_heads = s.groups / to_.options.tensor;
    o.head_dim = s.width;
    o.ssm = {.state = s.state,
             .taps = s.taps,
             .chunk = s.chunk,
             .norm_groups = !s.normed ? 0
                            : delta_  ? o.heads
                                      : s.normed_runs() / to_.options.tensor,
             .delta = delta_};
    o.m = kind == OpKind::causal_conv || kind == OpKind::causal_conv_grad ? convolved_columns(o) : inner_columns(o);
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }

  LinearNotes& to_;
  bool delta_;
  Linear in_, out_;
  TensorId conv_, conv_gradient_, conv_bias_, conv_bias_gradient_;
  TensorId dt_bias_, dt_bias_gradient_, a_log_, a_log_gradient_, d_, d_gradient_, norm_, norm_gradient_;
  TensorId projected_, convolved_, scanned_, normed_, rstd_;
};

std::string undivided_heads(const char* titles, const Model& m, std::int64_t ways) {
  const StateSpace& s = m.ssm;
  if (s.heads % ways == 0 && s.groups % ways == 0 && s.normed_runs() % ways == 0) return {};
  return fmt::format("the {}' {} in {}, normed in {}", titles, base::count_of(s.heads, "head"),
                     base::count_of(s.groups, "group"), base::count_of(s.normed_runs(), "run"));
}

/// What both kinds have in common.
MixerTraits state_mixer(MixerTraits own) {
  own.key = "state_space";
  own.sized = [](const Model& m) { return m.ssm.any(); };
  own.convolves = own.in_order = true;
  own.divisors = "a tensor degree that divides heads, groups and normed runs; or ZeRO and pipeline stages";
  own.sizes = [](const Model& m) {
    return fmt::format("{} of {} columns in {}, state {}", base::count_of(m.ssm.heads, "head"), m.ssm.width,
                       base::count_of(m.ssm.groups, "group"), m.ssm.state);
  };
  return own;
}

}  // namespace

MixerTraits mamba_mixer() {
  return state_mixer(
      {.mixer = Mixer::mamba,
       .word = "mamba",
       .letter = 'M',
       .title = "state space",
       .titles = "state spaces",
       .example = "state_space: {heads: 128, width: 64, groups: 8, state: 128}, and pattern: [mamba, mlp]",
       .core = OpKind::state_scan,
       .undivided = [](const Model& m, std::int64_t ways) { return undivided_heads("state spaces", m, ways); },
       .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> {
         return std::make_unique<StateMixer>(to, false);
       }});
}

MixerTraits delta_mixer() {
  return state_mixer(
      {.mixer = Mixer::delta,
       .word = "delta",
       .title = "gated delta network",
       .titles = "gated delta networks",
       .example = "state_space: {heads: 32, width: 128, groups: 16, state: 128}, and pattern: [delta+mlp]",
       .core = OpKind::delta_rule,
       .check =
           [](const Needs& needs, const Model& m) {
             const StateSpace& s = m.ssm;
             needs("state_space", s.norm_groups == 0 && s.normed && !s.scaled() && s.out_scale == 1,
                   "the norm of a gated delta network takes each head by itself, and nothing is scaled",
                   "leave norm_groups, normed, scales and out_scale out");
           },
       .undivided = [](const Model& m, std::int64_t ways) { return undivided_heads("gated delta networks", m, ways); },
       .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> { return std::make_unique<StateMixer>(to, true); }});
}

}  // namespace orrery::models
