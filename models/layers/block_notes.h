#pragma once
/// Blocks: a mixer and what feeds on it, each with a residual, and norms before them or after them. Private to models/;
/// see expand.cpp.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/attention_notes.h"
#include "models/layers/layer_input_notes.h"
#include "models/layers/mixture_notes.h"
#include "models/layers/mlp_notes.h"

namespace orrery::models {

// y = skip + dropout(x + bias), and the gradient of the branch from dy.
inline void residual(LinearNotes& to, TensorId skip, TensorId x, TensorId bias, TensorId y, DropoutPlace place) {
  to.emit(to.drawing(to.own_op(OpKind::add_bias, {skip, x, bias}, {y}, to.model.hidden), to.model.dropout.residual,
                     dropout_site(to.layer, place)));
}
inline TensorId branch_gradient(LinearNotes& to, TensorId dy, DropoutPlace place, const std::string& name) {
  return to.dropped(dy, to.model.dropout.residual, dropout_site(to.layer, place), name);
}

/// y = r + mlp(norm(r)), r = x + attention(norm(x))   (GPT-2, Llama). If attention and MLP are parallel, the
/// MLP's norm reads x too, or the MLP uses attention's norm. Output norms apply before the addition, and may be the
/// only ones (OLMo 2). Either half may be missing, with its norms; attention may be another mixer, or several. Experts
/// may stand beside the MLP, both between norms of their own (Gemma 4).
class PreNormBlock {
 public:
  PreNormBlock(LinearNotes& to, TensorId x, TensorId y)
      : to_(to), parts_(to.model.parts(to.layer)), x_(x), end_(y), y_(y) {
    const bool first = to_.model.input_norm;
    if (first && mixes()) norm_1_ = to_.norm(to_.prefix() + "ln_1");
    for (const Mixer one : members_of(parts_.mixer)) mixers_.push_back(traits_of(one).notes(to_));
    if (to_.model.output_norm && mixes()) out_1_ = to_.norm(to_.prefix() + "ln_1_out");
    if (first && feeds() && !to_.model.shared_norm) norm_2_ = to_.norm(to_.prefix() + "ln_2");
    if (mixed()) mixture_.emplace(to_);
    if (feeds() && (!mixed() || beside())) mlp_.emplace(to_);
    if (beside()) {
      mlp_out_ = to_.norm(to_.prefix() + "ln_2_mlp_out");
      experts_norm_ = to_.norm(to_.prefix() + "ln_2_experts");
      experts_out_ = to_.norm(to_.prefix() + "ln_2_experts_out");
    }
    if (to_.model.output_norm && feeds()) out_2_ = to_.norm(to_.prefix() + "ln_2_out");
    if (to_.model.layer_inputs.any()) layer_input_.emplace(to_);
    const std::int64_t c = to_.model.hidden;
    if (layer_input_) y_ = to_.own_activation("block.y", c);
    a_ = first && mixes() ? to_.own_activation("ln_1", c) : x_;
    if (mixes()) h_ = to_.own_activation("attention.h", c), h_sums_ = to_.partial(h_, "attention.h.partial");
    r_ = !mixes() ? x_ : !feeds() ? y_ : to_.own_activation("residual", c);
    if (!feeds()) return;
    b_ = to_.model.shared_norm ? a_ : first ? to_.own_activation("ln_2", c) : r_;
    g_ = to_.own_activation("mlp.h", c);
    m_ = beside() ? to_.own_activation("mlp.own.h", c) : g_;
    g_sums_ = mlp_ ? to_.partial(m_, "mlp.h.partial") : TensorId();
    if (!beside()) return;
    experts_x_ = to_.own_activation("ln_2_experts", c);
    experts_y_ = to_.own_activation("experts.h", c);
  }

