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
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class LatentNotes : protected LinearNotes {
 protected:
  using LinearNotes::LinearNotes;

  /// A narrow vector of each row, before and after its norm.
  struct Narrow {
    TensorId weight = {}, weight_gradient = {};
    TensorId before = {}, after = {}, rstd = {};
    std::int64_t width = 0;
  };
  struct Latent {
    Linear q_a, q_b;  ///< without q_rank there is only q_b, which reads the token
    Linear kv_a, kv_b;
    Narrow q, kv;
  };

  Latent make_latent(const std::string& at) {
    const LatentAttention& l = model_.latent;
    const std::int64_t c = model_.hidden, heads = model_.heads / options_.tensor;
    const double stddev = model_.initial_stddev;
    Latent made;
    const auto with_weight = [&](Linear& linear, Tensor weight) {
      linear.rows = n_;
      std::tie(linear.weight, linear.weight_gradient) = parameter(std::move(weight));
    };
    const bool narrow = l.q_rank > 0;
    if (narrow) {
      made.q_a = {.in = c, .out = l.q_rank};
      with_weight(made.q_a, by_heads(matrix(at + "q_a.weight", l.q_rank, c, -1, stddev)));
      made.q = make_narrow(at + "q_a_norm.weight", "latent.q_a", l.q_rank);
    }
    made.q_b = {.in = narrow ? l.q_rank : c, .out = heads * model_.head_dim};
    with_weight(made.q_b, matrix(at + (narrow ? "q_b.weight" : "q.weight"), model_.heads * model_.head_dim, made.q_b.in,
                                 0, stddev));
    made.kv_a = {.in = c, .out = l.kv_rank + l.rope};
    with_weight(made.kv_a, by_heads(matrix(at + "kv_a.weight", l.kv_rank + l.rope, c, -1, stddev)));
    made.kv = make_narrow(at + "kv_a_norm.weight", "latent.kv_a", l.kv_rank);
    made.kv_b = {.in = l.kv_rank, .out = heads * (l.nope + l.value)};
    with_weight(made.kv_b, matrix(at + "kv_b.weight", model_.heads * (l.nope + l.value), l.kv_rank, 0, stddev));
    return made;
  }

  /// From x (all rows) to q, k and v of this rank's heads.
  void latent_forward(const Latent& latent, TensorId x, TensorId packed) {
    const LatentAttention& l = model_.latent;
    const TensorId q = activation("latent.q", latent.q_b.out), kv = activation("latent.kv", latent.kv_b.out);
    const TensorId kv_a = activation("latent.kv_a", latent.kv_a.out), key = activation("latent.key", l.rope);
    if (l.q_rank > 0) {
      linear_forward(latent.q_a, x, latent.q.before, false);
      narrow_forward(latent.q);
    }
    linear_forward(latent.q_b, l.q_rank > 0 ? latent.q.after : x, q, false);
    linear_forward(latent.kv_a, x, kv_a, false);
    emit(columns_op(OpKind::split_columns, {kv_a}, {latent.kv.before, key}));
    narrow_forward(latent.kv);
    linear_forward(latent.kv_b, latent.kv.after, kv, false);
    emit(latent_op(OpKind::latent_pack, {q, kv, key}, {packed}));
  }

  /// From the gradient of q, k and v to dx, which gets the name `name`; x and dx are of this rank's own rows.
  void latent_backward(const Latent& latent, TensorId dpacked, TensorId x, TensorId dx, const std::string& name) {
    const LatentAttention& l = model_.latent;
    const TensorId dq = activation("d_latent.q", latent.q_b.out), dkv = activation("d_latent.kv", latent.kv_b.out);
    const TensorId dkey = activation("d_latent.key", l.rope), dkv_a = activation("d_latent.kv_a", latent.kv_a.out);
    emit(latent_op(OpKind::latent_pack_grad, {dpacked}, {dq, dkv, dkey}));
    const bool narrow = l.q_rank > 0;
    const Linear& of_query = narrow ? latent.q_a : latent.q_b;
    const TensorId dquery = narrow ? narrow_backward(latent.q, latent.q_b, dq, "q_a") : dq;
    const TensorId dnarrow = narrow_backward(latent.kv, latent.kv_b, dkv, "kv_a.narrow");
    emit(columns_op(OpKind::join_columns, {dnarrow, dkey}, {dkv_a}));
    // Products with the token. Where rows are gathered, sums travel before the gradients of the weights are computed.
    const TensorId all = gathered(x, name + ".gathered_again"), sums = partial(dx, "d_" + name + ".partial");
    const auto weights = [&] {
      weight_backward(of_query, dquery, all);
      weight_backward(latent.kv_a, dkv_a, all);
    };
    if (!sharded_) weights();
    input_backward(of_query, dquery, sums);
    input_backward(latent.kv_a, dkv_a, sums, true);
    add_up(sums, dx);
    if (sharded_) weights();
  }

  /// latent_pack and its relatives.
  Op latent_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = op(kind, in, out, 0);
    o.heads = o.kv_heads = model_.heads / options_.tensor;
    o.head_dim = model_.head_dim;
    o.rotary = model_.latent.rope;
    o.k = model_.latent.value;
    return o;
  }

 private:
  Narrow make_narrow(const std::string& weight, const std::string& name, std::int64_t width) {
    Narrow made{.width = width};
    std::tie(made.weight, made.weight_gradient) = parameter(by_heads(vector(weight, width, -1, 1)));
    made.before = activation(name + ".narrow", width);
    made.after = activation(name + ".normed", width);
    made.rstd = rows(name + ".rstd", n_);
    return made;
  }
  Op columns_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = op(kind, in, out, model_.latent.kv_rank);
    o.k = model_.latent.rope;
    return o;
  }
  void narrow_forward(const Narrow& narrow) {
    Op o = op(OpKind::rms_norm, {narrow.before, narrow.weight}, {narrow.after, narrow.rstd}, narrow.width);
    o.epsilon = model_.norm_epsilon;
    emit(o);
  }
  // Back through the product that reads the vector, then through its norm.
  TensorId narrow_backward(const Narrow& narrow, const Linear& reader, TensorId dy, const std::string& name) {
    const TensorId dnormed = activation("d_latent." + name + ".normed", narrow.width);
    const TensorId dnarrow = activation("d_latent." + name, narrow.width);
    linear_backward(reader, dy, narrow.after, dnormed);
    Op o = op(OpKind::rms_norm_grad, {dnormed, narrow.before, narrow.weight, narrow.rstd, {}},
              {dnarrow, gradient_or_none(narrow.weight, narrow.weight_gradient)}, narrow.width);
    o.accumulate = narrow.weight_gradient.exists();
    o.epsilon = model_.norm_epsilon;
    emit(o);
    return dnarrow;
  }
};

}  // namespace orrery::models
