#pragma once
/// The core of attention: from packed q, k and v to its output, on one rank or around the ring of a context group.
/// Private to models/; see expand.cpp.
///
/// Context parallelism splits the tokens of a sequence (the ring of Megatron-core and Transformer Engine). Keys and
/// values pass around the ring: attention works on one rank's block while the next one travels. In backward they pass
/// around again, and their gradients follow one block behind until they are home.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"

namespace orrery::models {

/// A rank's heads: of queries, and of keys and values.
struct Heads {
  std::int64_t of_q = 0, of_kv = 0;
};

/// An operator on heads, as long as nothing more is said of it.
[[nodiscard]] inline Op heads_op(const LinearNotes& to, Heads heads, OpKind kind, const Tensors& in,
                                 const Tensors& out) {
  Op o = to.op(kind, in, out, 0);
  o.heads = heads.of_q;
  o.kv_heads = heads.of_kv;
  o.head_dim = to.model.head_dim_of(to.layer);
  if (to.model.value_dim != o.head_dim) o.value_dim = to.model.value_dim;
  o.causal = to.model.causal;
  o.flash = to.options.flash;
  o.rounded = to.options.products == DType::tf32;
  return o;
}

class AttentionCore {
 public:
  /// `packed`: q, k and v as attention reads them. `choice`: the tokens that each reads, if this layer chooses them.
  AttentionCore(LinearNotes& to, Heads heads, TensorId packed, TensorId choice = {})
      : to_(to), heads_(heads), packed_(packed), choice_(choice) {
    if (to_.model.has_sinks(to_.layer)) {
      Tensor sinks = to_.vector(to_.prefix() + "attn.sinks", to_.model.heads_of(to_.layer), 0, 0);
      sinks.initial_stddev = to_.model.initial_stddev;
      std::tie(sinks_, sinks_gradient_) = to_.parameter(std::move(sinks));
    }
    out_ = to_.activation("attention", heads_.of_q * to_.model.value_columns(to_.layer));
    const ExpandOptions& split = to_.options;
    saved_ = split.flash ? to_.activation("attention.lse", {split.batch, heads_.of_q, split.sequence}, DType::fp32)
                         : to_.activation("attention.probabilities",
                                          {split.batch, heads_.of_q, split.sequence, split.sequence}, split.dtype);
  }

  [[nodiscard]] TensorId out() const { return out_; }
  [[nodiscard]] TensorId saved() const { return saved_; }

  void forward() {
    if (to_.options.context > 1) return ring_forward();
    to_.emit(op(OpKind::attention, read({packed_}), {out_, saved_}));
  }
  // From the gradient of the output to that of q, k and v.
  void backward(TensorId dout, TensorId dpacked) {
    if (to_.options.context > 1) return ring_backward(dout, dpacked);
    to_.emit(op(OpKind::attention_grad, read({dout, packed_, out_, saved_}), with({dpacked}, sinks_sum())));
  }

 private:
  // An operator's operands, followed by the sinks if there are any.
  [[nodiscard]] static Tensors with(Tensors operands, TensorId sinks) {
    if (sinks.exists()) operands.push_back(sinks);
    return operands;
  }
  // The same, and behind them the choice of tokens.
  [[nodiscard]] Tensors read(Tensors operands) const {
    if (!choice_.exists()) return with(std::move(operands), sinks_);
    operands.push_back(sinks_);
    operands.push_back(choice_);
    return operands;
  }
  // Where the sinks' gradients accumulate; none without sinks.
  TensorId sinks_sum() { return sinks_ ? to_.sum_or_none(sinks_, sinks_gradient_) : TensorId(); }

