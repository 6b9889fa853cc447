#pragma once
/// A layer's mixture of experts, in place of its MLP (GShard, Lepikhin et al. 2020; Switch, Fedus et al. 2022). Private
/// to models/; see expand.cpp.
///
/// The router's logits choose k experts for each token. Rows are sent in slots, one per rank of the expert group
/// (models/operators/op.h), to the ranks that have these experts: first an all-to-all of counts, then one of rows.
/// There each expert's products run on its rows. The results return the same way and are summed, weighted by the
/// router. Backward sends gradients along the same ways. With tensor parallelism every rank of a tensor group routes
/// all rows alike and has a part of each expert's columns; sums are taken after the rows are back. If experts are split
/// over other ranks, each routes its own rows; those that split an expert gather rows and choices of one another before
/// they send them, and scatter the sums.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "models/layers/expert_slots.h"
#include "models/layers/state_space_notes.h"

namespace orrery::models {

class ExpertNotes : protected StateSpaceNotes {
 protected:
  using StateSpaceNotes::StateSpaceNotes;

  /// A mixture's tensors and sizes; make_mixture fills it in.
  struct Mixture {
    Linear router, shared_up, shared_down;
    TensorId balance;                            ///< used for the choice alone
    TensorId shared_gate, shared_gate_gradient;  ///< (1,C)
    TensorId first, first_gradient;              ///< (experts*F,C): gate, or the only first product
    TensorId second, second_gradient;            ///< up, if experts are gated
    TensorId down, down_gradient;                ///< (experts*C,F)
    /// Biases of these products, (experts*F), (experts*F), (experts*C), and their gradients.
    TensorId first_bias, second_bias, down_bias;
    TensorId first_bias_gradient, second_bias_gradient, down_bias_gradient;
    TensorId logits, scores, choice, weights;  ///< of the rows that this rank routes
    TensorId all_choices, all_weights;         ///< of those that it sends
    TensorId place, sent, received;
    TensorId rows, arrived;  ///< what is sent, and what arrives at the experts
    TensorId before, after;  ///< before and after their activation
    TensorId made, back;     ///< the experts' results, and where these come back
    TensorId shared_before, shared_after, shared_out, shared_scale, shared_gated;
    std::int64_t ways = 1;                ///< ranks that split an expert
    std::int64_t routed = 0, tokens = 0;  ///< rows that this rank routes, and those that it sends
    std::int64_t local = 0, width = 0, capacity = 0, shared_width = 0;  ///< experts per rank, their F, rows per slot
    double expected = 1;
  };

