#pragma once
/// The ends of a model: embeddings, and heads with their losses. Private to models/; see expand.cpp.
///
/// The heads of a masked-language model work on few rows. gather_rows takes the predicted rows out of the last block's
/// output, the same number from every sequence, so that sizes are constants although the positions are data. BERT's
/// second head takes the first row of each sequence. Every rank of a tensor group has all of these rows: under sequence
/// parallelism a rank contributes the rows that it holds and zeros for the others, and the group sums them.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/inputs.h"
#include "models/layers/loss_chunks.h"

namespace orrery::models {

class EndNotes : protected LossNotes {
 protected:
  using LossNotes::LossNotes;

  std::pair<TensorId, TensorId> token_table(bool shared) {
    const std::int64_t padded = padded_vocab(model_, options_.tensor, options_.vocab_multiple);
    Tensor table = matrix(shared || program_.kind == LayerKind::embedding ? "wte.weight" : "lm_head.weight", padded,
                          model_.hidden, 0, model_.initial_stddev);
    table.logical_shape[0] = model_.vocab;
    table.shared = shared;
    return parameter(table);
  }

  TensorId input(TensorRole wanted) {
    for (const Input& one : inputs_of(model_, options_.batch, options_.sequence))
      if (one.role == wanted) return role(one.name, wanted, {one.elements}, DType::int32);
    return {};
  }

  void embedding() {
    ends(false, true);
    const std::int64_t c = model_.hidden;
    const auto [table, table_gradient] = token_table(model_.shares_table());
    const TensorId tokens = role("tokens", TensorRole::tokens, {options_.batch, options_.sequence}, DType::int32);
    const bool learned = model_.positions == Positions::learned, typed = model_.token_types > 0;
    TensorId positions, positions_gradient, kinds, kinds_gradient;
    if (learned)
      std::tie(positions, positions_gradient) =
          parameter(matrix("wpe.weight", model_.position_offset + model_.max_sequence, c, -1, model_.initial_stddev));
    if (typed)
      std::tie(kinds, kinds_gradient) =
          parameter(matrix("wtt.weight", model_.token_types, c, -1, model_.initial_stddev));
    const TensorId types = typed ? input(TensorRole::token_types) : TensorId();
    Norm after;
    const bool normed = model_.embedding_norm || !model_.pre_norm;
    if (normed) after = norm("ln_e");
    const TensorId e = normed ? own_activation("embedded", c) : program_.y;
    begin(program_.forward);
    look_up(tokens, table, e, "embedded.partial");
    const auto add_row = [&](OpKind kind, const Tensors& in) {
      Op place = own_op(kind, in, {e}, c);
      place.row_shard = sharded_;
      place.k = kind == OpKind::type_add ? model_.token_types : model_.position_offset;
      emit(place);
    };
    if (learned) add_row(OpKind::position_add, {e, positions});
    if (typed) add_row(OpKind::type_add, {e, kinds, types});
    if (normed) norm_forward(after, e, program_.y);
    const double rate = model_.dropout.embedding;
    if (drops(rate)) emit(drawing(own_op(OpKind::dropout, {program_.y}, {program_.y}, c), rate, kEmbeddingSite));

    begin(program_.backward);
    if (model_.lora.any()) return;  // nothing here trains
    const TensorId dy = dropped(program_.dy, rate, kEmbeddingSite, "d_dropped");
    TensorId de = dy;
    if (normed) {
      de = own_activation("d_embedded", c);
      norm_backward(after, dy, e, {}, de);
    }
    de = gathered(de, "d_embedded.gathered");
    if (learned) {
      Op grad = op(OpKind::position_grad, {de}, {positions_gradient}, c);
      grad.k = model_.position_offset;
      grad.accumulate = true;
      emit(grad);
    }
    if (typed) {
      Op grad = op(OpKind::type_grad, {de, types}, {kinds_gradient}, c);
      grad.k = model_.token_types;
      grad.accumulate = true;
      emit(grad);
    }
    emit(table_op(OpKind::embedding_grad, {tokens, de}, table_gradient));
  }

  /// The rows of the token table for `tokens`, summed over the tensor group where `name` says, as `e`.
  void look_up(TensorId tokens, TensorId table, TensorId e, const std::string& name) {
    const TensorId sums = partial(e, name);
    emit(table_op(OpKind::embedding, {tokens, table}, sums));
    add_up(sums, e);
  }
  Op table_op(OpKind kind, const Tensors& in, TensorId out) const {
    Op o = op(kind, in, {out}, padded_vocab(model_, options_.tensor, options_.vocab_multiple) / options_.tensor);
    o.k = model_.hidden;
    o.vocab = model_.vocab;
    o.scale = model_.scaled_embedding ? std::sqrt(static_cast<double>(model_.hidden)) : 1;
    o.accumulate = kind == OpKind::embedding_grad;
    return o;
  }

