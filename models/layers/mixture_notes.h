#pragma once
/// A layer's mixture of experts, in place of its MLP (GShard, Lepikhin et al. 2020; Switch, Fedus et al. 2022). Private
/// to models/; see expand.cpp.
///
/// The router's logits choose k experts for each token (models/layers/router_notes.h). Rows travel in slots to the
/// ranks that have these experts (models/layers/token_travel.h), where each expert's products run on its rows
/// (models/layers/expert_products.h). The results return the same way and are summed, weighted by the router. Backward
/// sends gradients along the same ways. With tensor parallelism every rank of a tensor group routes all rows alike and
/// has a part of each expert's columns; sums are taken after the rows are back. If experts are split over other ranks,
/// each routes its own rows; those that split an expert gather rows and choices of one another before they send them,
/// and scatter the sums. Experts may work on narrower copies of the tokens, which then travel in their place
/// (models/layers/narrow_notes.h).
#include <optional>
#include <string>
#include <utility>

#include "models/layers/expert_products.h"
#include "models/layers/narrow_notes.h"
#include "models/layers/router_notes.h"
#include "models/layers/shared_expert_notes.h"

namespace orrery::models {

class Mixture {
 public:
  explicit Mixture(LinearNotes& to)
      : to_(to),
        sizes_(mixture_sizes(to.model.experts, to.options, to.all_rows, to.own_rows)),
        travel_(to, sizes_),
        router_(to, sizes_, to.prefix() + "mlp."),
        products_(to, sizes_, travel_, to.prefix() + "mlp.") {
    const std::int64_t c = travel_.columns(), k = to_.model.experts.chosen;
    if (to_.model.experts.narrow > 0) narrow_.emplace(to_, sizes_, to_.prefix() + "mlp.");
    router_.make_choices();
    const auto of_all_rows = [&](const char* name, DType type) {
      return to_.activation(name, {sizes_.tokens, k}, type);
    };
    all_choices_ = sizes_.gathers() ? of_all_rows("router.all_choices", DType::int32) : router_.choice();
    all_weights_ = sizes_.gathers() ? of_all_rows("router.all_weights", DType::fp32) : router_.weights();
    place_ = of_all_rows("router.place", DType::int32);
    const auto counts = [&](const char* name) {
      return to_.activation(name, {to_.options.expert, sizes_.local}, DType::int32);
    };
    sent_ = counts("experts.sent");
    received_ = travel_.apart() ? counts("experts.received") : sent_;
    rows_ = travel_.slots("experts.rows", c);
    arrived_ = travel_.moves(to_.options.dispatch) ? travel_.slots("experts.arrived", c) : rows_;
    products_.make_values(received_);
    made_ = travel_.slots("experts.made", c);
    back_ = travel_.moves(to_.options.combine) ? travel_.slots("experts.back", c) : made_;
    if (to_.model.experts.shared > 0) shared_.emplace(to_, sizes_.own_routes, to_.prefix() + "mlp.");
  }

  [[nodiscard]] Router& router() { return router_; }

  /// y = the mixture of x, both of this rank's own rows, summed over the tensor group. The router reads `routed`, or x.
  void forward(TensorId x, TensorId y, const std::string& name, TensorId routed = {}) {
    if (!sizes_.own_routes) {
      const TensorId all = to_.gathered(x, name + ".gathered"), sums = to_.partial(y, "mlp.h.partial");
      routed_forward(all, routed ? to_.gathered(routed, "router.gathered") : all, sums);
      if (shared_) shared_->forward(all, sums, true);
      return to_.add_up(sums, y);
    }
    routed_forward(x, routed ? routed : x, y);
    if (!shared_) return;
    if (!to_.sharded) return shared_->forward(x, y, true);
    const TensorId all = to_.gathered(x, name + ".gathered"), sums = to_.partial(y, "shared.partial");
    const TensorId own = to_.own_activation("shared.own", to_.model.hidden);
    shared_->forward(all, sums, false);
    to_.add_up(sums, own);
    to_.emit(to_.own_op(OpKind::add, {y, own}, {y}, to_.model.hidden));
  }

  /// From dy to dx, which gets the name `name`; both of this rank's own rows. With `routed` also to its gradient.
  void backward(TensorId dy, TensorId x, TensorId dx, const std::string& name, TensorId routed = {},
                TensorId drouted = {}) {
    if (!sizes_.own_routes) {
      const TensorId dh = to_.gathered(dy, "d_mlp.h"), all = to_.gathered(x, name + ".gathered_again");
      const TensorId sums = to_.partial(dx, "d_" + name + ".partial");
      const TensorId routed_sums = routed ? to_.partial(drouted, "d_router.partial") : sums;
      routed_backward(dh, all, sums, routed ? to_.gathered(routed, "router.gathered_again") : all, routed_sums);
      if (shared_) shared_->backward(dh, all, sums, true);
      if (routed.exists()) to_.add_up(routed_sums, drouted);
      return to_.add_up(sums, dx);
    }
    routed_backward(dy, x, dx, routed ? routed : x, routed ? drouted : dx);
    if (!shared_) return;
    if (!to_.sharded) return shared_->backward(dy, x, dx, true);
    const TensorId dh = to_.gathered(dy, "d_mlp.h"), all = to_.gathered(x, name + ".gathered_again");
    const TensorId sums = to_.partial(dx, "d_shared.partial");
    const TensorId own = to_.own_activation("d_shared.own", to_.model.hidden);
    shared_->backward(dh, all, sums, false);
    to_.add_up(sums, own);
    to_.emit(to_.own_op(OpKind::add, {dx, own}, {dx}, to_.model.hidden));
  }