  Mixture make_mixture(double residual_stddev) {
    const Experts& e = model_.experts;
    const std::int64_t c = model_.hidden;
    const bool gated = traits_of(model_.activation).gated;
    const std::string at = "h." + std::to_string(layer_) + ".mlp.";
    Mixture m;
    m.local = e.count / options_.expert;
    m.ways = options_.expert_ways > 0 ? options_.expert_ways : options_.tensor;
    m.routed = own_routes() ? own_rows_ : n_;
    m.tokens = own_routes() ? own_rows_ * m.ways : n_;
    m.width = e.hidden / m.ways;
    size_slots(m);
    m.router = {.in = c, .out = e.count, .rows = m.routed};
    const auto routing = [&](Tensor t) {
      t.partial_gradient = own_routes() && sharded_;
      return parameter(std::move(t));
    };
    std::tie(m.router.weight, m.router.weight_gradient) =
        routing(matrix(at + "router.weight", e.count, c, -1, model_.initial_stddev));
    if (e.router_bias)
      std::tie(m.router.bias, m.router.bias_gradient) = routing(vector(at + "router.bias", e.count, -1, 0));
    if (e.balance_bias) m.balance = role("router.balance", TensorRole::balance, {e.count}, DType::fp32);
    const auto stacked = [&](const char* name, std::int64_t rows, std::int64_t columns, int axis, double stddev) {
      std::vector<Tensor> pieces;
      pieces.reserve(static_cast<std::size_t>(m.local));
      for (std::int64_t i = 0; i < m.local; ++i) {
        pieces.push_back(
            matrix(at + "experts." + std::to_string(i) + "." + name, rows, columns, split(m, axis), stddev, m.ways));
        pieces.back().expert = i;
      }
      Tensor all = fused(at + "experts." + name, std::move(pieces));
      all.expert = 0;
      return parameter(std::move(all));
    };
    std::tie(m.first, m.first_gradient) =
        stacked(gated ? "gate.weight" : "fc.weight", e.hidden, c, 0, model_.initial_stddev);
    if (gated) std::tie(m.second, m.second_gradient) = stacked("up.weight", e.hidden, c, 0, model_.initial_stddev);
    std::tie(m.down, m.down_gradient) = stacked("proj.weight", c, e.hidden, 1, residual_stddev);
    if (e.expert_bias) make_biases(m, at);
    const std::int64_t n = m.routed, k = e.chosen, rows = options_.expert * m.capacity;
    m.logits = activation("router.logits", {n, e.count}, DType::fp32);
    m.scores = activation("router.scores", {n, e.count}, DType::fp32);
    m.choice = activation("router.choice", {n, k}, DType::int32);
    m.weights = activation("router.weights", {n, k}, DType::fp32);
    m.all_choices = gathers(m) ? activation("router.all_choices", {m.tokens, k}, DType::int32) : m.choice;
    m.all_weights = gathers(m) ? activation("router.all_weights", {m.tokens, k}, DType::fp32) : m.weights;
    m.place = activation("router.place", {m.tokens, k}, DType::int32);
    m.sent = activation("experts.sent", {options_.expert, m.local}, DType::int32);
    m.received = apart() ? activation("experts.received", {options_.expert, m.local}, DType::int32) : m.sent;
    m.rows = activation("experts.rows", {rows, c}, options_.dtype);
    m.arrived = moves(options_.dispatch) ? activation("experts.arrived", {rows, c}, options_.dtype) : m.rows;
    m.after = activation("experts.after", {rows, m.width}, options_.dtype);
    m.before = rectifies() ? m.after : activation("experts.before", {rows, (gated ? 2 : 1) * m.width}, options_.dtype);
    m.made = activation("experts.made", {rows, c}, options_.dtype);
    m.back = moves(options_.combine) ? activation("experts.back", {rows, c}, options_.dtype) : m.made;
    if (e.shared > 0) make_shared(m, at, residual_stddev);
    return m;
  }

  /// y = the mixture of x, both of this rank's own rows, summed over the tensor group.
  void mixture_forward(const Mixture& m, TensorId x, TensorId y, const std::string& name) {
    const Experts& e = model_.experts;
    if (!own_routes()) {
      const TensorId all = gathered(x, name + ".gathered"), sums = partial(y, "mlp.h.partial");
      routed_forward(m, all, sums);
      if (e.shared > 0) shared_forward(m, all, sums, true);
      return add_up(sums, y);
    }
    routed_forward(m, x, y);
    if (e.shared == 0) return;
    if (!sharded_) return shared_forward(m, x, y, true);
    const TensorId all = gathered(x, name + ".gathered"), sums = partial(y, "shared.partial");
    const TensorId own = own_activation("shared.own", model_.hidden);
    shared_forward(m, all, sums, false);
    add_up(sums, own);
    emit(own_op(OpKind::add, {y, own}, {y}, model_.hidden));
  }

  /// From dy to dx, which gets the name `name`; both of this rank's own rows.
  void mixture_backward(const Mixture& m, TensorId dy, TensorId x, TensorId dx, const std::string& name) {
    const bool shared = model_.experts.shared > 0;
    if (!own_routes()) {
      const TensorId dh = gathered(dy, "d_mlp.h"), all = gathered(x, name + ".gathered_again");
      const TensorId sums = partial(dx, "d_" + name + ".partial");
      routed_backward(m, dh, all, sums);
      if (shared) shared_backward(m, dh, all, sums, true);
      return add_up(sums, dx);
    }
    routed_backward(m, dy, x, dx);
    if (!shared) return;
    if (!sharded_) return shared_backward(m, dy, x, dx, true);
    const TensorId dh = gathered(dy, "d_mlp.h"), all = gathered(x, name + ".gathered_again");
    const TensorId sums = partial(dx, "d_shared.partial"), own = own_activation("d_shared.own", model_.hidden);
    shared_backward(m, dh, all, sums, false);
    add_up(sums, own);
    emit(own_op(OpKind::add, {dx, own}, {dx}, model_.hidden));
  }

