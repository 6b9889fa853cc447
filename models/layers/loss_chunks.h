#pragma once
/// The loss over the vocabulary: with logits of all of a micro-batch's rows at once, or part by part. Private to
/// models/; see expand.cpp.
///
/// Logits are the largest tensor of a model with a large vocabulary, and a row's gradient needs nothing from other
/// rows. In parts, the product, the softmax, its gradient and the results (the gradient of the head's input, and sums
/// into the table's) run for one part before the next begins, in the same memory. All of this happens in the backward
/// pass. Nothing in a step waits for the loss, so nothing is computed twice; forward keeps the head's input instead of
/// its logits. Evaluation, which has no backward pass, has a forward pass of its own.
///
/// With all rows at once, the gradient comes right after the loss if backward follows forward anyway (`loss_at_once`):
/// it replaces the logits while they are at hand, and a device may do both in one kernel.
#include <string>
#include <utility>
#include <vector>

#include "base/ensure.h"
#include "models/layers/expert_notes.h"

namespace orrery::models {

class LossNotes : protected ExpertNotes {
 protected:
  using ExpertNotes::ExpertNotes;

  struct VocabularyLoss {
    Linear unembed;
    TensorId targets = {}, loss = {};
    TensorId logits = {}, maxima = {}, sums = {};  ///< of one part's rows
    std::int64_t rows = 0;                         ///< of one part
    double scale = 1;
    std::string name = {};  ///< before the names of its tensors
  };

  [[nodiscard]] bool in_chunks() const { return options_.loss_chunks > 1; }
  [[nodiscard]] bool at_once() const { return !in_chunks() && options_.loss_at_once; }

  VocabularyLoss make_loss(Linear unembed, TensorId targets, TensorId loss, double scale,
                           const std::string& name = {}) {
    ENSURE(n_ % options_.loss_chunks == 0, "{} rows in {} parts", n_, options_.loss_chunks);
    VocabularyLoss l{.unembed = unembed, .targets = targets, .loss = loss};
    l.rows = l.unembed.rows = n_ / options_.loss_chunks;
    l.logits = activation(name + "logits", {l.rows, unembed.out}, options_.dtype);
    l.maxima = rows(name + "logits.max", l.rows);
    l.sums = activation(name + "logits.sums", {2, l.rows}, DType::fp32);
    l.scale = scale;
    l.name = name;
    return l;
  }

  /// Forward: from `a`, the head's input, to the loss. In parts: does nothing yet.
  void loss_forward(const VocabularyLoss& l, TensorId a) {
    if (in_chunks()) return;
    loss_of_rows(l, gathered(a, l.name + "ln_f.gathered"), l.targets);
    if (at_once()) emit(gradient_of(l, l.targets));
  }

  /// Backward: from the logits to `da`. In parts: from `a` to the loss and to `da`.
  void loss_backward(const VocabularyLoss& l, TensorId a, TensorId da) {
    if (!in_chunks()) {
      if (!at_once()) emit(gradient_of(l, l.targets));
      bias_backward(l.unembed, l.logits);
      column_backward(l.unembed, l.logits, a, da, l.name + "ln_f");
      return;
    }
    const TensorId all = gathered(a, l.name + "ln_f.gathered_again");
    const TensorId sums = partial(da, "d_" + l.name + "ln_f.partial");
    for (std::int64_t i = 0; i < options_.loss_chunks; ++i) {
      const TensorId x = part_of(all, i), targets = part_of(l.targets, i);
      loss_of_rows(l, x, targets);
      emit(gradient_of(l, targets));
      bias_backward(l.unembed, l.logits);
      weight_backward(l.unembed, l.logits, x);
      input_backward(l.unembed, l.logits, part_of(sums, i));
    }
    add_up(sums, da);
  }

  /// Call once forward is complete. Adds what evaluation runs instead, if it differs: the loss in parts, or without
  /// gradient.
  void evaluate_loss(const VocabularyLoss& l, TensorId a) {
    if (!in_chunks() && !at_once()) return;
    program_.evaluation = program_.forward;
    if (at_once()) {
      for (Part& part : program_.evaluation)
        std::erase_if(part.ops, [](const Op& op) { return op.kind == OpKind::cross_entropy_grad; });
      return;
    }
    current_ = &program_.evaluation;
    const TensorId all = gathered(a, "ln_f.gathered");
    for (std::int64_t i = 0; i < options_.loss_chunks; ++i) loss_of_rows(l, part_of(all, i), part_of(l.targets, i));
  }

 private:
  Op vocabulary_op(const VocabularyLoss& l, OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = op(kind, in, out, l.unembed.out);
    o.n = l.rows;
    o.vocab = model_.vocab;
    o.scale = l.scale;
    o.accumulate = kind == OpKind::cross_entropy;
    if (kind == OpKind::cross_entropy_grad || kind == OpKind::soft_cap) o.cap = model_.logit_cap;
    return o;
  }

  Op gradient_of(const VocabularyLoss& l, TensorId targets) const {
    return vocabulary_op(l, OpKind::cross_entropy_grad, {l.logits, l.maxima, l.sums, targets}, {l.logits});
  }

  void loss_of_rows(const VocabularyLoss& l, TensorId x, TensorId targets) {
    linear_forward(l.unembed, x, l.logits, l.unembed.bias.exists());
    if (model_.logit_cap > 0) emit(vocabulary_op(l, OpKind::soft_cap, {l.logits}, {l.logits}));
    emit(vocabulary_op(l, OpKind::softmax_max, {l.logits}, {l.maxima}));
    all_reduce(l.maxima, GroupOperation::maximum);
    emit(vocabulary_op(l, OpKind::softmax_sum, {l.logits, l.maxima, targets}, {l.sums}));
    all_reduce(l.sums);
    emit(vocabulary_op(l, OpKind::cross_entropy, {l.maxima, l.sums}, {l.loss}));
  }

  /// Part `i` of the rows of a tensor that has one row for each row of the head.
  TensorId part_of(TensorId whole, std::int64_t i) {
    Tensor t = program_.tensors[whole];
    t.shape[0] /= options_.loss_chunks;
    t.name += "." + std::to_string(i);
    t.part_of = whole;
    t.first = i * t.elements();
    return add(std::move(t));
  }
};

}  // namespace orrery::models