  /// `further`: what predicts further than the next token. Its forward(loss) runs behind the loss; its backward(dx)
  /// after the loss's gradient has come back as `dx`, to which it adds its own, as program_.dx.
  template <class Further>
  void head(Further further) {
    ends(true, false);
    const std::int64_t c = model_.hidden;
    const std::int64_t predicted = options_.batch * predictions_per_sequence(model_, options_.sequence);
    const Rows all{n_, own_rows_, sharded_};
    if (predicted > 0) work_on({predicted, predicted, false});
    const auto [table, table_gradient] = token_table(model_.tied_embeddings);
    const std::int64_t columns = padded_vocab(model_, options_.tensor, options_.vocab_multiple) / options_.tensor;
    Linear unembed{.weight = table, .weight_gradient = table_gradient, .in = c, .out = columns, .rows = n_};
    // BERT's masked-language head transforms before it unembeds (dense, GELU, LayerNorm; Devlin et al. 2019) and adds a
    // bias per word.
    Linear transform{.in = c, .out = c, .rows = own_rows_};
    TensorId dense, activated;
    if (!model_.pre_norm) {
      std::tie(transform.weight, transform.weight_gradient) =
          parameter(by_rows(matrix("head.dense.weight", c, c, -1, model_.initial_stddev)));
      if (model_.bias)
        std::tie(transform.bias, transform.bias_gradient) = parameter(by_rows(vector("head.dense.bias", c, -1, 0)));
      dense = own_activation("head.dense", c);
      activated = own_activation("head.activated", c);
    }
    if (model_.head_bias || (model_.bias && !model_.pre_norm)) {
      Tensor words = vector("head.bias", columns * options_.tensor, 0, 0);
      words.logical_shape[0] = model_.vocab;
      std::tie(unembed.bias, unembed.bias_gradient) = parameter(words);
    }
    const Norm last = norm("ln_f");
    const TensorId rows_of_x = predicted > 0 ? input(TensorRole::masked_rows) : TensorId();
    const TensorId targets = input(TensorRole::targets);
    const TensorId a = own_activation("ln_f", c);
    const TensorId loss = role("loss", TensorRole::loss, {1}, DType::fp32);
    const double sequences = static_cast<double>(options_.global_tokens) / static_cast<double>(options_.sequence);
    const double tokens_of_loss = predicted > 0
                                      ? sequences * static_cast<double>(predicted) / static_cast<double>(options_.batch)
                                      : static_cast<double>(options_.global_tokens);
    const VocabularyLoss words = make_loss(unembed, targets, loss, 1.0 / tokens_of_loss);
    const SecondHead second = model_.next_sentence ? make_second_head(loss, 1.0 / sequences) : SecondHead{};
    const TensorId picked = predicted > 0 ? activation("masked", c) : program_.x;
    begin(program_.forward);
    if (predicted > 0) pick(all, rows_of_x, picked);
    TensorId into_norm = picked;
    if (dense.exists()) {
      linear_forward(transform, picked, dense, model_.bias);
      emit(own_op(activation_kind(), {dense}, {activated}, c));
      into_norm = activated;
    }
    norm_forward(last, into_norm, a);
    loss_forward(words, a);
    if (second.first.exists()) second_forward(second, all);
    evaluate_loss(words, a);
    if (further.any()) {
      if (program_.evaluation.empty()) program_.evaluation = program_.forward;
      current_ = &program_.forward;
      further.forward(words);
    }

    const TensorId da = own_activation("d_ln_f", c);
    begin(program_.backward);
    loss_backward(words, a, da);
    const TensorId dpicked = predicted > 0   ? activation("d_masked", c)
                             : further.any() ? own_activation("d_ln_f.x", c)
                                             : program_.dx;
    if (!dense.exists()) {
      norm_backward(last, da, picked, {}, dpicked);
    } else {
      const TensorId dactivated = own_activation("d_head.activated", c);
      norm_backward(last, da, activated, {}, dactivated);
      emit(own_op(models::gradient_of(activation_kind()), {dactivated, rectifies() ? activated : dense}, {dactivated},
                  c));
      bias_backward(transform, dactivated);
      linear_backward(transform, dactivated, picked, dpicked);
    }
    if (predicted > 0) put_back(all, dpicked, rows_of_x, false);
    if (second.first.exists()) second_backward(second, all);
    if (further.any()) further.backward(dpicked);
  }

