#pragma once
/// Multi-head latent attention: what replaces the product that makes q, k and v (DeepSeek-AI 2024, DeepSeek-V2, section
/// 2.1). Private to models/; see expand.cpp.
///
/// A token becomes a narrow vector for its queries and one for its keys and values, each followed by an RMSNorm; the
/// heads' q, k and v are made from these. Some columns of a key are made directly from the token, and are rotated; all
/// heads share them. Heads are packed for ordinary attention with nope + rope columns; values are narrower and padded
/// with zeros, as DeepSeek's own code does for flash attention.
///
/// Tensor parallelism divides the heads; each rank makes the narrow vectors of all rows. Every gradient up to the
/// token's is linear in that of q, k and v. So each rank takes its heads' gradients back to x, where one all-reduce
/// sums them, as in other attention. The narrow products' weights have partial gradients, which the group sums once per
/// step.
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/linear_notes.h"

namespace orrery::models {

/// latent_pack and its relatives.
[[nodiscard]] inline Op latent_op(const LinearNotes& to, OpKind kind, const Tensors& in, const Tensors& out) {
  Op o = to.op(kind, in, out, 0);
  o.heads = o.kv_heads = to.model.heads / to.options.tensor;
  o.head_dim = to.model.head_dim;
  o.rotary = to.model.latent.rope;
  o.k = to.model.latent.value;
  return o;
}

class LatentProjection {
 public:
  /// `at`: before the names of its parameters.
  LatentProjection(LinearNotes& to, const std::string& at) : to_(to) {
    const LatentAttention& l = to_.model.latent;
    const std::int64_t c = to_.model.hidden, heads = to_.model.heads / to_.options.tensor;
    const double stddev = to_.model.initial_stddev;
    const auto with_weight = [&](Linear& linear, Tensor weight) {
      linear.rows = to_.all_rows;
      std::tie(linear.weight, linear.weight_gradient) = to_.parameter(std::move(weight));
    };
    const bool narrow = l.q_rank > 0;
    if (narrow) {
      q_a_ = {.in = c, .out = l.q_rank};
      with_weight(q_a_, to_.by_heads(to_.matrix(at + "q_a.weight", l.q_rank, c, -1, stddev)));
      q_ = make_narrow(at + "q_a_norm.weight", "latent.q_a", l.q_rank);
    }
    q_b_ = {.in = narrow ? l.q_rank : c, .out = heads * to_.model.head_dim};
    with_weight(q_b_, to_.matrix(at + (narrow ? "q_b.weight" : "q.weight"), to_.model.heads * to_.model.head_dim,
                                 q_b_.in, 0, stddev));
    kv_a_ = {.in = c, .out = l.kv_rank + l.rope};
    with_weight(kv_a_, to_.by_heads(to_.matrix(at + "kv_a.weight", l.kv_rank + l.rope, c, -1, stddev)));
    kv_ = make_narrow(at + "kv_a_norm.weight", "latent.kv_a", l.kv_rank);
    kv_b_ = {.in = l.kv_rank, .out = heads * (l.nope + l.value)};
    with_weight(kv_b_, to_.matrix(at + "kv_b.weight", to_.model.heads * (l.nope + l.value), l.kv_rank, 0, stddev));
  }

  /// From x (all rows) to q, k and v of this rank's heads.
  void forward(TensorId x, TensorId packed) {
    const LatentAttention& l = to_.model.latent;
    const TensorId q = to_.activation("latent.q", q_b_.out), kv = to_.activation("latent.kv", kv_b_.out);
    const TensorId kv_a = to_.activation("latent.kv_a", kv_a_.out), key = to_.activation("latent.key", l.rope);
    if (l.q_rank > 0) {
      to_.linear_forward(q_a_, x, q_.before, false);
      narrow_forward(q_);
    }
    to_.linear_forward(q_b_, l.q_rank > 0 ? q_.after : x, q, false);
    to_.linear_forward(kv_a_, x, kv_a, false);
    to_.emit(columns_op(OpKind::split_columns, {kv_a}, {kv_.before, key}));
    narrow_forward(kv_);
    to_.linear_forward(kv_b_, kv_.after, kv, false);
    to_.emit(latent_op(to_, OpKind::latent_pack, {q, kv, key}, {packed}));
  }