 private:
  void make_biases(Mixture& m, const std::string& at) {
    const Experts& e = model_.experts;
    const bool gated = traits_of(model_.activation).gated;
    const auto stacked = [&](const char* name, std::int64_t size, int axis) {
      std::vector<Tensor> pieces;
      for (std::int64_t i = 0; i < m.local; ++i) {
        pieces.push_back(vector(at + "experts." + std::to_string(i) + "." + name, size, split(m, axis), 0, m.ways));
        pieces.back().expert = i;
      }
      Tensor all = fused(at + "experts." + name, std::move(pieces));
      all.expert = 0;
      return parameter(std::move(all));
    };
    std::tie(m.first_bias, m.first_bias_gradient) = stacked(gated ? "gate.bias" : "fc.bias", e.hidden, 0);
    if (gated) std::tie(m.second_bias, m.second_bias_gradient) = stacked("up.bias", e.hidden, 0);
    std::tie(m.down_bias, m.down_bias_gradient) = stacked("proj.bias", model_.hidden, -1);
  }

  // Whether experts are split over other ranks than the tensor group.
  [[nodiscard]] bool own_routes() const { return options_.expert_ways > 0 && options_.expert_ways != options_.tensor; }
  [[nodiscard]] bool gathers(const Mixture& m) const { return own_routes() && m.ways > 1; }
  [[nodiscard]] int split(const Mixture& m, int axis) const { return own_routes() && m.ways == 1 ? -1 : axis; }
  void among_experts(GroupCollective collective, TensorId source, TensorId target) {
    communicate(collective, source, target);
    (*current_)[current_->size() - 2].experts = true;
  }
  // The rows `own` of all ranks that split an expert, under the name `name`, if they route different rows; else `own`.
  TensorId of_all(const Mixture& m, TensorId own, const std::string& name) {
    if (!gathers(m)) return own;
    const TensorId all = activation(name, {m.tokens, columns_of(own)}, program_.tensors[own].dtype);
    among_experts(GroupCollective::all_gather, own, all);
    return all;
  }
  // Where sums of such rows are put before they are scattered into `own`.
  TensorId sums_of_all(const Mixture& m, TensorId own, const std::string& name) {
    return gathers(m) ? activation(name, {m.tokens, columns_of(own)}, program_.tensors[own].dtype) : own;
  }
  void scatter(const Mixture& m, TensorId sums, TensorId own) {
    if (gathers(m)) among_experts(GroupCollective::reduce_scatter, sums, own);
  }

  // h, from the rows of x. Where the tensor group splits experts, x are all its rows and h is partial.
  void routed_forward(const Mixture& m, TensorId x, TensorId h) {
    const Experts& e = model_.experts;
    Op router = op(OpKind::matmul, {x, m.router.weight, m.router.bias}, {m.logits}, 0);
    router.m = m.routed, router.n = e.count, router.k = m.router.in, router.trans_b = true;
    emit(router);
    emit(routing_op(m, OpKind::route, {m.logits, m.balance}, {m.scores, m.choice, m.weights}));
    const TensorId tally = role("router.tally", TensorRole::tally, {2 * e.count + 1}, DType::fp32);
    emit(routing_op(m, OpKind::count_choices, {m.logits, m.choice}, {tally}));
    const TensorId all = of_all(m, x, "experts.x"), sums = sums_of_all(m, h, "experts.sums");
    if (gathers(m)) {
      among_experts(GroupCollective::all_gather, m.choice, m.all_choices);
      among_experts(GroupCollective::all_gather, m.weights, m.all_weights);
    }
    Op places = routing_op(m, OpKind::place_rows, {m.all_choices}, {m.place, m.sent});
    places.n = m.tokens;
    emit(slot_op(m, std::move(places)));
    const TensorId at_input = e.scales_input ? m.all_weights : TensorId();
    emit(slot_op(m, row_op(m, OpKind::dispatch, {all, m.place, at_input}, {m.rows})));
    exchange_counts(m);
    exchange_rows(m, m.rows, m.arrived, m.sent, m.received, options_.dispatch);
    emit(grouped(m, {m.arrived, m.first, m.received}, m.second, m.before, m.width, model_.hidden, true));
    if (e.expert_bias) emit(bias_op(m, {m.before, m.first_bias, m.received}, m.second_bias, m.width));
    Op act = slot_op(m, activation_op(false, {m.before}, m.after, m.width));
    act.in.push_back(operand_of(m.received));
    emit(in_slots(m, std::move(act)));
    emit(grouped(m, {m.after, m.down, m.received}, {}, m.made, model_.hidden, m.width, true));
    if (e.expert_bias) {  // ranks that split an expert each add their share of the bias
      Op bias = bias_op(m, {m.made, m.down_bias, m.received}, {}, model_.hidden);
      bias.scale = 1 / static_cast<double>(m.ways);
      emit(bias);
    }
    exchange_rows(m, m.made, m.back, m.received, m.sent, options_.combine);
    const TensorId at_output = e.scales_input ? TensorId() : m.all_weights;
    emit(slot_op(m, row_op(m, OpKind::combine, {m.back, m.place, at_output}, {sums})));
    scatter(m, sums, h);
  }

