#pragma once
/// The heads of a model, with their losses. Private to models/; see expand.cpp.
///
/// The heads of a masked-language model work on few rows. gather_rows takes the predicted rows out of the last block's
/// output, the same number from every sequence, so that sizes are constants although the positions are data. BERT's
/// second head takes the first row of each sequence. Every rank of a tensor group has all of these rows: under sequence
/// parallelism a rank contributes the rows that it holds and zeros for the others, and the group sums them.
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "models/layers/further_notes.h"

namespace orrery::models {

/// The rows of x, while a head works on few of them.
struct HeadRows {
  std::int64_t all = 0, own = 0;
  bool sharded = false;
};
[[nodiscard]] inline Op of_rows(const LinearNotes& to, OpKind kind, const HeadRows& all, TensorId chosen, TensorId rows,
                                TensorId of_x, bool gathers) {
  const Tensor& t = to.program.tensors[chosen];
  Op o = to.op(kind, {gathers ? of_x : chosen, rows}, {gathers ? chosen : of_x}, to.model.hidden);
  o.n = t.shape[0];
  o.k = all.own;
  o.row_shard = all.sharded;
  return o;
}
/// `chosen` = the rows `rows` of x, or without `rows` the first row of each sequence.
inline void pick(LinearNotes& to, const HeadRows& all, TensorId rows, TensorId chosen) {
  to.emit(of_rows(to, OpKind::gather_rows, all, chosen, rows, to.program.x, true));
  if (all.sharded) to.all_reduce(chosen);
}
inline void put_back(LinearNotes& to, const HeadRows& all, TensorId chosen, TensorId rows, bool accumulate) {
  Op o = of_rows(to, OpKind::scatter_rows, all, chosen, rows, to.program.dx, false);
  o.accumulate = accumulate;
  to.emit(o);
}

/// Predicts whether the second segment follows the first, from the first token (Devlin et al. 2019, section 3.1, task
/// 2): a dense layer with tanh (the pooler), then two classes. Each rank of a tensor group computes all of it.
class SecondHead {
 public:
  /// `all`: the rows of x.
  SecondHead(LinearNotes& to, const HeadRows& all, TensorId loss, double scale)
      : to_(to), all_(all), loss_(loss), scale_(scale) {
    constexpr std::int64_t kClasses = 2;
    const std::int64_t c = to_.model.hidden, b = to_.options.batch;
    pooler_ = {.in = c, .out = c, .rows = b};
    classes_ = {.in = c, .out = kClasses, .rows = b};
    for (const auto& [linear, name] : {std::pair{&pooler_, "pooler"}, std::pair{&classes_, "next_sentence"}}) {
      const std::string at = name;
      std::tie(linear->weight, linear->weight_gradient) =
          to_.parameter(to_.matrix(at + ".weight", linear->out, c, -1, to_.model.initial_stddev));
      if (to_.model.bias)
        std::tie(linear->bias, linear->bias_gradient) = to_.parameter(to_.vector(at + ".bias", linear->out, -1, 0));
    }
    first_ = to_.activation("first", {b, c}, to_.options.dtype);
    pooled_ = to_.activation("pooled", {b, c}, to_.options.dtype);
    logits_ = to_.activation("next_sentence.logits", {b, kClasses}, to_.options.dtype);
    answers_ = input(to_, TensorRole::next_sentence);
  }

  void forward() {
    pick(to_, all_, {}, first_);
    to_.linear_forward(pooler_, first_, pooled_, to_.model.bias);
    to_.emit(few(OpKind::tanh, {pooled_}, {pooled_}, to_.model.hidden));
    to_.linear_forward(classes_, pooled_, logits_, to_.model.bias);
    to_.emit(loss_of(OpKind::class_loss, loss_));
  }
  void backward() {
    const TensorId dpooled = to_.activation("d_pooled", {to_.options.batch, to_.model.hidden}, to_.options.dtype);
    const TensorId dfirst = to_.activation("d_first", {to_.options.batch, to_.model.hidden}, to_.options.dtype);
    to_.emit(loss_of(OpKind::class_loss_grad, logits_));
    to_.bias_backward(classes_, logits_);
    to_.linear_backward(classes_, logits_, pooled_, dpooled);
    to_.emit(few(OpKind::tanh_grad, {dpooled, pooled_}, {dpooled}, to_.model.hidden));
    to_.bias_backward(pooler_, dpooled);
    to_.linear_backward(pooler_, dpooled, first_, dfirst);
    put_back(to_, all_, dfirst, {}, to_.program.dx.exists() && to_.model.masked_fraction > 0);
  }

