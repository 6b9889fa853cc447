#pragma once
/// Attention with its products: q, k and v from one product or by latent attention, norms of heads, rotation, the core,
/// a gate of its output, and the product that leads back to the residual. Private to models/; see expand.cpp.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/attention_core.h"
#include "models/layers/indexer_notes.h"
#include "models/layers/latent_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

class Attention final : public MixerNotes {
 public:
  explicit Attention(LinearNotes& to)
      : to_(to),
        width_(to.model.head_dim_of(to.layer)),
        values_width_(to.model.value_columns(to.layer)),
        heads_{to.model.heads_of(to.layer) / to.options.tensor, to.model.kv_heads_of(to.layer) / to.options.tensor} {
    to_.model.latent.any() ? make_latent() : make_plain();
  }

  void forward(TensorId x, TensorId h, bool adds) override {
    latent_ ? latent_->forward(x, packed_) : to_.linear_forward(qkv_, x, made_, has_qkv_bias());
    if (gate_.exists()) to_.emit(columns_op(OpKind::split_columns, {made_}, {packed_, gate_}));
    const bool late = to_.model.late_qk_norm;
    if (late) rotate(packed_);
    if (to_.model.qk_norm) to_.emit(norm_op(OpKind::head_norm, {packed_, q_norm_, k_norm_}, {normed_, rstd_}));
    if (!late) rotate(normed_.exists() ? normed_ : packed_);
    if (indexer_) indexer_->forward(x, latent_ ? latent_->queries() : x);
    core_->forward();
    if (head_gate_.exists()) {
      to_.linear_forward(head_gate_product_, x, head_gate_, false);
      to_.emit(head_gate_op(OpKind::row_gate, {core_->out(), head_gate_}, {values_}));
    }
    if (latent_) to_.emit(latent_op(to_, OpKind::head_values, {core_->out()}, {values_}));
    if (gate_.exists()) to_.emit(to_.op(OpKind::output_gate, {core_->out(), gate_}, {values_}, to_.columns_of(gate_)));
    to_.linear_forward(projection_, values_.exists() ? values_ : core_->out(), h, false, adds);
  }

  void backward(TensorId dh_own, TensorId x, TensorId da, const std::string& name) override {
    const TensorId dh = to_.gathered(dh_own, "d_attention.h");
    const TensorId dout = to_.activation("d_attention", to_.columns_of(core_->out()));
    const TensorId dpacked = to_.activation("d_qkv", packed_columns());
    const bool narrower = made_columns() != packed_columns();
    const TensorId dnormed = narrower ? to_.activation("d_qkv.before", made_columns()) : dpacked;
    const TensorId dgate = gate_ ? to_.activation("d_attention.gate", to_.columns_of(gate_)) : TensorId();
    to_.bias_backward(projection_, dh_own);
    if (head_gate_.exists()) {
      dhead_gate_ = to_.rows("d_attention.head_gate", to_.all_rows * heads_.of_q);
      const TensorId dvalues = to_.activation("d_attention.values", projection_.in);
      to_.linear_backward(projection_, dh, values_, dvalues);
      to_.emit(head_gate_op(OpKind::row_gate_grad, {dvalues, core_->out(), head_gate_}, {dout, dhead_gate_}));
    } else if (values_.exists()) {
      const TensorId dvalues = to_.activation("d_attention.values", projection_.in);
      to_.linear_backward(projection_, dh, values_, dvalues);
      to_.emit(latent_ ? latent_op(to_, OpKind::head_values_grad, {dvalues}, {dout})
                       : to_.op(OpKind::output_gate_grad, {dvalues, core_->out(), gate_}, {dout, dgate},
                                to_.columns_of(gate_)));
    } else {
      to_.linear_backward(projection_, dh, core_->out(), dout);
    }
    core_->backward(dout, dpacked);
    const bool late = to_.model.late_qk_norm;
    if (!late) rotate_back(dpacked);
    if (to_.model.qk_norm) {
      const auto sum = [&](TensorId weight, TensorId gradient) {
        return weight ? to_.sum_or_none(weight, gradient) : TensorId();
      };
      Op o = norm_op(OpKind::head_norm_grad, {dpacked, packed_, q_norm_, k_norm_, rstd_},
                     {dnormed, sum(q_norm_, q_norm_gradient_), sum(k_norm_, k_norm_gradient_)});
      o.accumulate = true;
      to_.emit(o);
    }
    if (late) rotate_back(dpacked);
    if (latent_)
      return latent_->backward(dpacked, x, da, name, [this](TensorId all) {
        if (indexer_) indexer_->backward(packed_, core_->saved(), heads_.of_q, all, latent_->queries());
      });
    const TensorId dmade = gate_ ? to_.activation("d_qkv.made", qkv_.out) : dnormed;
    if (gate_.exists()) to_.emit(columns_op(OpKind::join_columns, {dpacked, dgate}, {dmade}));
    to_.bias_backward(qkv_, dmade);
    if (!head_gate_.exists() && !indexer_) return to_.column_backward(qkv_, dmade, x, da, name);
    // Products with the token: of q, k and v, and of what else reads it.
    const TensorId all = to_.gathered(x, name + ".gathered_again"), sums = to_.partial(da, "d_" + name + ".partial");
    to_.linear_backward(qkv_, dmade, all, sums);
    if (head_gate_.exists()) {
      to_.weight_backward(head_gate_product_, dhead_gate_, all);
      to_.input_backward(head_gate_product_, dhead_gate_, sums, true);
    }
    if (indexer_) indexer_->backward(normed_ ? normed_ : packed_, core_->saved(), heads_.of_q, all, all);
    to_.add_up(sums, da);
  }

