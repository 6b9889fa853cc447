#pragma once
/// The indexer that chooses which tokens latent attention reads (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1).
/// Private to models/; see attention_notes.h.
///
/// Its queries come from the narrow vector of attention's queries, its one key and its heads' weights from the token;
/// none of them passes a gradient on. Every tensor rank has all of its heads, since all of attention's heads read the
/// same tokens; what it learns is summed over the ranks' heads of attention. Layers that share a choice
/// (Indexer::every) read it where it lies: carrying it on counts nothing.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/linear_notes.h"

namespace orrery::models {

class TokenIndexer {
 public:
  /// `at`: before the names of its parameters.
  TokenIndexer(LinearNotes& to, const std::string& at) : to_(to) {
    const Indexer& i = to_.model.indexer;
    make(queries_, at + "index.q.weight", i.heads * i.width, to_.model.latent.q_rank);
    make(key_, at + "index.k.weight", i.width, to_.model.hidden);
    make(weights_, at + "index.weights.weight", i.heads, to_.model.hidden);
    const auto of_key = [&](const char* name, double value) {
      return to_.parameter(to_.by_heads(to_.vector(at + name, i.width, -1, value)));
    };
    std::tie(norm_.weight, norm_.weight_gradient) = of_key("index.k_norm.weight", 1);
    std::tie(norm_.bias, norm_.bias_gradient) = of_key("index.k_norm.bias", 0);
    norm_.mean = to_.rows("index.k.mean", to_.all_rows);
    norm_.rstd = to_.rows("index.k.rstd", to_.all_rows);
    q_ = to_.activation("index.q", queries_.out);
    k_made_ = to_.activation("index.k.made", key_.out);
    k_ = to_.activation("index.k", key_.out);
    w_ = to_.activation("index.weights", weights_.out);
    choice_ = to_.activation("index.choice", {to_.all_rows, std::min(i.chosen, to_.options.sequence)}, DType::int32);
  }

  [[nodiscard]] TensorId choice() const { return choice_; }

  /// From the token and its narrow vector for queries; all rows.
  void forward(TensorId x, TensorId narrow) {
    to_.linear_forward(queries_, narrow, q_, false);
    to_.linear_forward(key_, x, k_made_, false);
    to_.linear_forward(weights_, x, w_, false);
    Op norm = to_.op(OpKind::layer_norm, {k_made_, norm_.weight, norm_.bias}, {k_, norm_.mean, norm_.rstd}, key_.out);
    norm.epsilon = to_.model.norm_epsilon;
    to_.emit(norm);
    rotate(OpKind::rope, q_, to_.model.indexer.heads);
    rotate(OpKind::rope, k_, 1);
    to_.emit(choosing(OpKind::choose_tokens, {q_, k_, w_}, {choice_}));
  }

  /// Learns from attention's q and k and what it saved. `heads`: of this rank.
  void backward(TensorId packed, TensorId saved, std::int64_t heads, TensorId x, TensorId narrow) {
    if (!queries_.trains()) return;
    const TensorId dq = to_.activation("d_index.q", queries_.out), dk = to_.activation("d_index.k", key_.out);
    const TensorId dmade = to_.activation("d_index.k.made", key_.out);
    const TensorId dw = to_.activation("d_index.weights", weights_.out);
    Op o = choosing(OpKind::choose_tokens_grad, {packed, saved, choice_, q_, k_, w_}, {dq, dk, dw});
    o.heads = o.kv_heads = heads;
    o.head_dim = to_.model.head_dim;
    to_.emit(o);
    rotate(OpKind::rope_grad, dq, to_.model.indexer.heads);
    rotate(OpKind::rope_grad, dk, 1);
    Op norm = to_.op(OpKind::layer_norm_grad, {dk, k_made_, norm_.weight, norm_.mean, norm_.rstd, {}},
                     {dmade, norm_.weight_gradient, norm_.bias_gradient}, key_.out);
    norm.accumulate = true;
    norm.epsilon = to_.model.norm_epsilon;
    to_.emit(norm);
    to_.weight_backward(queries_, dq, narrow);
    to_.weight_backward(key_, dmade, x);
    to_.weight_backward(weights_, dw, x);
  }

 private:
  void make(Linear& linear, const std::string& name, std::int64_t out, std::int64_t in) {
    linear = {.in = in, .out = out, .rows = to_.all_rows};
    std::tie(linear.weight, linear.weight_gradient) =
        to_.parameter(to_.by_heads(to_.matrix(name, out, in, -1, to_.model.initial_stddev)));
  }
  void rotate(OpKind kind, TensorId of, std::int64_t heads) {
    Op o = to_.op(kind, {of}, {of}, 0);
    o.heads = heads;
    o.head_dim = to_.model.indexer.width;
    o.rotary = to_.model.latent.rope;
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
  Linear queries_, key_, weights_;
  Norm norm_;  ///< of the key
  TensorId q_, k_made_, k_, w_, choice_;
};

}  // namespace orrery::models
