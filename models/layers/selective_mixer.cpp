// Mamba's first form in place of attention (Gu and Dao 2023, "Mamba", section 3; Jamba, Lieber et al. 2024): a state
// space of each column, whose step width, B and C are made from the column's own values behind a convolution.
//
// One product makes values x and a gate z; a short causal convolution runs over x. A narrow product of x makes the raw
// step in few columns, B and C, each behind an RMSNorm (Jamba; without weights in Falcon Mamba, Zuo et al. 2024; Mamba
// has none); one more widens the step to all columns. The
// recurrence takes in a token, silu of z gates what is read, and a product leads back to the residual.
//
// Tensor parallelism divides the columns. The narrow product is split by rows, so that its result is summed over the
// group in the middle of the mixer, and its gradient once more in backward; all that lies between is linear in the
// gradient, so that each rank takes its columns' part through the norms, whose weights have partial gradients.
#include <fmt/core.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

namespace {

class SelectiveMixer final : public MixerNotes {
 public:
  explicit SelectiveMixer(LinearNotes& to)
      : to_(to), all_(to.model.ssm.inner()), columns_(all_ / to.options.tensor), state_(to.model.ssm.state) {
    const StateSpace& s = to_.model.ssm;
    const std::int64_t c = to_.model.hidden, narrow = s.rank + 2 * state_;
    const std::string at = to_.prefix() + "selective.";
    const double stddev = to_.model.initial_stddev;
    const auto with_weight = [&](Linear& linear, Tensor weight) {
      linear.rows = to_.all_rows;
      std::tie(linear.weight, linear.weight_gradient) = to_.parameter(std::move(weight));
    };
    std::vector<Tensor> pieces = {to_.matrix(at + "z.weight", all_, c, 0, stddev),
                                  to_.matrix(at + "x.weight", all_, c, 0, stddev)};
    LayerNotes::in_one_file_tensor({&pieces[1], &pieces[0]}, 1);
    in_ = {.in = c, .out = 2 * columns_};
    with_weight(in_, LayerNotes::fused(at + "in.weight", std::move(pieces)));
    std::tie(conv_, conv_gradient_) = to_.parameter(to_.taps(at + "conv.weight", all_, s.taps));
    if (s.conv_bias)
      std::tie(conv_bias_, conv_bias_gradient_) = to_.parameter(to_.vector(at + "conv.bias", all_, 0, 0));
    narrow_ = {.in = columns_, .out = narrow};
    with_weight(narrow_, to_.matrix(at + "narrow.weight", narrow, all_, 1, stddev));
    constexpr std::array<const char*, 3> kNames = {"dt_norm", "b_norm", "c_norm"};
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      Run& run = norms_[i];
      run.width = i == 0 ? s.rank : state_;
      if (s.part_norms == PartNorms::weighted)
        std::tie(run.weight, run.weight_gradient) =
            to_.parameter(to_.by_heads(to_.vector(at + kNames[i] + ".weight", run.width, -1, 1)));
      const std::string name = std::string("selective.") + kNames[i];
      run.after = run.before = to_.activation(name + ".before", run.width);
      if (s.part_norms == PartNorms::none) continue;
      run.after = to_.activation(name, run.width);
      run.rstd = to_.rows(name + ".rstd", to_.all_rows);
    }
    wide_ = {.in = s.rank, .out = columns_};
    with_weight(wide_, to_.matrix(at + "dt.weight", all_, s.rank, 0, stddev));
    Tensor bias = to_.vector(at + "dt.bias", all_, 0, 0);
    bias.initial = Initial::step_width;
    std::tie(dt_bias_, dt_bias_gradient_) = to_.parameter(std::move(bias));
    Tensor rates = to_.matrix(at + "a_log", all_, state_, 0, 0);
    rates.decay = false, rates.initial = Initial::place_log;
    std::tie(a_log_, a_log_gradient_) = to_.parameter(std::move(rates));
    std::tie(d_, d_gradient_) = to_.parameter(to_.vector(at + "d", all_, 0, 1));
    out_ = {.in = columns_, .out = c, .scale = to_.model.residual_scale * s.out_scale};
    with_weight(out_, to_.matrix(at + "proj.weight", c, all_, 1, to_.residual_initial_stddev()));
    projected_ = to_.activation("selective.projected", in_.out);
    x_ = to_.activation("selective.x", columns_);
    made_ = to_.activation("selective.narrow", narrow);
    bc_ = to_.activation("selective.bc", 2 * state_);
    dt_ = to_.activation("selective.dt", columns_);
    scanned_ = to_.activation("selective.scanned", columns_);
    gated_ = to_.activation("selective.gated", columns_);
  }