  /// The narrow vectors of queries, behind their norm.
  [[nodiscard]] TensorId queries() const { return q_.after; }

  /// From the gradient of q, k and v to dx, which gets the name `name`; x and dx are of this rank's own rows. `learn`
  /// gets all rows of x where gradients of weights are computed.
  void backward(TensorId dpacked, TensorId x, TensorId dx, const std::string& name,
                const std::function<void(TensorId)>& learn) {
    const LatentAttention& l = to_.model.latent;
    const TensorId dq = to_.activation("d_latent.q", q_b_.out), dkv = to_.activation("d_latent.kv", kv_b_.out);
    const TensorId dkey = to_.activation("d_latent.key", l.rope), dkv_a = to_.activation("d_latent.kv_a", kv_a_.out);
    to_.emit(latent_op(to_, OpKind::latent_pack_grad, {dpacked}, {dq, dkv, dkey}));
    const bool narrow = l.q_rank > 0;
    const Linear& of_query = narrow ? q_a_ : q_b_;
    const TensorId dquery = narrow ? narrow_backward(q_, q_b_, dq, "q_a") : dq;
    const TensorId dnarrow = narrow_backward(kv_, kv_b_, dkv, "kv_a.narrow");
    to_.emit(columns_op(OpKind::join_columns, {dnarrow, dkey}, {dkv_a}));
    // Products with the token. Where rows are gathered, sums travel before the gradients of the weights are computed.
    const TensorId all = to_.gathered(x, name + ".gathered_again"), sums = to_.partial(dx, "d_" + name + ".partial");
    const auto weights = [&] {
      to_.weight_backward(of_query, dquery, all);
      to_.weight_backward(kv_a_, dkv_a, all);
      learn(all);
    };
    if (!to_.sharded) weights();
    to_.input_backward(of_query, dquery, sums);
    to_.input_backward(kv_a_, dkv_a, sums, true);
    to_.add_up(sums, dx);
    if (to_.sharded) weights();
  }

 private:
  /// A narrow vector of each row, before and after its norm.
  struct Narrow {
    TensorId weight = {}, weight_gradient = {};
    TensorId before = {}, after = {}, rstd = {};
    std::int64_t width = 0;
  };

  Narrow make_narrow(const std::string& weight, const std::string& name, std::int64_t width) {
    Narrow made{.width = width};
    std::tie(made.weight, made.weight_gradient) = to_.parameter(to_.by_heads(to_.vector(weight, width, -1, 1)));
    made.before = to_.activation(name + ".narrow", width);
    made.after = to_.activation(name + ".normed", width);
    made.rstd = to_.rows(name + ".rstd", to_.all_rows);
    return made;
  }
  Op columns_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, to_.model.latent.kv_rank);
    o.k = to_.model.latent.rope;
    return o;
  }
  void narrow_forward(const Narrow& narrow) {
    Op o = to_.op(OpKind::rms_norm, {narrow.before, narrow.weight}, {narrow.after, narrow.rstd}, narrow.width);
    o.epsilon = to_.model.norm_epsilon;
    to_.emit(o);
  }
  // Back through the product that reads the vector, then through its norm.
  TensorId narrow_backward(const Narrow& narrow, const Linear& reader, TensorId dy, const std::string& name) {
    const TensorId dnormed = to_.activation("d_latent." + name + ".normed", narrow.width);
    const TensorId dnarrow = to_.activation("d_latent." + name, narrow.width);
    to_.linear_backward(reader, dy, narrow.after, dnormed);
    Op o = to_.op(OpKind::rms_norm_grad, {dnormed, narrow.before, narrow.weight, narrow.rstd, {}},
                  {dnarrow, to_.gradient_or_none(narrow.weight, narrow.weight_gradient)}, narrow.width);
    o.accumulate = narrow.weight_gradient.exists();
    o.epsilon = to_.model.norm_epsilon;
    to_.emit(o);
    return dnarrow;
  }

  LinearNotes& to_;
  Linear q_a_, q_b_;  ///< without q_rank there is only q_b, which reads the token
  Linear kv_a_, kv_b_;
  Narrow q_, kv_;
};

}  // namespace orrery::models
