#pragma once
/// The products of the experts that a rank has, on the rows that arrived in its slots. Private to models/; see
/// mixture_notes.h.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/token_travel.h"

namespace orrery::models {

class ExpertProducts {
 public:
  /// `at`: before the names of their parameters.
  ExpertProducts(LinearNotes& to, const MixtureSizes& sizes, const TokenTravel& travel, const std::string& at)
      : to_(to), sizes_(sizes), travel_(travel) {
    const Experts& e = to_.model.experts;
    const std::int64_t c = columns();
    const double stddev = to_.model.initial_stddev;
    const auto stacked = [&](const char* name, std::int64_t rows, std::int64_t columns, int axis, double of) {
      return stack(at, name, [&](const std::string& expert) {
        return to_.matrix(expert, rows, columns, split(axis), of, sizes_.ways);
      });
    };
    std::tie(first_, first_gradient_) = stacked(gated() ? "gate.weight" : "fc.weight", e.hidden, c, 0, stddev);
    if (gated()) std::tie(second_, second_gradient_) = stacked("up.weight", e.hidden, c, 0, stddev);
    std::tie(down_, down_gradient_) = stacked("proj.weight", c, e.hidden, 1, to_.residual_initial_stddev());
    if (e.expert_bias) make_biases(at);
  }
  /// What they make, for the rows `received` that arrived.
  void make_values(TensorId received) {
    received_ = received;
    after_ = travel_.slots("experts.after", sizes_.width);
    before_ = to_.rectifies() ? after_ : travel_.slots("experts.before", (gated() ? 2 : 1) * sizes_.width);
  }

  void forward(TensorId arrived, TensorId made) {
    const std::int64_t c = columns();
    const bool biased = to_.model.experts.expert_bias;
    to_.emit(grouped({arrived, first_, received_}, second_, before_, sizes_.width, c, true));
    if (biased) to_.emit(bias_op({before_, first_bias_, received_}, second_bias_, sizes_.width));
    to_.emit(activation_of_slots(false, {before_}, after_));
    to_.emit(grouped({after_, down_, received_}, {}, made, c, sizes_.width, true));
    if (!biased) return;
    Op bias = bias_op({made, down_bias_, received_}, {}, c);  // ranks that split an expert each add their share of it
    bias.scale = 1 / static_cast<double>(sizes_.ways);
    to_.emit(bias);
  }
  // From the gradient of what they made to that of what their first products made, and on to darrived.
  TensorId down_backward(TensorId dmade) {
    const std::int64_t c = columns();
    const TensorId dafter = travel_.slots("d_experts.after", sizes_.width);
    to_.emit(grouped({dmade, down_, received_}, {}, dafter, sizes_.width, c, false));
    to_.emit(grouped_gradient(dmade, after_, {down_gradient_}, c, sizes_.width));
    if (to_.model.experts.expert_bias) to_.emit(bias_gradient_op(dmade, {down_bias_gradient_}, c));
    const TensorId dbefore = gated() ? travel_.slots("d_experts.before", 2 * sizes_.width) : dafter;
    to_.emit(activation_of_slots(true, {dafter, before_}, dbefore));
    return dbefore;
  }
  void first_backward(TensorId arrived, TensorId dbefore, TensorId darrived) {
    const std::int64_t c = columns();
    to_.emit(grouped({dbefore, first_, received_}, second_, darrived, c, sizes_.width, false));
    Tensors gradients = {first_gradient_};
    if (gated()) gradients.push_back(second_gradient_);
    to_.emit(grouped_gradient(dbefore, arrived, gradients, sizes_.width, c));
    if (!to_.model.experts.expert_bias) return;
    Tensors biases = {first_bias_gradient_};
    if (gated()) biases.push_back(second_bias_gradient_);
    to_.emit(bias_gradient_op(dbefore, biases, sizes_.width));
  }

 private:
  [[nodiscard]] std::int64_t columns() const { return travel_.columns(); }
  [[nodiscard]] bool gated() const { return traits_of(to_.model.activation).gated; }
  [[nodiscard]] int split(int axis) const { return sizes_.own_routes && sizes_.ways == 1 ? -1 : axis; }