  [[nodiscard]] TensorId bias() const override { return projection_.bias; }

 private:
  void rotate(TensorId packed) {
    if (to_.model.rotates(to_.layer)) to_.emit(rope_op(OpKind::rope, {packed}, {packed}));
  }
  void rotate_back(TensorId dpacked) {
    if (to_.model.rotates(to_.layer)) to_.emit(rope_op(OpKind::rope_grad, {dpacked}, {dpacked}));
  }
  /// Heads of keys and values that this layer makes.
  std::int64_t own_keys() const { return to_.model.borrows_keys(to_.layer) ? 0 : heads_.of_kv; }
  std::int64_t packed_columns() const { return heads_.of_q * width_ + own_keys() * (width_ + values_width_); }
  /// Of these, the columns that a product makes.
  std::int64_t made_columns() const {
    return packed_columns() - (to_.model.makes_values(to_.layer) ? 0 : own_keys() * values_width_);
  }
  bool has_qkv_bias() const { return (to_.model.bias && to_.model.attention_bias) || to_.model.qkv_bias; }

  void make_plain() {
    const Model& model = to_.model;
    const std::int64_t d = width_, c = model.hidden;
    const std::string at = to_.prefix() + "attn.";
    make_qkv(at);
    if (model.qk_norm && model.norm_weight) {
      const std::int64_t q = model.joint_qk_norm ? heads_.of_q * d : d, k = model.joint_qk_norm ? heads_.of_kv * d : d;
      std::tie(q_norm_, q_norm_gradient_) = to_.parameter(to_.by_heads(to_.vector(at + "q_norm.weight", q, -1, 1)));
      if (own_keys() > 0)
        std::tie(k_norm_, k_norm_gradient_) = to_.parameter(to_.by_heads(to_.vector(at + "k_norm.weight", k, -1, 1)));
    }
    make_projection(at, values_width_);
    if ((model.bias && model.attention_bias) || model.out_bias)
      std::tie(projection_.bias, projection_.bias_gradient) =
          to_.parameter(to_.by_rows(to_.vector(at + "proj.bias", c, -1, 0)));
    const std::int64_t columns = packed_columns();
    packed_ = made_ = to_.activation("qkv", qkv_.out);
    if (model.attention_gate) {
      packed_ = to_.activation("qkv.packed", columns);
      gate_ = to_.activation("attention.gate", qkv_.out - columns);
      values_ = to_.activation("attention.values", projection_.in);
    }
    if (model.qk_norm) {
      normed_ = to_.activation("qkv.normed", columns);
      const std::int64_t norms = normed_runs(norm_op(OpKind::head_norm, {}, {})).count();
      rstd_ = to_.activation("qkv.rstd", {to_.all_rows, norms}, DType::fp32);
    }
    if (model.head_gate) {
      head_gate_product_ = {.in = c, .out = heads_.of_q, .rows = to_.all_rows};
      std::tie(head_gate_product_.weight, head_gate_product_.weight_gradient) =
          to_.parameter(to_.matrix(at + "head_gate.weight", model.heads_of(to_.layer), c, 0, model.initial_stddev));
      head_gate_ = to_.rows("attention.head_gate", to_.all_rows * heads_.of_q);
      values_ = to_.activation("attention.values", projection_.in);
    }
    if (chooses()) indexer_.emplace(to_, at);
    core_.emplace(to_, heads_, normed_.exists() ? normed_ : packed_, indexer_ ? indexer_->choice() : TensorId());
  }
  /// A module that predicts further chooses for itself.
  bool chooses() const {
    const Indexer& i = to_.model.indexer;
    return i.any() && (to_.layer >= to_.model.layers || i.chooses(to_.layer));
  }
  /// Of each head of each token.
  Op head_gate_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, values_width_);
    o.n *= heads_.of_q;
    return o;
  }
  void make_qkv(const std::string& at) {
    const Model& model = to_.model;
    const bool makes_values = model.makes_values(to_.layer), borrows = model.borrows_keys(to_.layer);
    const std::int64_t d = width_, v = makes_values ? values_width_ : 0, c = model.hidden;
    const std::int64_t kv_heads = heads_.of_kv * to_.options.tensor;        // of all ranks
    const std::int64_t queries = model.heads_of(to_.layer) / kv_heads * d;  // per key/value head
    struct Piece {
      const char* name;
      std::int64_t rows, first;
    };
    std::vector<Tensor> weights, biases;
    std::vector<Piece> pieces = {{"q", queries, 0}};
    if (!borrows) pieces.push_back({"k", d, queries});
    if (!borrows && makes_values) pieces.push_back({"v", v, queries + d});
    if (model.attention_gate) pieces.push_back({"gate", queries, 0});
    for (const Piece& piece : pieces) {
      const std::int64_t width = piece.rows * kv_heads;
      weights.push_back(to_.matrix(at + piece.name + ".weight", width, c, 0, model.initial_stddev));
      biases.push_back(to_.vector(at + piece.name + ".bias", width, 0, 0));
      for (Tensor* one : {&weights.back(), &biases.back()})
        one->group_rows = piece.rows, one->group_first = piece.first, one->group_stride = queries + d + v;
    }
    qkv_ = {.in = c, .out = made_columns() + (model.attention_gate ? heads_.of_q * d : 0), .rows = to_.all_rows};
    std::tie(qkv_.weight, qkv_.weight_gradient) = to_.parameter(to_.fused(at + "qkv.weight", weights));
    to_.adapt(qkv_, model.lora.qkv);
    if (has_qkv_bias()) std::tie(qkv_.bias, qkv_.bias_gradient) = to_.parameter(to_.fused(at + "qkv.bias", biases));
  }
  // `columns`: of a head that the projection reads.
  void make_projection(const std::string& at, std::int64_t columns) {
    const Model& model = to_.model;
    projection_ = {.in = heads_.of_q * columns,
                   .out = model.hidden,
                   .rows = to_.all_rows,
                   .scale = model.residual_scale * model.value_scale};
    std::tie(projection_.weight, projection_.weight_gradient) = to_.parameter(to_.matrix(
        at + "proj.weight", model.hidden, model.heads_of(to_.layer) * columns, 1, to_.residual_initial_stddev()));
    to_.adapt(projection_, model.lora.projection);
  }
  void make_latent() {
    heads_.of_kv = heads_.of_q;
    const std::string at = to_.prefix() + "attn.";
    latent_.emplace(to_, at);
    make_projection(at, to_.model.latent.value);
    packed_ = to_.activation("qkv", 3 * heads_.of_q * to_.model.head_dim);
    if (chooses()) indexer_.emplace(to_, at);
    core_.emplace(to_, heads_, packed_, indexer_ ? indexer_->choice() : TensorId());
    values_ = to_.activation("attention.values", projection_.in);
  }

  Op rope_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    const Model& model = to_.model;
    Op o = heads_op(to_, {heads_.of_q, own_keys()}, kind, in, out);
    const bool own = model.window_theta > 0 && model.windowed(to_.layer);
    o.epsilon = own ? model.window_theta : model.rope_theta;
    if (!own) o.rope_scaling = model.rope_scaling.within(to_.options.sequence * to_.options.context);
    o.rotary = model.latent.any() ? model.latent.rope : model.rotary_columns(model.windowed(to_.layer));
    if (o.rotary == o.head_dim) o.rotary = 0;
    return o;
  }
  // Of what one product makes: q, k and v, then the gate.
  Op columns_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, to_.columns_of(packed_));
    o.k = to_.columns_of(gate_);
    return o;
  }
  Op norm_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = heads_op(to_, {heads_.of_q, own_keys()}, kind, in, out);
    o.epsilon = to_.model.norm_epsilon, o.joint = to_.model.joint_qk_norm;
    if (to_.model.value_norm) o.values = to_.model.makes_values(to_.layer) ? HeadValues::normed : HeadValues::of_keys;
    return o;
  }

  LinearNotes& to_;
  std::int64_t width_, values_width_;  ///< of a head of q and k, and of v
  Heads heads_;
  Linear qkv_, projection_;
  std::optional<LatentProjection> latent_;  ///< in place of `qkv_`
  std::optional<TokenIndexer> indexer_;     ///< of the tokens that are read
  // Norms of the heads of q and k: they read `packed_`, and the core reads `normed_`.
  TensorId q_norm_, q_norm_gradient_, k_norm_, k_norm_gradient_, normed_, rstd_;
  TensorId made_, packed_;  ///< by the product; q, k and v of it
  TensorId gate_;           ///< of the core's output
  Linear head_gate_product_;
  TensorId head_gate_, dhead_gate_;  ///< (rows, heads): of each head's output as a whole
  TensorId values_;  ///< what the projection reads if it is not the core's output: its values alone, or gated
  std::optional<AttentionCore> core_;
};

}  // namespace orrery::models
