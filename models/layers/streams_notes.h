#pragma once
/// Blocks between several residual streams (models::Streams), and where streams begin and end. Private to models/; see
/// expand.cpp.
///
/// Around each half of a block a product of all streams of a token, behind a norm without weights, makes what mixes
/// them: how much of each stream the half reads, how much of what it makes each stream gets, and a matrix by which the
/// streams are mixed. Rows are a rank's own; every tensor rank has all of these weights.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"
#include "models/layers/mixture_notes.h"
#include "models/layers/mlp_notes.h"

namespace orrery::models {

/// What mixes the streams before a half of a block, or before the head, which none follows (`last`).
class StreamMixing {
 public:
  /// `at`: before the names of its parameters, and of its activations.
  StreamMixing(LinearNotes& to, const std::string& at, bool last) : to_(to), at_(at) {
    const std::int64_t s = to_.model.streams.count;
    logits_ = last ? s : (2 + s) * s;
    product_ = {.in = to_.model.carried(), .out = logits_, .rows = to_.own_rows};
    std::tie(product_.weight, product_.weight_gradient) = to_.parameter(
        to_.by_rows(to_.matrix(at + "streams.weight", logits_, to_.model.carried(), -1, to_.model.initial_stddev)));
    std::tie(bias_, bias_gradient_) = of("streams.bias", logits_, 0);
    std::tie(scales_, scales_gradient_) = of("streams.scale", last ? 1 : 3, 1);
    normed_ = to_.own_activation(at + "streams.normed", to_.model.carried());
    rstd_ = to_.rows(at + "streams.rstd", to_.own_rows);
    made_ = to_.own_activation(at + "streams.logits", logits_);
    y_ = to_.own_activation(at + "streams.mixed", to_.model.hidden);
    if (!last) weights_ = to_.own_activation(at + "streams.weights", logits_ - s);
  }

  [[nodiscard]] TensorId weights() const { return weights_; }
  /// Their mixture.
  [[nodiscard]] TensorId mixed() const { return y_; }

  void forward(TensorId x) {
    to_.emit(norm(OpKind::rms_norm, {x, {}}, {normed_, rstd_}));
    to_.linear_forward(product_, normed_, made_, false);
    Tensors out = {y_};
    if (weights_.exists()) out.push_back(weights_);
    to_.emit(op(OpKind::mix_streams, {x, made_, bias_, scales_}, out));
  }
  /// From dy and the gradient of the weights to dx, with `addend`.
  void backward(TensorId dy, TensorId dweights, TensorId x, TensorId addend, TensorId dx) {
    const TensorId dmade = to_.own_activation("d_" + at_ + "streams.logits", logits_);
    const TensorId dread = to_.own_activation("d_" + at_ + "streams.read", to_.model.carried());
    const TensorId dnormed = to_.own_activation("d_" + at_ + "streams.normed", to_.model.carried());
    Tensors in = {dy, x, made_, bias_, scales_};
    if (dweights.exists()) in.push_back(dweights);
    to_.emit(op(OpKind::mix_streams_grad, in,
                {dread, dmade, to_.sum_or_none(bias_, bias_gradient_), to_.sum_or_none(scales_, scales_gradient_)}));
    if (addend.exists()) to_.emit(to_.own_op(OpKind::add, {dread, addend}, {dread}, to_.model.carried()));
    to_.linear_backward(product_, dmade, normed_, dnormed);
    to_.emit(norm(OpKind::rms_norm_grad, {dnormed, x, {}, rstd_, dread}, {dx, {}}));
  }

  /// Of streams of hidden columns.
  Op op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.own_op(kind, in, out, to_.model.hidden);
    o.k = to_.model.streams.count;
    if (weights_.exists()) o.chosen = to_.model.streams.steps;
    return o;
  }

 private:
  std::pair<TensorId, TensorId> of(const char* name, std::int64_t size, double value) {
    return to_.parameter(to_.by_rows(to_.vector(at_ + name, size, -1, value)));
  }
  Op norm(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.own_op(kind, in, out, to_.model.carried());
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }

  LinearNotes& to_;
  std::string at_;
  std::int64_t logits_ = 0;
  Linear product_;
  TensorId bias_, bias_gradient_, scales_, scales_gradient_;
  TensorId normed_, rstd_, made_, y_, weights_;
};