 private:
  Op few(OpKind kind, const Tensors& in, const Tensors& out, std::int64_t columns) const {
    Op o = to_.op(kind, in, out, columns);
    o.n = to_.options.batch;
    return o;
  }
  Op loss_of(OpKind kind, TensorId out) const {
    Op o = few(kind, {logits_, answers_}, {out}, classes_.out);
    o.scale = scale_;
    o.accumulate = kind == OpKind::class_loss;
    return o;
  }

  LinearNotes& to_;
  HeadRows all_;
  Linear pooler_, classes_;
  TensorId first_, pooled_, logits_, answers_, loss_;
  double scale_ = 1;
};

/// What a masked-language head does before it unembeds: dense, GELU, LayerNorm (Devlin et al. 2019). Without it the
/// norm reads the rows as they are.
class HeadTransform {
 public:
  explicit HeadTransform(LinearNotes& to) : to_(to) {
    const std::int64_t c = to_.model.hidden;
    dense_ = {.in = c, .out = c, .rows = to_.own_rows};
    std::tie(dense_.weight, dense_.weight_gradient) =
        to_.parameter(to_.by_rows(to_.matrix("head.dense.weight", c, c, -1, to_.model.initial_stddev)));
    if (to_.model.bias)
      std::tie(dense_.bias, dense_.bias_gradient) = to_.parameter(to_.by_rows(to_.vector("head.dense.bias", c, -1, 0)));
    made_ = to_.own_activation("head.dense", c);
    activated_ = to_.own_activation("head.activated", c);
  }
  [[nodiscard]] TensorId out() const { return activated_; }

  void forward(TensorId x) {
    to_.linear_forward(dense_, x, made_, to_.model.bias);
    to_.emit(to_.own_op(to_.activation_kind(), {made_}, {activated_}, to_.model.hidden));
  }
  // `dactivated` becomes the gradient of the dense product.
  void backward(TensorId dactivated, TensorId x, TensorId dx) {
    to_.emit(to_.own_op(gradient_of(to_.activation_kind()), {dactivated, to_.rectifies() ? activated_ : made_},
                        {dactivated}, to_.model.hidden));
    to_.bias_backward(dense_, dactivated);
    to_.linear_backward(dense_, dactivated, x, dx);
  }

 private:
  LinearNotes& to_;
  Linear dense_;
  TensorId made_, activated_;
};

/// The head: the last norm, the product with the vocabulary, the loss; beside them what the model's family has.
class Head {
 public:
  explicit Head(LinearNotes& to)
      : to_(to),
        predicted_(to.options.batch * predictions_per_sequence(to.model, to.options.sequence)),
        all_{to.all_rows, to.own_rows, to.sharded} {
    const std::int64_t c = to_.model.hidden;
    if (predicted_ > 0) {
      to_.all_rows = to_.own_rows = predicted_;
      to_.sharded = false;
    }
    Linear unembed = make_unembed();
    if (!to_.model.pre_norm) transform_.emplace(to_);
    if (to_.model.head_bias || (to_.model.bias && !to_.model.pre_norm)) {  // a bias per word
      Tensor words = to_.vector("head.bias", unembed.out * to_.options.tensor, 0, 0);
      words.logical_shape[0] = to_.model.vocab;
      std::tie(unembed.bias, unembed.bias_gradient) = to_.parameter(words);
    }
    if (to_.model.streams.any()) streams_.emplace(to_, "head.", true);
    last_ = to_.norm("ln_f");
    if (predicted_ > 0) masked_rows_ = input(to_, TensorRole::masked_rows);
    const TensorId targets = input(to_, TensorRole::targets);
    a_ = to_.own_activation("ln_f", c);
    const TensorId loss = to_.role("loss", TensorRole::loss, {1}, DType::fp32);
    words_.emplace(to_, unembed, targets, loss, 1.0 / tokens_of_loss());
    if (to_.model.next_sentence) second_.emplace(to_, all_, loss, 1.0 / sequences());
    picked_ = predicted_ > 0 ? to_.activation("masked", c) : streams_ ? streams_->mixed() : to_.program.x;
  }