  // From dh to dx, both of the rows of x.
  void routed_backward(const Mixture& m, TensorId dh, TensorId x, TensorId dx) {
    const Experts& e = model_.experts;
    const std::int64_t c = model_.hidden, rows = options_.expert * m.capacity;
    const bool gated = traits_of(model_.activation).gated;
    const auto slots = [&](const char* tensor, std::int64_t columns) {
      return activation(tensor, {rows, columns}, options_.dtype);
    };
    // Gradients of the experts' results, and of the weights.
    const TensorId dback = slots("d_experts.back", c);
    const TensorId dmade = moves(options_.dispatch) ? slots("d_experts.made", c) : dback;
    const TensorId dweights = activation("d_router.weights", {m.routed, e.chosen}, DType::fp32);
    const TensorId all_dweights = sums_of_all(m, dweights, "d_router.all_weights");
    const TensorId all_dh = of_all(m, dh, "d_experts.y"), sums = sums_of_all(m, dx, "d_experts.sums");
    const TensorId at_output = e.scales_input ? TensorId() : m.all_weights;
    emit(slot_op(m, row_op(m, OpKind::dispatch, {all_dh, m.place, at_output}, {dback})));
    if (!e.scales_input)
      emit(slot_op(m, row_op(m, OpKind::combine_weight_grad, {all_dh, m.back, m.place}, {all_dweights})));
    exchange_rows(m, dback, dmade, m.sent, m.received, options_.dispatch);
    const TensorId dafter = slots("d_experts.after", m.width);
    emit(grouped(m, {dmade, m.down, m.received}, {}, dafter, m.width, c, false));
    emit(grouped_gradient(m, dmade, m.after, {m.down_gradient}, c, m.width));
    if (e.expert_bias) emit(bias_gradient_op(m, dmade, {m.down_bias_gradient}, c));
    const TensorId dbefore = gated ? slots("d_experts.before", 2 * m.width) : dafter;
    Op act = slot_op(m, activation_op(true, {dafter, m.before}, dbefore, m.width));
    act.in.push_back(operand_of(m.received));
    emit(in_slots(m, std::move(act)));
    const TensorId darrived = slots("d_experts.arrived", c);
    const TensorId drows = moves(options_.combine) ? slots("d_experts.rows", c) : darrived;
    emit(grouped(m, {dbefore, m.first, m.received}, m.second, darrived, c, m.width, false));
    Tensors gradients = {m.first_gradient};
    if (gated) gradients.push_back(m.second_gradient);
    emit(grouped_gradient(m, dbefore, m.arrived, gradients, m.width, c));
    if (e.expert_bias) {
      Tensors biases = {m.first_bias_gradient};
      if (gated) biases.push_back(m.second_bias_gradient);
      emit(bias_gradient_op(m, dbefore, biases, m.width));
    }
    exchange_rows(m, darrived, drows, m.received, m.sent, options_.combine);
    const TensorId at_input = e.scales_input ? m.all_weights : TensorId();
    emit(slot_op(m, row_op(m, OpKind::combine, {drows, m.place, at_input}, {sums})));
    if (e.scales_input) {
      const TensorId all = of_all(m, x, "experts.x.gathered_again");
      emit(slot_op(m, row_op(m, OpKind::combine_weight_grad, {all, drows, m.place}, {all_dweights})));
    }
    // Each of the ranks that split an expert has only the products of its own columns.
    scatter(m, all_dweights, dweights);
    if (!own_routes()) all_reduce(dweights);
    scatter(m, sums, dx);
    const TensorId dlogits = activation("d_router.logits", {m.routed, e.count}, DType::fp32);
    Tensors in = {dweights, m.logits, m.scores, m.choice, m.weights};
    if (e.aux_coefficient > 0) in.push_back(role("router.load", TensorRole::load, {e.count}, DType::fp32));
    emit(routing_op(m, OpKind::route_grad, in, {dlogits}));
    router_backward(m, dlogits, x, dx);
  }