  void forward(TensorId x, TensorId h, bool adds) override {
    to_.linear_forward(in_, x, projected_, false);
    to_.emit(column_op(OpKind::causal_conv, {projected_, conv_, conv_bias_}, {x_}));
    to_.linear_forward(narrow_, x_, made_, false);
    to_.all_reduce(made_);
    to_.emit(split(OpKind::split_columns, {made_}, {norms_[0].before, bc_}, norms_[0].width, 2 * state_));
    to_.emit(split(OpKind::split_columns, {bc_}, {norms_[1].before, norms_[2].before}, state_, state_));
    for (const Run& run : norms_) {
      if (!run.normed()) continue;
      Op o = to_.op(OpKind::rms_norm, {run.before, run.weight}, {run.after, run.rstd}, run.width);
      o.epsilon = epsilon();
      to_.emit(std::move(o));
    }
    to_.linear_forward(wide_, norms_[0].after, dt_, false);
    to_.emit(
        scan(OpKind::selective_scan, {x_, dt_, norms_[1].after, norms_[2].after, dt_bias_, a_log_, d_}, {scanned_}));
    to_.emit(column_op(OpKind::gated_norm, {scanned_, projected_, {}}, {gated_, {}}));
    to_.linear_forward(out_, gated_, h, false, adds);
  }

  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) override {
    const TensorId dh = to_.gathered(dh_own, "d_selective.h");
    const auto columns = [&](const char* of) { return to_.activation(std::string("d_selective.") + of, columns_); };
    const TensorId dgated = columns("gated"), dscanned = columns("scanned"), dinner = columns("x"), ddt = columns("dt");
    const TensorId dprojected = to_.activation("d_selective.projected", in_.out);
    to_.linear_backward(out_, dh, gated_, dgated);
    to_.emit(column_op(OpKind::gated_norm_grad, {dgated, scanned_, projected_, {}, {}}, {dscanned, dprojected, {}}));
    std::array<TensorId, 3> dnormed, dnarrow;
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      dnormed[i] = to_.activation("d_selective.normed." + std::to_string(i), norms_[i].width);
      dnarrow[i] =
          norms_[i].normed() ? to_.activation("d_selective.before." + std::to_string(i), norms_[i].width) : dnormed[i];
    }
    Op back = scan(OpKind::selective_scan_grad,
                   {dscanned, x_, dt_, norms_[1].after, norms_[2].after, dt_bias_, a_log_, d_}, {});
    const TensorId states = to_.activation("d_selective.states", {selective_workspace(back)}, DType::fp32);
    for (const TensorId one : {dinner, ddt, dnormed[1], dnormed[2], to_.sum_or_none(dt_bias_, dt_bias_gradient_),
                               to_.sum_or_none(a_log_, a_log_gradient_), to_.sum_or_none(d_, d_gradient_), states})
      back.out.push_back(operand_of(one));
    to_.emit(std::move(back));
    to_.linear_backward(wide_, ddt, norms_[0].after, dnormed[0]);
    for (std::size_t i = 0; i < norms_.size(); ++i)
      if (norms_[i].normed()) norm_backward(norms_[i], dnormed[i], dnarrow[i]);
    const TensorId dbc = to_.activation("d_selective.bc", 2 * state_);
    const TensorId dmade = to_.activation("d_selective.narrow", narrow_.out);
    to_.emit(split(OpKind::join_columns, {dnarrow[1], dnarrow[2]}, {dbc}, state_, state_));
    to_.emit(split(OpKind::join_columns, {dnarrow[0], dbc}, {dmade}, norms_[0].width, 2 * state_));
    to_.all_reduce(dmade);
    to_.weight_backward(narrow_, dmade, x_);
    to_.input_backward(narrow_, dmade, dinner, true);
    to_.emit(column_op(OpKind::causal_conv_grad, {dinner, projected_, conv_, conv_bias_},
                       {dprojected, to_.sum_or_none(conv_, conv_gradient_),
                        conv_bias_ ? to_.sum_or_none(conv_bias_, conv_bias_gradient_) : TensorId()}));
    to_.column_backward(in_, dprojected, x, dx, name);
  }

 private:
  /// Of the narrow product's columns those of the step, of B or of C, around their norm, if they have one.
  struct Run {
    std::int64_t width = 0;
    TensorId weight, weight_gradient, before, after, rstd;
    [[nodiscard]] bool normed() const { return rstd.exists(); }
  };

  [[nodiscard]] double epsilon() const {
    const StateSpace& s = to_.model.ssm;
    return s.part_epsilon > 0 ? s.part_epsilon : to_.model.norm_epsilon;
  }

  void norm_backward(const Run& run, TensorId dy, TensorId dx) {
    Op o = to_.op(OpKind::rms_norm_grad, {dy, run.before, run.weight, run.rstd, {}},
                  {dx, run.weight ? to_.gradient_or_none(run.weight, run.weight_gradient) : TensorId()}, run.width);
    o.accumulate = run.weight_gradient.exists();
    o.epsilon = epsilon();
    to_.emit(std::move(o));
  }
  Op split(OpKind kind, const Tensors& in, const Tensors& out, std::int64_t first, std::int64_t others) const {
    Op o = to_.op(kind, in, out, first);
    o.k = others;
    return o;
  }
  // Each column is a head of its own; what is convolved and gated is x and z alone.
  Op column_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, columns_);
    o.heads = columns_;
    o.kv_heads = 1;
    o.head_dim = 1;
    o.ssm.taps = to_.model.ssm.taps, o.ssm.chunk = to_.model.ssm.chunk;
    return o;
  }
  Op scan(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = column_op(kind, in, out);
    o.ssm.state = state_;
    return o;
  }

  LinearNotes& to_;
  std::int64_t all_, columns_, state_;  ///< columns of x in all and on this rank, and of B and C
  Linear in_, narrow_, wide_, out_;
  std::array<Run, 3> norms_;  ///< of the step, B and C, in this order
  TensorId conv_, conv_gradient_, conv_bias_, conv_bias_gradient_, dt_bias_, dt_bias_gradient_, a_log_, a_log_gradient_,
      d_, d_gradient_;
  TensorId projected_, x_, made_, bc_, dt_, scanned_, gated_;
};

}  // namespace

