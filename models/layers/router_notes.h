#pragma once
/// The router of a mixture of experts: which experts each row goes to, and with which weight. Private to models/; see
/// mixture_notes.h.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"
#include "models/layers/mixture_sizes.h"

namespace orrery::models {

class Router {
 public:
  /// `at`: before the names of its parameters.
  Router(LinearNotes& to, const MixtureSizes& sizes, const std::string& at) : to_(to), sizes_(sizes) {
    const Experts& e = to_.model.experts;
    linear_ = {.in = to_.model.hidden, .out = e.count, .rows = sizes_.routed};
    const auto routing = [&](Tensor t) {
      t.partial_gradient = sizes_.own_routes && to_.sharded;
      return to_.parameter(std::move(t));
    };
    std::tie(linear_.weight, linear_.weight_gradient) =
        routing(to_.matrix(at + "router.weight", e.count, to_.model.hidden, -1, to_.model.initial_stddev));
    if (e.router_bias)
      std::tie(linear_.bias, linear_.bias_gradient) = routing(to_.vector(at + "router.bias", e.count, -1, 0));
    if (e.own_router_norm) {
      std::tie(norm_.weight, norm_.weight_gradient) =
          to_.parameter(to_.by_rows(to_.vector(at + "router.norm.weight", to_.model.hidden, -1, 1)));
      norm_.rstd = to_.rows("router.norm.rstd", to_.own_rows);
      normed_ = to_.own_activation("router.normed", to_.model.hidden);
      std::tie(scales_, scales_gradient_) = routing(to_.vector(at + "router.scale", e.count, -1, 1));
      linear_.scale = 1 / std::sqrt(static_cast<double>(to_.model.hidden));
    }
    if (e.balance_bias) balance_ = to_.role("router.balance", TensorRole::balance, {e.count}, DType::fp32);
  }
  /// What it makes, after the parameters of the whole mixture.
  void make_choices() {
    const std::int64_t n = sizes_.routed, count = to_.model.experts.count, k = to_.model.experts.chosen;
    logits_ = to_.activation("router.logits", {n, count}, DType::fp32);
    scores_ = to_.activation("router.scores", {n, count}, DType::fp32);
    choice_ = to_.activation("router.choice", {n, k}, DType::int32);
    weights_ = to_.activation("router.weights", {n, k}, DType::fp32);
    if (scales_.exists()) scaled_ = to_.activation("router.weights.scaled", {n, k}, DType::fp32);
  }

  [[nodiscard]] TensorId choice() const { return choice_; }
  [[nodiscard]] TensorId weights() const { return scaled_ ? scaled_ : weights_; }

  /// Whether it has a norm of its own, and reads what that makes of the residual.
  [[nodiscard]] bool has_norm() const { return norm_.any(); }
  /// This rank's own rows of that, from those of the residual.
  TensorId normed(TensorId residual) {
    to_.norm_forward(norm_, residual, normed_);
    return normed_;
  }
  [[nodiscard]] TensorId normed() const { return normed_; }
  /// From its gradient to that of the residual, with `addend`.
  void norm_backward(TensorId dnormed, TensorId residual, TensorId addend, TensorId dresidual) {
    to_.norm_backward(norm_, dnormed, residual, addend, dresidual);
  }