  // A parameter that has the same tensor of each of the rank's experts, which `make` makes by name.
  template <class Make>
  std::pair<TensorId, TensorId> stack(const std::string& at, const std::string& name, const Make& make) {
    std::vector<Tensor> pieces;
    pieces.reserve(static_cast<std::size_t>(sizes_.local));
    for (std::int64_t i = 0; i < sizes_.local; ++i) {
      pieces.push_back(make(at + "experts." + std::to_string(i) + "." + name));
      pieces.back().expert = i;
    }
    Tensor all = to_.fused(at + "experts." + name, std::move(pieces));
    all.expert = 0;
    return to_.parameter(std::move(all));
  }
  void make_biases(const std::string& at) {
    const std::int64_t f = to_.model.experts.hidden;
    const auto stacked = [&](const char* name, std::int64_t size, int axis) {
      return stack(at, name,
                   [&](const std::string& expert) { return to_.vector(expert, size, split(axis), 0, sizes_.ways); });
    };
    std::tie(first_bias_, first_bias_gradient_) = stacked(gated() ? "gate.bias" : "fc.bias", f, 0);
    if (gated()) std::tie(second_bias_, second_bias_gradient_) = stacked("up.bias", f, 0);
    std::tie(down_bias_, down_bias_gradient_) = stacked("proj.bias", columns(), -1);
  }

  Op activation_of_slots(bool gradient, const Tensors& in, TensorId out) const {
    Op act = travel_.slot_op(to_.activation_op(gradient, in, out, sizes_.width));
    act.in.push_back(operand_of(received_));
    return travel_.in_slots(std::move(act));
  }
  Op grouped(Tensors in, TensorId second, TensorId out, std::int64_t n, std::int64_t k, bool transposed) const {
    if (second.exists()) in.push_back(second);
    Op o = travel_.in_slots(travel_.slot_op(to_.op(OpKind::grouped_matmul, in, {out}, 0)));
    o.m = o.n, o.n = n, o.k = k;
    o.trans_b = transposed;
    o.rounded = rounds(n, k);
    o.four_bits = o.rounded && to_.options.products == DType::fp4;
    return o;
  }
  Op grouped_gradient(TensorId dy, TensorId x, const Tensors& out, std::int64_t rows, std::int64_t columns) const {
    Op o = travel_.in_slots(travel_.slot_op(to_.op(OpKind::grouped_weight_grad, {dy, x, received_}, out, rows)));
    o.n = columns;
    o.accumulate = true;
    o.rounded = rounds(rows, columns);
    o.four_bits = o.rounded && to_.options.products == DType::fp4;
    return o;
  }
  Op bias_op(Tensors in, TensorId second, std::int64_t columns) const {
    const TensorId rows = in.front();
    if (second.exists()) in.push_back(second);
    return travel_.in_slots(travel_.slot_op(to_.op(OpKind::expert_bias, in, {rows}, columns)));
  }
  Op bias_gradient_op(TensorId dy, const Tensors& out, std::int64_t columns) const {
    return travel_.in_slots(travel_.slot_op(to_.op(OpKind::expert_bias_grad, {dy, received_}, out, columns)));
  }
  // As for other products of blocks. The number of tokens always fits, since it is padded.
  [[nodiscard]] bool rounds(std::int64_t n, std::int64_t k) const {
    const bool narrow = to_.options.products == DType::fp8 || to_.options.products == DType::fp4;
    return to_.options.products == DType::tf32 || (narrow && fits_fp8(n, n, k));
  }

  LinearNotes& to_;
  MixtureSizes sizes_;
  TokenTravel travel_;
  TensorId first_, first_gradient_;    ///< (experts*F,C): gate, or the only first product
  TensorId second_, second_gradient_;  ///< up, if experts are gated
  TensorId down_, down_gradient_;      ///< (experts*C,F)
  /// Biases of these products, (experts*F), (experts*F), (experts*C), and their gradients.
  TensorId first_bias_, second_bias_, down_bias_;
  TensorId first_bias_gradient_, second_bias_gradient_, down_bias_gradient_;
  TensorId before_, after_;  ///< before and after their activation
  TensorId received_;        ///< counts of the rows that arrived
};

}  // namespace orrery::models