 private:
  // h, from the rows of x. Where the tensor group splits experts, x are all its rows and h is partial.
  void routed_forward(TensorId x, TensorId routed, TensorId h) {
    router_.forward(routed);
    if (narrow_) narrow_->narrow(x);
    const TensorId made = narrow_ ? narrow_->sums() : h;
    const TensorId all = travel_.of_all(narrow_ ? narrow_->copies() : x, "experts.x");
    const TensorId sums = travel_.sums_of_all(made, "experts.sums");
    if (sizes_.gathers()) {
      travel_.among_experts(GroupCollective::all_gather, router_.choice(), all_choices_);
      travel_.among_experts(GroupCollective::all_gather, router_.weights(), all_weights_);
    }
    Op places = router_.routing_op(OpKind::place_rows, {all_choices_}, {place_, sent_});
    places.n = sizes_.tokens;
    to_.emit(travel_.slot_op(std::move(places)));
    to_.emit(travel_.row_op(OpKind::dispatch, {all, place_, weights_at(Scaled::input)}, {rows_}));
    travel_.exchange_counts(sent_, received_);
    travel_.exchange_rows(rows_, arrived_, sent_, received_, to_.options.dispatch);
    products_.forward(arrived_, made_);
    travel_.exchange_rows(made_, back_, received_, sent_, to_.options.combine);
    to_.emit(travel_.row_op(OpKind::combine, {back_, place_, weights_at(Scaled::output)}, {sums}));
    travel_.scatter(sums, made);
    if (narrow_) narrow_->widen(h);
  }

  // From dh to dx, both of the rows of x, and to the gradient of what the router read.
  void routed_backward(TensorId dh, TensorId x, TensorId dx, TensorId routed, TensorId drouted) {
    const std::int64_t c = travel_.columns();
    const bool scales_input = to_.model.experts.scales_input;
    // Gradients of the experts' results, and of the weights.
    const TensorId dback = travel_.slots("d_experts.back", c);
    const TensorId dmade = travel_.moves(to_.options.dispatch) ? travel_.slots("d_experts.made", c) : dback;
    const TensorId dweights =
        to_.activation("d_router.weights", {sizes_.routed, to_.model.experts.chosen}, DType::fp32);
    const TensorId all_dweights = travel_.sums_of_all(dweights, "d_router.all_weights");
    const TensorId dcopies = narrow_ ? narrow_->of_rows("d_experts.copies") : dx;
    const TensorId all_dh = travel_.of_all(narrow_ ? narrow_->widen_backward(dh) : dh, "d_experts.y");
    const TensorId sums = travel_.sums_of_all(dcopies, "d_experts.sums");
    to_.emit(travel_.row_op(OpKind::dispatch, {all_dh, place_, weights_at(Scaled::output)}, {dback}));
    if (!scales_input) to_.emit(travel_.row_op(OpKind::combine_weight_grad, {all_dh, back_, place_}, {all_dweights}));
    travel_.exchange_rows(dback, dmade, sent_, received_, to_.options.dispatch);
    const TensorId dbefore = products_.down_backward(dmade);
    const TensorId darrived = travel_.slots("d_experts.arrived", c);
    const TensorId drows = travel_.moves(to_.options.combine) ? travel_.slots("d_experts.rows", c) : darrived;
    products_.first_backward(arrived_, dbefore, darrived);
    travel_.exchange_rows(darrived, drows, received_, sent_, to_.options.combine);
    to_.emit(travel_.row_op(OpKind::combine, {drows, place_, weights_at(Scaled::input)}, {sums}));
    if (scales_input) {
      const TensorId all = travel_.of_all(x, "experts.x.gathered_again");
      to_.emit(travel_.row_op(OpKind::combine_weight_grad, {all, drows, place_}, {all_dweights}));
    }
    // Each of the ranks that split an expert has only the products of its own columns.
    travel_.scatter(all_dweights, dweights);
    if (!sizes_.own_routes) to_.all_reduce(dweights);
    travel_.scatter(sums, dcopies);
    if (narrow_) narrow_->narrow_backward(dcopies, x, dx);
    router_.backward(dweights, routed, drouted, drouted != dx);
  }

  // The router's weights, if they scale the experts' input, or their output; none otherwise.
  enum class Scaled { input, output };
  [[nodiscard]] TensorId weights_at(Scaled end) const {
    return (end == Scaled::input) == to_.model.experts.scales_input ? all_weights_ : TensorId();
  }

  LinearNotes& to_;
  MixtureSizes sizes_;
  TokenTravel travel_;
  Router router_;
  ExpertProducts products_;
  std::optional<NarrowCopies> narrow_;  ///< where experts work on narrower copies
  std::optional<SharedExperts> shared_;
  TensorId all_choices_, all_weights_;  ///< of the rows that this rank sends
  TensorId place_, sent_, received_;
  TensorId rows_, arrived_;  ///< what is sent, and what arrives at the experts
  TensorId made_, back_;     ///< the experts' results, and where these come back
};

}  // namespace orrery::models