 private:
  /// The rows that a part of the layer works on.
  struct Rows {
    std::int64_t all = 0, own = 0;
    bool sharded = false;
  };
  void work_on(const Rows& rows) {
    n_ = rows.all;
    own_rows_ = rows.own;
    sharded_ = rows.sharded;
  }

  /// Predicts whether the second segment follows the first, from the first token (Devlin et al. 2019, section 3.1, task
  /// 2): a dense layer with tanh (the pooler), then two classes. Each rank of a tensor group computes all of it.
  struct SecondHead {
    Linear pooler, classes;
    TensorId first = {}, pooled = {}, logits = {}, answers = {}, loss = {};
    double scale = 1;
  };
  SecondHead make_second_head(TensorId loss, double scale) {
    constexpr std::int64_t kClasses = 2;
    const std::int64_t c = model_.hidden, b = options_.batch;
    SecondHead s{.pooler = {.in = c, .out = c, .rows = b}, .classes = {.in = c, .out = kClasses, .rows = b}};
    for (const auto& [linear, name] : {std::pair{&s.pooler, "pooler"}, std::pair{&s.classes, "next_sentence"}}) {
      const std::string at = name;
      std::tie(linear->weight, linear->weight_gradient) =
          parameter(matrix(at + ".weight", linear->out, c, -1, model_.initial_stddev));
      if (model_.bias)
        std::tie(linear->bias, linear->bias_gradient) = parameter(vector(at + ".bias", linear->out, -1, 0));
    }
    s.first = activation("first", {b, c}, options_.dtype);
    s.pooled = activation("pooled", {b, c}, options_.dtype);
    s.logits = activation("next_sentence.logits", {b, kClasses}, options_.dtype);
    s.answers = input(TensorRole::next_sentence);
    s.loss = loss;
    s.scale = scale;
    return s;
  }
  Op few(OpKind kind, const Tensors& in, const Tensors& out, std::int64_t columns) const {
    Op o = op(kind, in, out, columns);
    o.n = options_.batch;
    return o;
  }
  Op loss_of(const SecondHead& s, OpKind kind, TensorId out) const {
    Op o = few(kind, {s.logits, s.answers}, {out}, s.classes.out);
    o.scale = s.scale;
    o.accumulate = kind == OpKind::class_loss;
    return o;
  }
  void second_forward(const SecondHead& s, const Rows& all) {
    pick(all, {}, s.first);
    linear_forward(s.pooler, s.first, s.pooled, model_.bias);
    emit(few(OpKind::tanh, {s.pooled}, {s.pooled}, model_.hidden));
    linear_forward(s.classes, s.pooled, s.logits, model_.bias);
    emit(loss_of(s, OpKind::class_loss, s.loss));
  }
  void second_backward(const SecondHead& s, const Rows& all) {
    const TensorId dpooled = activation("d_pooled", {options_.batch, model_.hidden}, options_.dtype);
    const TensorId dfirst = activation("d_first", {options_.batch, model_.hidden}, options_.dtype);
    emit(loss_of(s, OpKind::class_loss_grad, s.logits));
    bias_backward(s.classes, s.logits);
    linear_backward(s.classes, s.logits, s.pooled, dpooled);
    emit(few(OpKind::tanh_grad, {dpooled, s.pooled}, {dpooled}, model_.hidden));
    bias_backward(s.pooler, dpooled);
    linear_backward(s.pooler, dpooled, s.first, dfirst);
    put_back(all, dfirst, {}, program_.dx.exists() && model_.masked_fraction > 0);
  }

  Op of_rows(OpKind kind, const Rows& all, TensorId chosen, TensorId rows, TensorId of_x, bool gathers) const {
    const Tensor& t = program_.tensors[chosen];
    Op o = op(kind, {gathers ? of_x : chosen, rows}, {gathers ? chosen : of_x}, model_.hidden);
    o.n = t.shape[0];
    o.k = all.own;
    o.row_shard = all.sharded;
    return o;
  }
  /// `chosen` = the rows `rows` of x, or without `rows` the first row of each sequence.
  void pick(const Rows& all, TensorId rows, TensorId chosen) {
    emit(of_rows(OpKind::gather_rows, all, chosen, rows, program_.x, true));
    if (all.sharded) all_reduce(chosen);
  }
  void put_back(const Rows& all, TensorId chosen, TensorId rows, bool accumulate) {
    Op o = of_rows(OpKind::scatter_rows, all, chosen, rows, program_.dx, false);
    o.accumulate = accumulate;
    emit(o);
  }
};

}  // namespace orrery::models