  [[nodiscard]] bool apart() const { return options_.expert > 1; }
  // Whether rows are rounded on their way. Independent of where experts are, so that placement does not change results.
  [[nodiscard]] bool rounds_rows(TokenCodec codec) const {
    return codec != TokenCodec::none && dtype_of(codec) != options_.dtype;
  }
  [[nodiscard]] bool moves(TokenCodec codec) const { return apart() || rounds_rows(codec); }

  // Slots of several ranks hold as many rows as the bound allows, and never more than can arrive.
  void size_slots(Mixture& m) const {
    constexpr std::int64_t kLeast = 64;  // small batches need no bound
    const ExpertSlot slot = expert_slot(model_.experts, {m.tokens, options_.batch, whole_sequence(), options_.expert});
    const auto bounded = static_cast<std::int64_t>(std::ceil(options_.expert_bound * slot.balanced)) + kLeast;
    m.capacity = apart() ? std::min(slot.most, bounded) : slot.most;
    m.expected = std::min(1.0, options_.imbalance * slot.balanced / static_cast<double>(m.capacity));
  }
  [[nodiscard]] std::int64_t whole_sequence() const { return options_.sequence * options_.context; }

  Op routing_op(const Mixture& m, OpKind kind, const Tensors& in, const Tensors& out) const {
    const Experts& e = model_.experts;
    Op o = op(kind, in, out, e.count);
    o.n = m.routed;
    o.chosen = e.chosen;
    o.routing = {.scores = e.scores,
                 .normalised = e.normalised,
                 .weight_scale = e.weight_scale,
                 .groups = static_cast<std::int32_t>(e.groups),
                 .groups_chosen = static_cast<std::int32_t>(e.groups_chosen),
                 .groups_by_two = e.groups_by_two,
                 .aux = e.aux_coefficient,
                 .z = e.z_coefficient,
                 .token_limit = token_limit(e, whole_sequence())};
    o.scale =
        1 / (static_cast<double>(options_.global_tokens) * static_cast<double>(model_.expert_layers(model_.blocks())));
    return o;
  }
  // Operators between tokens and slots work on n rows of tokens.
  Op row_op(const Mixture& m, OpKind kind, Tensors in, const Tensors& out) const {
    while (!in.back().exists()) in.pop_back();
    Op o = op(kind, in, out, model_.hidden);
    o.n = m.tokens;
    o.chosen = model_.experts.chosen;
    return o;
  }
  Op slot_op(const Mixture& m, Op o) const {
    o.slots = options_.expert;
    o.experts = m.local;
    o.capacity = m.capacity;
    return o;
  }
  Op in_slots(const Mixture& m, Op o) const {
    o.n = options_.expert * m.capacity;
    o.expected = m.expected;
    return o;
  }
  Op grouped(const Mixture& m, Tensors in, TensorId second, TensorId out, std::int64_t n, std::int64_t k,
             bool transposed) const {
    if (second.exists()) in.push_back(second);
    Op o = in_slots(m, slot_op(m, op(OpKind::grouped_matmul, in, {out}, 0)));
    o.m = o.n, o.n = n, o.k = k;
    o.trans_b = transposed;
    o.rounded = rounds(n, k);
    o.four_bits = o.rounded && options_.products == DType::fp4;
    return o;
  }
  Op grouped_gradient(const Mixture& m, TensorId dy, TensorId x, const Tensors& out, std::int64_t rows,
                      std::int64_t columns) const {
    Op o = in_slots(m, slot_op(m, op(OpKind::grouped_weight_grad, {dy, x, m.received}, out, rows)));
    o.n = columns;
    o.accumulate = true;
    o.rounded = rounds(rows, columns);
    o.four_bits = o.rounded && options_.products == DType::fp4;
    return o;
  }
  Op bias_op(const Mixture& m, Tensors in, TensorId second, std::int64_t columns) const {
    const TensorId rows = in.front();
    if (second.exists()) in.push_back(second);
    return in_slots(m, slot_op(m, op(OpKind::expert_bias, in, {rows}, columns)));
  }
  Op bias_gradient_op(const Mixture& m, TensorId dy, const Tensors& out, std::int64_t columns) const {
    return in_slots(m, slot_op(m, op(OpKind::expert_bias_grad, {dy, m.received}, out, columns)));
  }
  // As for other products of blocks. The number of tokens always fits, since it is padded.
  [[nodiscard]] bool rounds(std::int64_t n, std::int64_t k) const {
    const bool narrow = options_.products == DType::fp8 || options_.products == DType::fp4;
    return options_.products == DType::tf32 || (narrow && fits_fp8(n, n, k));
  }