  void forward() {
    if (predicted_ > 0) pick(to_, all_, masked_rows_, picked_);
    if (streams_) streams_->forward(to_.program.x);
    if (transform_) transform_->forward(picked_);
    to_.norm_forward(last_, into_norm(), a_);
    words_->forward(a_);
    if (second_) second_->forward();
    words_->evaluate(a_);
    if (!to_.model.further.any()) return;
    if (to_.program.evaluation.empty()) to_.program.evaluation = to_.program.forward;
    to_.current = &to_.program.forward;
    further_.emplace(to_, *words_);
    further_->forward();
  }

  void backward() {
    const std::int64_t c = to_.model.hidden;
    const TensorId da = to_.own_activation("d_ln_f", c);
    to_.begin(to_.program.backward);
    words_->backward(a_, da);
    const TensorId dpicked = predicted_ > 0         ? to_.activation("d_masked", c)
                             : further_ || streams_ ? to_.own_activation("d_ln_f.x", c)
                                                    : to_.program.dx;
    if (transform_) {
      const TensorId dactivated = to_.own_activation("d_head.activated", c);
      to_.norm_backward(last_, da, into_norm(), {}, dactivated);
      transform_->backward(dactivated, picked_, dpicked);
    } else {
      to_.norm_backward(last_, da, picked_, {}, dpicked);
    }
    if (predicted_ > 0) put_back(to_, all_, dpicked, masked_rows_, false);
    if (second_) second_->backward();
    if (further_) further_->backward(dpicked);
    if (streams_) streams_->backward(dpicked, {}, to_.program.x, {}, to_.program.dx);
  }

 private:
  Linear make_unembed() {
    const auto [table, table_gradient] = token_table(to_, to_.model.tied_embeddings);
    const std::int64_t columns =
        padded_vocab(to_.model, to_.options.tensor, to_.options.vocab_multiple) / to_.options.tensor;
    return {.weight = table,
            .weight_gradient = table_gradient,
            .in = to_.model.hidden,
            .out = columns,
            .rows = to_.all_rows,
            .scale = to_.model.logit_scale};
  }
  [[nodiscard]] TensorId into_norm() const { return transform_ ? transform_->out() : picked_; }
  [[nodiscard]] double sequences() const {  // of the step
    return static_cast<double>(to_.options.global_tokens) / static_cast<double>(to_.options.sequence);
  }
  [[nodiscard]] double tokens_of_loss() const {
    return predicted_ > 0 ? sequences() * static_cast<double>(predicted_) / static_cast<double>(to_.options.batch)
                          : static_cast<double>(to_.options.global_tokens);
  }

  LinearNotes& to_;
  std::int64_t predicted_;  ///< rows that a masked-language model predicts; 0: all
  HeadRows all_;
  Norm last_;
  TensorId masked_rows_, picked_, a_;
  std::optional<HeadTransform> transform_;
  std::optional<StreamMixing> streams_;
  std::optional<VocabularyLoss> words_;
  std::optional<SecondHead> second_;
  std::optional<FurtherModule> further_;
};

inline void head(LinearNotes& to) {
  to.ends(true, false);
  Head made(to);
  to.begin(to.program.forward);
  made.forward();
  made.backward();
}

}  // namespace orrery::models
