#pragma once
/// The indexer that chooses which tokens attention reads (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1; of blocks of
/// tokens: MiniMax 2026, "MiniMax Sparse Attention"). Private to models/; see attention_notes.h.
///
/// Its queries come from latent attention's narrow vector for queries, its one key and its heads' weights from the
/// token; the key has a LayerNorm. An indexer of plain attention makes queries and key from the token, and norms the
/// heads of both; it has no weights. None of them passes a gradient on. Every tensor rank has all of its heads, since
/// all of attention's heads read the same tokens; what it learns is summed over the ranks' heads of attention. Layers
/// that share a choice (Indexer::every) read it where it lies: carrying it on counts nothing.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class TokenIndexer {
 public:
  /// `at`: before the names of its parameters.
  TokenIndexer(LinearNotes& to, const std::string& at) : to_(to), plain_(!to.model.latent.any()) {
    const Indexer& i = to_.model.indexer;
    make(queries_, at + "index.q.weight", i.heads * i.width, plain_ ? to_.model.hidden : to_.model.latent.q_rank);
    make(key_, at + "index.k.weight", i.width, to_.model.hidden);
    if (!plain_) make(weights_, at + "index.weights.weight", i.heads, to_.model.hidden);
    if (plain_) of_queries_ = make_norm(at + "index.q_norm", "index.q", to_.all_rows * i.heads);
    of_key_ = make_norm(at + "index.k_norm", "index.k", to_.all_rows);
    q_made_ = q_ = to_.activation("index.q", queries_.out);
    if (plain_) q_made_ = to_.activation("index.q.made", queries_.out);
    k_made_ = to_.activation("index.k.made", key_.out);
    k_ = to_.activation("index.k", key_.out);
    if (!plain_) w_ = to_.activation("index.weights", weights_.out);
    choice_ = to_.activation("index.choice", {to_.all_rows, std::min(i.chosen, to_.options.sequence)}, DType::int32);
  }

  [[nodiscard]] TensorId choice() const { return choice_; }

  /// From the token and what its queries are made from; all rows.
  void forward(TensorId x, TensorId source) {
    to_.linear_forward(queries_, source, q_made_, false);
    to_.linear_forward(key_, x, k_made_, false);
    if (!plain_) to_.linear_forward(weights_, x, w_, false);
    if (plain_) norm_forward(of_queries_, q_made_, q_);
    norm_forward(of_key_, k_made_, k_);
    rotate(OpKind::rope, q_, to_.model.indexer.heads);
    rotate(OpKind::rope, k_, 1);
    to_.emit(choosing(OpKind::choose_tokens, {q_, k_, w_}, {choice_}));
  }

  /// Learns from attention's q and k and what it saved. `heads`: of this rank.
  void backward(TensorId packed, TensorId saved, std::int64_t heads, TensorId x, TensorId source) {
    if (!queries_.trains()) return;
    const TensorId dq = to_.activation("d_index.q", queries_.out), dk = to_.activation("d_index.k", key_.out);
    const TensorId dq_made = plain_ ? to_.activation("d_index.q.made", queries_.out) : dq;
    const TensorId dmade = to_.activation("d_index.k.made", key_.out);
    const TensorId dw = plain_ ? TensorId() : to_.activation("d_index.weights", weights_.out);
    Op o = choosing(OpKind::choose_tokens_grad, {packed, saved, choice_, q_, k_, w_}, {dq, dk, dw});
    o.heads = o.kv_heads = heads;
    o.head_dim = to_.model.head_dim;
    to_.emit(o);
    rotate(OpKind::rope_grad, dq, to_.model.indexer.heads);
    rotate(OpKind::rope_grad, dk, 1);
    if (plain_) norm_backward(of_queries_, dq, q_made_, dq_made);
    norm_backward(of_key_, dk, k_made_, dmade);
    to_.weight_backward(queries_, dq_made, source);
    to_.weight_backward(key_, dmade, x);
    if (!plain_) to_.weight_backward(weights_, dw, x);
  }

 private:
  void make(Linear& linear, const std::string& name, std::int64_t out, std::int64_t in) {
    linear = {.in = in, .out = out, .rows = to_.all_rows};
    std::tie(linear.weight, linear.weight_gradient) =
        to_.parameter(to_.by_heads(to_.matrix(name, out, in, -1, to_.model.initial_stddev)));
  }
  /// `rows`: that it takes by themselves. A LayerNorm, or of plain attention an RMSNorm.
  Norm make_norm(const std::string& parameters, const std::string& statistics, std::int64_t rows) {
    const auto vector = [&](const char* name, double value) {
      return to_.parameter(to_.by_heads(to_.vector(parameters + name, to_.model.indexer.width, -1, value)));
    };
    Norm made;
    std::tie(made.weight, made.weight_gradient) = vector(".weight", 1);
    if (!plain_) std::tie(made.bias, made.bias_gradient) = vector(".bias", 0);
    if (!plain_) made.mean = to_.rows(statistics + ".mean", rows);
    made.rstd = to_.rows(statistics + ".rstd", rows);
    return made;
  }
  Op norm_op(const Norm& norm, OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, to_.model.indexer.width);
    o.n = to_.program.tensors[norm.rstd].shape[0];
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }
  void norm_forward(const Norm& norm, TensorId x, TensorId y) {
    to_.emit(plain_ ? norm_op(norm, OpKind::rms_norm, {x, norm.weight}, {y, norm.rstd})
                    : norm_op(norm, OpKind::layer_norm, {x, norm.weight, norm.bias}, {y, norm.mean, norm.rstd}));
  }
  void norm_backward(const Norm& norm, TensorId dy, TensorId x, TensorId dx) {
    Op o = plain_
               ? norm_op(norm, OpKind::rms_norm_grad, {dy, x, norm.weight, norm.rstd, {}}, {dx, norm.weight_gradient})
               : norm_op(norm, OpKind::layer_norm_grad, {dy, x, norm.weight, norm.mean, norm.rstd, {}},
                         {dx, norm.weight_gradient, norm.bias_gradient});
    o.accumulate = true;
    to_.emit(std::move(o));
  }
  void rotate(OpKind kind, TensorId of, std::int64_t heads) {
    Op o = to_.op(kind, {of}, {of}, 0);
    o.heads = heads;
    o.head_dim = to_.model.indexer.width;
    o.rotary = plain_ ? to_.model.rotary_columns() : to_.model.latent.rope;
    if (o.rotary == o.head_dim) o.rotary = 0;
    o.epsilon = to_.model.rope_theta;
    o.rope_scaling = to_.model.rope_scaling.within(to_.options.sequence * to_.options.context);
    to_.emit(o);
  }
  Op choosing(OpKind kind, const Tensors& in, const Tensors& out) const {
    const Indexer& i = to_.model.indexer;
    Op o = to_.op(kind, in, out, i.heads);
    o.k = i.width;
    o.chosen = std::min(i.chosen, to_.options.sequence);
    o.causal = true;
    return o;
  }

  LinearNotes& to_;
  bool plain_;  ///< of attention that is not latent
  Linear queries_, key_, weights_;
  Norm of_queries_, of_key_;
  TensorId q_made_, q_, k_made_, k_, w_, choice_;
};

}  // namespace orrery::models