  void exchange_counts(const Mixture& m) {
    if (!apart()) return;
    communicate(GroupCollective::all_to_all, m.sent, m.received);
  }
  void exchange_rows(const Mixture& m, TensorId source, TensorId target, TensorId sent, TensorId received,
                     TokenCodec codec) {
    if (!rounds_rows(codec)) return send_rows(m, source, target, sent, received);
    const std::int64_t rows = options_.expert * m.capacity, width = elements_of_row(codec, model_.hidden);
    const std::string name = program_.tensors[source].name;
    const TensorId encoded = activation(name + ".encoded", {rows, width}, dtype_of(codec));
    const TensorId came = apart() ? activation(name + ".encoded.received", {rows, width}, dtype_of(codec)) : encoded;
    emit(codec_op(m, OpKind::encode_rows, {source, sent}, encoded, codec));
    send_rows(m, encoded, came, sent, received);
    emit(codec_op(m, OpKind::decode_rows, {came, received}, target, codec));
  }
  Op codec_op(const Mixture& m, OpKind kind, const Tensors& in, TensorId out, TokenCodec codec) const {
    Op o = in_slots(m, slot_op(m, op(kind, in, {out}, model_.hidden)));
    o.k = elements_of_row(codec, model_.hidden);
    o.codec = codec;
    return o;
  }
  void send_rows(const Mixture& m, TensorId source, TensorId target, TensorId sent, TensorId received) {
    if (!apart()) return;
    communicate(GroupCollective::all_to_all, source, target);
    Part& part = (*current_)[current_->size() - 2];
    part.sent = sent;
    part.received = received;
    part.expected = m.expected;
  }

  // dW += dlogits^T x; dx += dlogits W, to which each of several ranks that route the same rows adds its share.
  void router_backward(const Mixture& m, TensorId dlogits, TensorId x, TensorId dx) {
    const std::int64_t experts = model_.experts.count;
    if (m.router.bias_gradient.exists()) bias_backward(m.router, dlogits);
    Op weight = op(OpKind::matmul, {dlogits, x, {}}, {m.router.weight_gradient}, 0);
    weight.m = experts, weight.n = model_.hidden, weight.k = m.routed;
    weight.trans_a = true;
    weight.accumulate = true;
    emit(weight);
    TensorId share = dlogits;
    if (!own_routes() && m.ways > 1) {
      share = activation("d_router.share", {m.routed, experts}, DType::fp32);
      Op zero = op(OpKind::fill_zero, {}, {share}, m.routed * experts);
      zero.dtype = DType::fp32;
      emit(zero);
      Op scaled = op(OpKind::add_scaled, {dlogits}, {share}, m.routed * experts);
      scaled.dtype = DType::fp32;
      scaled.scale = 1.0 / static_cast<double>(m.ways);
      emit(scaled);
    }
    Op input = op(OpKind::matmul, {share, m.router.weight, {}}, {dx}, 0);
    input.m = m.routed, input.n = model_.hidden, input.k = experts;
    input.accumulate = true;
    emit(input);
  }

