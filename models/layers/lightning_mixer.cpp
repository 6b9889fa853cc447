// Lightning attention in place of attention (MiniMax 2025, "MiniMax-01", section 2.2; Qin et al. 2024): linear
// attention whose state decays at a fixed rate of its head and layer.
//
// One product makes q, k and v of each head and a gate of the result; each of q, k and v goes through silu, the state
// takes in k v^T and is read by q; a norm over all columns and the gate's sigmoid come before the product that leads
// back to the residual. Because that norm takes all heads together, tensor parallelism does not divide them.
#include <fmt/core.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

namespace {

class LightningAttention final : public MixerNotes {
 public:
  explicit LightningAttention(LinearNotes& to) : to_(to), columns_(to.model.ssm.inner()) {
    const std::int64_t c = to_.model.hidden, heads = to_.model.ssm.heads;
    const std::string at = to_.prefix() + "lightning.";
    std::vector<Tensor> pieces;
    for (const char* name : {"q", "k", "v", "gate"})
      pieces.push_back(to_.matrix(at + name + ".weight", columns_, c, 0, to_.model.initial_stddev));
    LayerNotes::in_one_file_tensor({&pieces[0], &pieces[1], &pieces[2]}, heads);
    in_ = {.in = c, .out = 4 * columns_, .rows = to_.all_rows};
    std::tie(in_.weight, in_.weight_gradient) = to_.parameter(LayerNotes::fused(at + "in.weight", std::move(pieces)));
    std::tie(norm_, norm_gradient_) = to_.parameter(to_.vector(at + "norm.weight", columns_, -1, 1));
    out_ = {
        .in = columns_, .out = c, .rows = to_.all_rows, .scale = to_.model.residual_scale * to_.model.ssm.out_scale};
    std::tie(out_.weight, out_.weight_gradient) =
        to_.parameter(to_.matrix(at + "proj.weight", c, columns_, 1, to_.residual_initial_stddev()));
    made_ = to_.activation("lightning.made", in_.out);
    qkv_ = to_.activation("lightning.qkv", 3 * columns_);
    gate_ = to_.activation("lightning.gate", columns_);
    read_ = to_.activation("lightning.read", columns_);
    normed_ = to_.activation("lightning.normed", columns_);
    rstd_ = to_.rows("lightning.rstd", to_.all_rows);
    gated_ = to_.activation("lightning.gated", columns_);
  }

  void forward(TensorId x, TensorId h, bool adds) override {
    to_.linear_forward(in_, x, made_, false);
    to_.emit(halves(OpKind::split_columns, {made_}, {qkv_, gate_}));
    to_.emit(recurrence(OpKind::decayed_attention, {qkv_}, {read_}));
    to_.emit(norm(OpKind::rms_norm, {read_, norm_}, {normed_, rstd_}));
    to_.emit(to_.op(OpKind::output_gate, {normed_, gate_}, {gated_}, columns_));
    to_.linear_forward(out_, gated_, h, false, adds);
  }
  void backward(TensorId dh_own, TensorId x, TensorId dx, const std::string& name) override {
    const TensorId dh = to_.gathered(dh_own, "d_lightning.h");
    const auto columns = [&](const char* of) { return to_.activation(std::string("d_lightning.") + of, columns_); };
    const TensorId dgated = columns("gated"), dnormed = columns("normed"), dgate = columns("gate"),
                   dread = columns("read");
    const TensorId dqkv = to_.activation("d_lightning.qkv", 3 * columns_),
                   dmade = to_.activation("d_lightning.made", in_.out);
    to_.linear_backward(out_, dh, gated_, dgated);
    to_.emit(to_.op(OpKind::output_gate_grad, {dgated, normed_, gate_}, {dnormed, dgate}, columns_));
    Op back = norm(OpKind::rms_norm_grad, {dnormed, read_, norm_, rstd_, {}},
                   {dread, to_.gradient_or_none(norm_, norm_gradient_)});
    back.accumulate = norm_gradient_.exists();
    to_.emit(std::move(back));
    Op scan = recurrence(OpKind::decayed_attention_grad, {dread, qkv_}, {});
    const TensorId states =
        to_.activation("d_lightning.states",
                       {to_.options.batch, chunks_of(scan), scan.heads, scan.head_dim, scan.ssm.state}, DType::fp32);
    scan.out = {operand_of(dqkv), operand_of(states)};
    to_.emit(std::move(scan));
    to_.emit(halves(OpKind::join_columns, {dqkv, dgate}, {dmade}));
    to_.column_backward(in_, dmade, x, dx, name);
  }

 private:
  // Of q, k and v, and the gate.
  Op halves(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, 3 * columns_);
    o.k = columns_;
    return o;
  }
  Op norm(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, columns_);
    o.epsilon = 1e-6;  // the class's norm here has its own, whatever the model's others have
    return o;
  }
  Op recurrence(OpKind kind, const Tensors& in, const Tensors& out) const {
    const StateSpace& s = to_.model.ssm;
    Op o = to_.op(kind, in, out, columns_);
    o.heads = o.kv_heads = s.heads;
    o.head_dim = s.width;
    o.ssm = {.state = s.width, .chunk = s.chunk};
    // The class's: rates fall from layer to layer, to nearly none in the last.
    constexpr double kLeast = 1e-5;
    o.scale = 1 - static_cast<double>(to_.layer) / (static_cast<double>(to_.model.layers - 1) + kLeast) + kLeast;
    return o;
  }

  LinearNotes& to_;
  std::int64_t columns_;
  Linear in_, out_;
  TensorId norm_, norm_gradient_, made_, qkv_, gate_, read_, normed_, rstd_, gated_;
};

}  // namespace

MixerTraits lightning_mixer() {
  return {
      .mixer = Mixer::lightning,
      .word = "lightning",
      .title = "lightning attention layer",
      .titles = "lightning attention layers",
      .key = "state_space",
      .example =
          "state_space: {heads: 64, width: 128, groups: 64, state: 128}, and pattern: [lightning+mlp, attention+mlp]",
      .sized = [](const Model& m) { return m.ssm.any(); },
      .in_order = true,
      .core = OpKind::decayed_attention,
      .check =
          [](const Needs& needs, const Model& m) {
            const StateSpace& s = m.ssm;
            needs("state_space", s.state == s.width && s.groups == s.heads,
                  "keys and values of lightning attention are equally wide, and each head has its own",
                  "state as wide as width, and as many groups as heads");
            needs("state_space", s.norm_groups == 0 && s.normed && !s.scaled(),
                  "the norm of lightning attention takes all heads together, and q, k and v are not scaled",
                  "leave norm_groups, normed and scales out");
          },
      .undivided =
          [](const Model& m, std::int64_t ways) {
            return ways == 1 ? std::string()
                             : fmt::format("lightning attention's {}, which one norm takes together",
                                           base::count_of(m.ssm.heads, "head"));
          },
      .divisors = "tensor: 1, with ZeRO, pipeline stages and experts over ranks",
      .sizes =
          [](const Model& m) {
            return fmt::format("{} of {} columns", base::count_of(m.ssm.heads, "head"), m.ssm.width);
          },
      .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> { return std::make_unique<LightningAttention>(to); }};
}

}  // namespace orrery::models