  void forward() {
    const TensorId a_all = mixes() ? mixer_forward() : TensorId();
    if (feeds()) feed_forward(a_all);
    if (layer_input_) layer_input_->forward(y_, end_);
  }
  /// From dy to dx.
  void backward(TensorId dy, TensorId dx) {
    const std::int64_t c = to_.model.hidden;
    dy_ = dy, dx_ = dx;
    if (layer_input_) {
      dy_ = to_.own_activation("d_block.y", c);
      layer_input_->backward(dy, y_, dy_);
    }
    const TensorId db = feeds() ? to_.own_activation("d_ln_2", c) : TensorId();
    const TensorId da = mixes() ? to_.own_activation("d_ln_1", c) : TensorId();
    const TensorId dr = to_.model.shared_norm || !feeds() ? dy_ : mixes() ? to_.own_activation("d_residual", c) : dx_;
    if (feeds()) feed_backward(db, dr);
    if (mixes()) mixer_backward(da, db, dr);
  }

 private:
  [[nodiscard]] bool mixes() const { return parts_.mixer != Mixer::none; }
  [[nodiscard]] bool feeds() const { return parts_.feed != Feed::none; }
  [[nodiscard]] bool mixed() const { return parts_.feed == Feed::experts; }
  [[nodiscard]] bool beside() const { return mixed() && to_.model.experts.beside; }

  // r = x + mixer(norm(x)); returns all rows of the norm.
  TensorId mixer_forward() {
    if (to_.model.input_norm) to_.norm_forward(norm_1_, x_, a_);
    const TensorId a_all = to_.gathered(a_, "ln_1.gathered");
    for (const auto& one : mixers_) one->forward(a_all, h_sums_, one != mixers_.front());
    to_.add_up(h_sums_, h_);
    residual(to_, skip(x_, a_, mixer_skip(), "ln_1.skip"), output_norm(out_1_, h_, "attention.normed"),
             mixers_.front()->bias(), r_, DropoutPlace::attention_branch);
    return a_all;
  }
  void feed_forward(TensorId a_all) {
    const bool shared = to_.model.shared_norm;
    if (!shared && to_.model.input_norm) to_.norm_forward(norm_2_, to_.model.parallel ? x_ : r_, b_);
    if (beside()) {
      beside_forward();
    } else if (mixed()) {
      mixture_->forward(b_, g_, "ln_2");
    } else {
      mlp_->forward(shared ? a_all : to_.gathered(b_, "ln_2.gathered"), g_sums_);
      to_.add_up(g_sums_, g_);
    }
    residual(to_, skip(r_, b_, to_.model.skip_scales[2], "ln_2.skip"), output_norm(out_2_, g_, "mlp.normed"),
             mlp_ ? mlp_->bias() : TensorId(), y_, DropoutPlace::mlp_branch);
  }
  // From dy to the gradient of what the norm made, and to dr.
  void feed_backward(TensorId db, TensorId dr) {
    const TensorId dg = branch_gradient(to_, dy_, DropoutPlace::mlp_branch, "d_mlp.dropped");
    const TensorId dg_own = output_norm_gradient(out_2_, dg, g_, "d_mlp.normed");
    if (beside()) return beside_backward(dg_own, db, dr);
    mixed() ? mixture_->backward(dg_own, b_, db, "ln_2") : mlp_->backward(dg_own, b_, db, "ln_2");
    // With the gradient of the skip: of r, or of x if attention and MLP are parallel.
    const TensorId beside = skip_gradient(dy_, db, to_.model.skip_scales[2], "d_ln_2.skip");
    if (!to_.model.shared_norm) input_gradient(norm_2_, db, to_.model.parallel ? x_ : r_, beside, dr);
  }
  // g = norm(mlp(b)) + norm(experts(norm(r)))
  void beside_forward() {
    mlp_->forward(to_.gathered(b_, "ln_2.gathered"), g_sums_);
    to_.add_up(g_sums_, m_);
    const TensorId mlp = output_norm(mlp_out_, m_, "mlp.own.normed");
    to_.norm_forward(experts_norm_, r_, experts_x_);
    Router& router = mixture_->router();
    mixture_->forward(experts_x_, experts_y_, "ln_2_experts", router.has_norm() ? router.normed(r_) : TensorId());
    const TensorId experts = output_norm(experts_out_, experts_y_, "experts.normed");
    to_.emit(to_.own_op(OpKind::add, {mlp, experts}, {g_}, to_.model.hidden));
  }
  void beside_backward(TensorId dg, TensorId db, TensorId dr) {
    const auto own = [&](const char* name) { return to_.own_activation(name, to_.model.hidden); };
    Router& router = mixture_->router();
    const TensorId dx = own("d_ln_2_experts"), routed = router.has_norm() ? router.normed() : TensorId();
    const TensorId drouted = routed ? own("d_router.normed") : TensorId();
    mixture_->backward(output_norm_gradient(experts_out_, dg, experts_y_, "d_experts.normed"), experts_x_, dx,
                       "ln_2_experts", routed, drouted);
    // Each of the norms that read r adds its gradient to that of the skip.
    TensorId sum = dy_;
    const auto through = [&](const char* name, auto&& backward) {
      const TensorId before = std::exchange(sum, own(name));
      backward(before, sum);
    };
    if (routed.exists())
      through("d_residual.routed",
              [&](TensorId before, TensorId after) { router.norm_backward(drouted, r_, before, after); });
    through("d_residual.experts",
            [&](TensorId before, TensorId after) { to_.norm_backward(experts_norm_, dx, r_, before, after); });
    mlp_->backward(output_norm_gradient(mlp_out_, dg, m_, "d_mlp.own.normed"), b_, db, "ln_2");
    to_.norm_backward(norm_2_, db, r_, sum, dr);
  }
  void mixer_backward(TensorId da, TensorId db, TensorId dr) {
    const TensorId dbranch =
        branch_gradient(to_, to_.model.parallel ? dy_ : dr, DropoutPlace::attention_branch, "d_attention.dropped");
    const TensorId dh = output_norm_gradient(out_1_, dbranch, h_, "d_attention.normed");
    mixers_.front()->backward(dh, a_, da, "ln_1");
    for (std::size_t i = 1; i < mixers_.size(); ++i) {
      const std::string name = "ln_1.beside." + std::to_string(i);
      const TensorId further = to_.own_activation("d_" + name, to_.model.hidden);
      mixers_[i]->backward(dh, a_, further, name);
      to_.emit(to_.own_op(OpKind::add, {da, further}, {da}, to_.model.hidden));
    }
    if (to_.model.shared_norm) to_.emit(to_.own_op(OpKind::add, {da, db}, {da}, to_.model.hidden));
    input_gradient(norm_1_, da, x_, skip_gradient(dr, da, mixer_skip(), "d_ln_1.skip"), dx_);
  }