  // -- experts that every token takes --------------------------------------------------------------------------
  void make_shared(Mixture& m, const std::string& at, double residual_stddev) {
    const Experts& e = model_.experts;
    const std::int64_t c = model_.hidden;
    const bool gated = traits_of(model_.activation).gated;
    m.shared_width = e.shared / options_.tensor;
    m.shared_up = {.in = c, .out = (gated ? 2 : 1) * m.shared_width, .rows = n_};
    const Tensor fc =
        matrix(at + (gated ? "shared.gate.weight" : "shared.fc.weight"), e.shared, c, 0, model_.initial_stddev);
    std::tie(m.shared_up.weight, m.shared_up.weight_gradient) =
        parameter(gated ? fused(at + "shared.gate_up.weight",
                                {fc, matrix(at + "shared.up.weight", e.shared, c, 0, model_.initial_stddev)})
                        : fc);
    m.shared_down = {.in = m.shared_width, .out = c, .rows = n_};
    std::tie(m.shared_down.weight, m.shared_down.weight_gradient) =
        parameter(matrix(at + "shared.proj.weight", c, e.shared, 1, residual_stddev));
    m.shared_after = activation("shared.after", m.shared_width);
    m.shared_before = rectifies() ? m.shared_after : activation("shared.before", m.shared_up.out);
    const bool apart = own_routes() && sharded_;  // summed over the tensor group beside the routed experts
    if (e.shared_gate || !apart) m.shared_out = activation("shared.out", c);
    if (!e.shared_gate) return;
    std::tie(m.shared_gate, m.shared_gate_gradient) =
        parameter(matrix(at + "shared_gate.weight", 1, c, -1, model_.initial_stddev));
    m.shared_scale = rows("shared.scale", n_);
    m.shared_gated = apart ? TensorId() : activation("shared.gated", c);
  }

  // `adds`: adds to h instead of writing it.
  void shared_forward(const Mixture& m, TensorId x, TensorId h, bool adds) {
    const std::int64_t c = model_.hidden;
    linear_forward(m.shared_up, x, m.shared_before, false);
    emit(activation_op(false, {m.shared_before}, m.shared_after, m.shared_width));
    const bool alone = !adds && !m.shared_gate.exists();
    linear_forward(m.shared_down, m.shared_after, alone ? h : m.shared_out, false);
    TensorId out = m.shared_out;
    if (m.shared_gate.exists()) {
      Op scale = op(OpKind::matmul, {x, m.shared_gate, {}}, {m.shared_scale}, 0);
      scale.m = n_, scale.n = 1, scale.k = c, scale.trans_b = true;
      emit(scale);
      out = adds ? m.shared_gated : h;
      emit(op(OpKind::row_gate, {m.shared_out, m.shared_scale}, {out}, c));
    }
    if (adds) emit(op(OpKind::add, {h, out}, {h}, c));
  }

  // Adds to sums, which stay partial over the tensor group.
  void shared_backward(const Mixture& m, TensorId dh, TensorId x, TensorId sums, bool adds) {
    const std::int64_t c = model_.hidden;
    TensorId dout = dh, dscale;
    if (m.shared_gate.exists()) {
      dout = activation("d_shared.out", c);
      dscale = rows("d_shared.scale", n_);
      emit(op(OpKind::row_gate_grad, {dh, m.shared_out, m.shared_scale}, {dout, dscale}, c));
    }
    const TensorId dafter = activation("d_shared.after", m.shared_width);
    linear_backward(m.shared_down, dout, m.shared_after, dafter);
    const TensorId dbefore =
        traits_of(model_.activation).gated ? activation("d_shared.before", m.shared_up.out) : dafter;
    emit(activation_op(true, {dafter, m.shared_before}, dbefore, m.shared_width));
    const TensorId dx = adds ? activation("d_shared.x", c) : sums;
    linear_backward(m.shared_up, dbefore, x, dx);
    if (adds) emit(op(OpKind::add, {sums, dx}, {sums}, c));
    if (!dscale.exists()) return;
    // What this rank's columns contribute to the scale's gradient; its product with the weight is partial likewise.
    Op input = op(OpKind::matmul, {dscale, m.shared_gate, {}}, {sums}, 0);
    input.m = n_, input.n = c, input.k = 1;
    input.accumulate = true;
    emit(input);
    all_reduce(dscale);
    Op weight = op(OpKind::matmul, {dscale, x, {}}, {m.shared_gate_gradient}, 0);
    weight.m = 1, weight.n = c, weight.k = n_;
    weight.trans_a = true;
    weight.accumulate = true;
    emit(weight);
  }
};

}  // namespace orrery::models