MixerTraits selective_mixer() {
  return {.mixer = Mixer::selective,
          .word = "selective",
          .title = "selective state space",
          .titles = "selective state spaces",
          .key = "state_space",
          .example = "state_space: {heads: 8192, width: 1, state: 16, rank: 256}, and pattern: [selective+mlp]",
          .sized = [](const Model& m) { return m.ssm.any(); },
          .convolves = true,
          .has_rank = true,
          .in_order = true,
          .core = OpKind::selective_scan,
          .check =
              [](const Needs& needs, const Model& m) {
                const StateSpace& s = m.ssm;
                needs(
                    "state_space", s.rank > 0 && s.width == 1 && s.groups == 1,
                    "a selective state space has one column in a head, one B and C, and a step made in `rank` columns",
                    "{heads: 8192, width: 1, state: 16, rank: 256}");
                needs("state_space", s.norm_groups == 0 && s.normed && !s.scaled(),
                      "a selective state space has no norm behind its gate, and nothing is scaled",
                      "leave norm_groups, normed and scales out");
              },
          .undivided =
              [](const Model& m, std::int64_t ways) {
                return m.ssm.inner() % ways == 0 ? std::string()
                                                 : fmt::format("the selective state spaces' {} columns", m.ssm.inner());
              },
          .divisors = "a tensor degree that divides the state spaces' columns",
          .sizes =
              [](const Model& m) {
                return fmt::format("{} columns, state {}, steps of rank {}", m.ssm.inner(), m.ssm.state, m.ssm.rank);
              },
          .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> { return std::make_unique<SelectiveMixer>(to); }};
}

}  // namespace orrery::models