/// Each half reads a mixture behind a norm, and what it makes goes to all streams.
class StreamsBlock {
 public:
  StreamsBlock(LinearNotes& to, TensorId x, TensorId y) : to_(to), x_(x), y_(y) {
    const BlockParts parts = to_.model.parts(to_.layer);
    const std::int64_t c = to_.model.hidden;
    mixing_1_.emplace(to_, to_.prefix() + "attn.", false);
    norm_1_ = to_.norm(to_.prefix() + "ln_1");
    mixer_ = traits_of(parts.mixer).notes(to_);
    mixing_2_.emplace(to_, to_.prefix() + "mlp.", false);
    norm_2_ = to_.norm(to_.prefix() + "ln_2");
    parts.feed == Feed::experts ? void(mixture_.emplace(to_)) : void(mlp_.emplace(to_));
    a_ = to_.own_activation("ln_1", c), h_ = to_.own_activation("attention.h", c);
    h_sums_ = to_.partial(h_, "attention.h.partial");
    r_ = to_.own_activation("residual", to_.model.carried());
    b_ = to_.own_activation("ln_2", c), g_ = to_.own_activation("mlp.h", c);
    if (mlp_) g_sums_ = to_.partial(g_, "mlp.h.partial");
  }

  void forward() {
    mixing_1_->forward(x_);
    to_.norm_forward(norm_1_, mixing_1_->mixed(), a_);
    mixer_->forward(to_.gathered(a_, "ln_1.gathered"), h_sums_, false);
    to_.add_up(h_sums_, h_);
    to_.emit(mixing_1_->op(OpKind::add_streams, {x_, h_, mixing_1_->weights()}, {r_}));
    mixing_2_->forward(r_);
    to_.norm_forward(norm_2_, mixing_2_->mixed(), b_);
    if (mixture_) {
      mixture_->forward(b_, g_, "ln_2");
    } else {
      mlp_->forward(to_.gathered(b_, "ln_2.gathered"), g_sums_);
      to_.add_up(g_sums_, g_);
    }
    to_.emit(mixing_2_->op(OpKind::add_streams, {r_, g_, mixing_2_->weights()}, {y_}));
  }
  void backward(TensorId dy, TensorId dx) {
    const TensorId dr = to_.own_activation("d_residual", to_.model.carried());
    half_backward(*mixing_2_, norm_2_, dy, r_, g_, dr, "mlp", [&](TensorId dg, TensorId db) {
      mixture_ ? mixture_->backward(dg, b_, db, "ln_2") : mlp_->backward(dg, b_, db, "ln_2");
    });
    half_backward(*mixing_1_, norm_1_, dr, x_, h_, dx, "attention",
                  [&](TensorId dh, TensorId da) { mixer_->backward(dh, a_, da, "ln_1"); });
  }

 private:
  template <class Through>
  void half_backward(StreamMixing& mixing, const Norm& norm, TensorId dy, TensorId x, TensorId made, TensorId dx,
                     const std::string& name, const Through& through) {
    const std::int64_t c = to_.model.hidden;
    const TensorId beside = to_.own_activation("d_" + name + ".skip", to_.model.carried());
    const TensorId dmade = to_.own_activation("d_" + name + ".made", c);
    const TensorId dnormed = to_.own_activation("d_" + name + ".normed", c);
    const TensorId dmixed = to_.own_activation("d_" + name + ".mixed", c);
    const TensorId dweights = to_.own_activation("d_" + name + ".weights", to_.columns_of(mixing.weights()));
    to_.emit(mixing.op(OpKind::add_streams_grad, {dy, x, made, mixing.weights()}, {beside, dmade, dweights}));
    through(dmade, dnormed);
    to_.norm_backward(norm, dnormed, mixing.mixed(), {}, dmixed);
    mixing.backward(dmixed, dweights, x, beside, dx);
  }

  LinearNotes& to_;
  TensorId x_, y_;
  std::optional<StreamMixing> mixing_1_, mixing_2_;
  Norm norm_1_, norm_2_;
  std::unique_ptr<MixerNotes> mixer_;
  std::optional<Mixture> mixture_;
  std::optional<Mlp> mlp_;
  TensorId a_, h_, h_sums_, r_, b_, g_, g_sums_;
};

inline void streams_block(LinearNotes& to) {
  to.ends(true, true);
  StreamsBlock block(to, to.program.x, to.program.y);
  to.begin(to.program.forward);
  block.forward();
  to.begin(to.program.backward);
  block.backward(to.program.dy, to.program.dx);
}

/// Each stream begins as the token.
[[nodiscard]] inline Op begin_streams(const LinearNotes& to, bool backward, TensorId from, TensorId into) {
  Op o = to.own_op(backward ? OpKind::mix_streams : OpKind::add_streams, backward ? Tensors{from} : Tensors{{}, from},
                   {into}, to.model.hidden);
  o.k = to.model.streams.count;
  return o;
}

}  // namespace orrery::models