  // What is added to: `before` the norm, or what the norm made, times a factor.
  [[nodiscard]] double mixer_skip() const { return to_.model.skip_scales[parts_.mixer == Mixer::attention ? 0 : 1]; }
  TensorId skip(TensorId before, TensorId normed, double factor, const std::string& name) {
    return to_.model.normed_skip ? scaled(normed, factor, name) : before;
  }
  // What goes back beside the norm; with skips behind it nothing, as their gradient is added to the norm's.
  TensorId skip_gradient(TensorId dy, TensorId dnormed, double factor, const std::string& name) {
    if (!to_.model.normed_skip) return dy;
    to_.emit(to_.own_op(OpKind::add, {dnormed, scaled(dy, factor, name)}, {dnormed}, to_.model.hidden));
    return {};
  }
  TensorId scaled(TensorId x, double factor, const std::string& name) {
    if (factor == 1) return x;
    const TensorId y = to_.own_activation(name, to_.model.hidden);
    Op o = to_.own_op(OpKind::scale_columns, {x}, {y}, to_.model.hidden);
    o.runs = {{to_.model.hidden}, {factor}};
    to_.emit(std::move(o));
    return y;
  }
  // dx = addend + the gradient of x, which the norm reads, or without one what follows it.
  void input_gradient(const Norm& norm, TensorId dy, TensorId x, TensorId addend, TensorId dx) {
    if (norm.any()) return to_.norm_backward(norm, dy, x, addend, dx);
    to_.emit(to_.own_op(OpKind::add, {dy, addend}, {dx}, to_.model.hidden));
  }