  Op op(OpKind kind, const Tensors& in, const Tensors& out) const {
    const Model& model = to_.model;
    Op o = heads_op(to_, heads_, kind, in, out);
    if (!attends(kind)) return o;
    if (model.query_scale > 0) o.score_scale = 1 / std::sqrt(model.query_scale);
    if (const double factor = model.rope_scaling.scores(); factor != 1)
      o.score_scale = factor * (o.score_scale > 0 ? o.score_scale : 1 / std::sqrt(o.head_dim));
    if (model.score_factor != 1)
      o.score_scale = model.score_factor * (o.score_scale > 0 ? o.score_scale : 1 / std::sqrt(o.head_dim));
    o.cap = model.attention_cap;
    if (model.indexer.reads(to_.layer) && model.indexer.chosen < to_.options.sequence) o.chosen = model.indexer.chosen;
    o.alibi_heads = model.positions == Positions::alibi ? model.heads : 0;
    if (model.windowed(to_.layer) && model.window < to_.options.sequence * to_.options.context) o.window = model.window;
    if (!to_.drops(model.dropout.attention)) return o;
    o.dropout = model.dropout.attention;
    o.site = dropout_site(to_.layer, DropoutPlace::attention);
    return o;
  }

  // -- the ring -----------------------------------------------------------------------------------------------------
  std::int64_t block_columns() const {
    return heads_.of_kv * (to_.model.head_dim_of(to_.layer) + to_.model.value_columns(to_.layer));
  }
  TensorId key_values(const std::string& name, std::int64_t step) {
    return to_.activation(name + "." + std::to_string(step), block_columns());
  }
  Op ring_op(OpKind kind, std::int64_t step, const Tensors& in, const Tensors& out) const {
    Op o = op(kind, in, out);
    o.ring_step = step;
    o.accumulate = step > 0;
    return o;
  }
  // Sends the block after `kv` on its way before this one is computed.
  TensorId next_block(const std::string& name, std::int64_t step, TensorId kv) {
    const TensorId next = key_values(name, step);
    to_.communicate(GroupCollective::ring_shift, kv, next);
    return next;
  }

  void ring_forward() {
    const std::int64_t ways = to_.options.context;
    TensorId kv = key_values("kv", 0);
    to_.emit(op(OpKind::split_kv, {packed_}, {kv}));
    for (std::int64_t step = 0; step < ways; ++step) {
      const TensorId next = step + 1 < ways ? next_block("kv", step + 1, kv) : TensorId();
      if (!next.exists()) to_.cut();  // the last block may still travel while the one before it is computed
      to_.emit(
          ring_op(OpKind::ring_attention, step, with({packed_, kv}, step == 0 ? sinks_ : TensorId()), {out_, saved_}));
      kv = next;
    }
  }

  void ring_backward(TensorId dout, TensorId dpacked) {
    const std::int64_t ways = to_.options.context;
    TensorId kv = key_values("kv.again", 0), dkv;
    to_.emit(op(OpKind::split_kv, {packed_}, {kv}));
    for (std::int64_t step = 0; step < ways; ++step) {
      const TensorId others =
          step > 0 ? next_block("d_kv.received", step, dkv) : TensorId();  // what others added to this block
      const TensorId next = step + 1 < ways ? next_block("kv.again", step + 1, kv) : TensorId();
      dkv = key_values("d_kv", step);
      to_.emit(ring_op(OpKind::ring_attention_grad, step,
                       with({dout, packed_, out_, saved_, kv}, step == 0 ? sinks_ : TensorId()),
                       with({dpacked, dkv}, step == 0 ? sinks_sum() : TensorId())));
      if (others.exists()) {
        to_.cut();
        to_.emit(to_.op(OpKind::add, {dkv, others}, {dkv}, block_columns()));
      }
      kv = next;
    }
    to_.emit(op(OpKind::merge_kv, {next_block("d_kv.home", ways, dkv)}, {dpacked}));
  }

  LinearNotes& to_;
  Heads heads_;
  TensorId packed_, choice_, out_, saved_;
  TensorId sinks_, sinks_gradient_;  ///< (H)
};

}  // namespace orrery::models