  // From x to choice and weights.
  void forward(TensorId x) {
    const std::int64_t count = to_.model.experts.count;
    Op logits = to_.op(OpKind::matmul, {x, linear_.weight, linear_.bias}, {logits_}, 0);
    logits.m = sizes_.routed, logits.n = count, logits.k = linear_.in, logits.trans_b = true;
    logits.scale = linear_.scale;
    to_.emit(logits);
    to_.emit(routing_op(OpKind::route, {logits_, balance_}, {scores_, choice_, weights_}));
    if (scaled_.exists()) to_.emit(routing_op(OpKind::scale_choices, {weights_, choice_, scales_}, {scaled_}));
    const TensorId tally = to_.role("router.tally", TensorRole::tally, {2 * count + 1}, DType::fp32);
    to_.emit(routing_op(OpKind::count_choices, {logits_, choice_}, {tally}));
  }
  // From the gradient of the weights; adds to dx, or writes it where nothing else does (`alone`).
  void backward(TensorId dweights, TensorId x, TensorId dx, bool alone) {
    const Experts& e = to_.model.experts;
    const TensorId dlogits = to_.activation("d_router.logits", {sizes_.routed, e.count}, DType::fp32);
    if (scaled_.exists()) {
      const TensorId dscaled =
          std::exchange(dweights, to_.activation("d_router.weights.before", {sizes_.routed, e.chosen}, DType::fp32));
      to_.emit(routing_op(OpKind::scale_choices_grad, {dscaled, weights_, choice_, scales_},
                          {dweights, to_.sum_or_none(scales_, scales_gradient_)}));
    }
    Tensors in = {dweights, logits_, scores_, choice_, weights_};
    if (e.aux_coefficient > 0) in.push_back(to_.role("router.load", TensorRole::load, {e.count}, DType::fp32));
    to_.emit(routing_op(OpKind::route_grad, in, {dlogits}));
    product_backward(dlogits, x, dx, alone);
  }

  Op routing_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    const Experts& e = to_.model.experts;
    Op o = to_.op(kind, in, out, e.count);
    o.n = sizes_.routed;
    o.chosen = e.chosen;
    o.routing = {.scores = e.scores,
                 .normalised = e.normalised,
                 .weight_scale = e.weight_scale * to_.model.residual_scale,
                 .groups = static_cast<std::int32_t>(e.groups),
                 .groups_chosen = static_cast<std::int32_t>(e.groups_chosen),
                 .groups_by_two = e.groups_by_two,
                 .aux = e.aux_coefficient,
                 .z = e.z_coefficient,
                 .token_limit = token_limit(e, to_.options.sequence * to_.options.context)};
    o.scale = 1 / (static_cast<double>(to_.options.global_tokens) *
                   static_cast<double>(to_.model.expert_layers(to_.model.blocks())));
    return o;
  }

 private:
  // dW += dlogits^T x; dx += dlogits W, to which each of several ranks that route the same rows adds its share.
  void product_backward(TensorId dlogits, TensorId x, TensorId dx, bool alone) {
    const std::int64_t experts = to_.model.experts.count;
    if (linear_.bias_gradient.exists()) to_.bias_backward(linear_, dlogits);
    Op weight = to_.op(OpKind::matmul, {dlogits, x, {}}, {linear_.weight_gradient}, 0);
    weight.m = experts, weight.n = to_.model.hidden, weight.k = sizes_.routed;
    weight.trans_a = true;
    weight.accumulate = true;
    weight.scale = linear_.scale;
    to_.emit(weight);
    TensorId share = dlogits;
    if (!sizes_.own_routes && sizes_.ways > 1) {
      share = to_.activation("d_router.share", {sizes_.routed, experts}, DType::fp32);
      Op zero = to_.op(OpKind::fill_zero, {}, {share}, sizes_.routed * experts);
      zero.dtype = DType::fp32;
      to_.emit(zero);
      Op scaled = to_.op(OpKind::add_scaled, {dlogits}, {share}, sizes_.routed * experts);
      scaled.dtype = DType::fp32;
      scaled.scale = 1.0 / static_cast<double>(sizes_.ways);
      to_.emit(scaled);
    }
    Op input = to_.op(OpKind::matmul, {share, linear_.weight, {}}, {dx}, 0);
    input.m = sizes_.routed, input.n = to_.model.hidden, input.k = experts;
    input.accumulate = !alone;
    input.scale = linear_.scale;
    to_.emit(input);
  }

  LinearNotes& to_;
  MixtureSizes sizes_;
  Linear linear_;
  Norm norm_;  ///< where it has one of its own
  TensorId normed_;
  TensorId scales_, scales_gradient_, scaled_;   ///< (E), and the weights times them
  TensorId balance_;                             ///< used for the choice alone
  TensorId logits_, scores_, choice_, weights_;  ///< of the rows that this rank routes
};

}  // namespace orrery::models