  TensorId output_norm(const Norm& norm, TensorId x, const std::string& name) {
    if (!norm.any()) return x;
    const TensorId y = to_.own_activation(name, to_.model.hidden);
    to_.norm_forward(norm, x, y);
    return y;
  }
  TensorId output_norm_gradient(const Norm& norm, TensorId dy, TensorId x, const std::string& name) {
    if (!norm.any()) return dy;
    const TensorId dx = to_.own_activation(name, to_.model.hidden);
    to_.norm_backward(norm, dy, x, {}, dx);
    return dx;
  }

  LinearNotes& to_;
  BlockParts parts_;
  TensorId x_, end_, y_, dy_, dx_;  ///< end: behind the layer's own input; without one y
  Norm norm_1_, out_1_, norm_2_, out_2_;
  Norm mlp_out_, experts_norm_, experts_out_;  ///< where experts stand beside the MLP
  std::vector<std::unique_ptr<MixerNotes>> mixers_;
  std::optional<Mlp> mlp_;
  std::optional<Mixture> mixture_;
  std::optional<LayerInputGate> layer_input_;
  TensorId a_, h_, r_, b_, g_;
  TensorId m_, experts_x_, experts_y_;  ///< of the MLP by itself; of the experts
  TensorId h_sums_, g_sums_;
};

/// y = norm(r + mlp(r)), r = norm(x + attention(x))   (BERT)
inline void post_norm_block(LinearNotes& to) {
  to.ends(true, true);
  Attention attention(to);
  const Norm norm_1 = to.norm(to.prefix() + "ln_1");
  Mlp mlp(to);
  const Norm norm_2 = to.norm(to.prefix() + "ln_2");
  const std::int64_t c = to.model.hidden;
  const TensorId h = to.own_activation("attention.h", c), s = to.own_activation("sum_1", c),
                 r = to.own_activation("ln_1", c);
  const TensorId g = to.own_activation("mlp.h", c), u = to.own_activation("sum_2", c);
  const TensorId h_sums = to.partial(h, "attention.h.partial"), g_sums = to.partial(g, "mlp.h.partial");
  to.begin(to.program.forward);
  attention.forward(to.gathered(to.program.x, "x.gathered"), h_sums, false);
  to.add_up(h_sums, h);
  residual(to, to.program.x, h, attention.bias(), s, DropoutPlace::attention_branch);
  to.norm_forward(norm_1, s, r);
  mlp.forward(to.gathered(r, "ln_1.gathered"), g_sums);
  to.add_up(g_sums, g);
  residual(to, r, g, mlp.bias(), u, DropoutPlace::mlp_branch);
  to.norm_forward(norm_2, u, to.program.y);

  const TensorId du = to.own_activation("d_sum_2", c), dm = to.own_activation("d_mlp", c),
                 ds = to.own_activation("d_sum_1", c);
  const TensorId da = to.own_activation("d_attention.x", c);
  to.begin(to.program.backward);
  to.norm_backward(norm_2, to.program.dy, u, {}, du);
  mlp.backward(branch_gradient(to, du, DropoutPlace::mlp_branch, "d_mlp.dropped"), r, dm, "mlp");
  to.emit(to.own_op(OpKind::add, {dm, du}, {dm}, c));
  to.norm_backward(norm_1, dm, s, {}, ds);
  attention.backward(branch_gradient(to, ds, DropoutPlace::attention_branch, "d_attention.dropped"), to.program.x, da,
                     "attention.x");
  to.emit(to.own_op(OpKind::add, {da, ds}, {to.program.dx}, c));
}

inline void pre_norm_block(LinearNotes& to) {
  to.ends(true, true);
  PreNormBlock block(to, to.program.x, to.program.y);
  to.begin(to.program.forward);
  block.forward();
  to.begin(to.program.backward);
  block.backward(to.program.dy, to.program.dx);
}

}  // namespace orrery::models
