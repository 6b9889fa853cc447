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
#include "models/layers/linear_notes.h"

namespace orrery::models {

class VocabularyLoss {
 public:
  /// `name`: before the names of its tensors.
  VocabularyLoss(LinearNotes& to, Linear unembed, TensorId targets, TensorId loss, double scale,
                 const std::string& name = {})
      : to_(to), unembed_(unembed), targets_(targets), loss_(loss), scale_(scale), name_(name) {
    ENSURE(to_.all_rows % to_.options.loss_chunks == 0, "{} rows in {} parts", to_.all_rows, to_.options.loss_chunks);
    rows_ = unembed_.rows = to_.all_rows / to_.options.loss_chunks;
    logits_ = to_.activation(name + "logits", {rows_, unembed_.out}, to_.options.dtype);
    maxima_ = to_.rows(name + "logits.max", rows_);
    sums_ = to_.activation(name + "logits.sums", {2, rows_}, DType::fp32);
  }

  [[nodiscard]] const Linear& unembed() const { return unembed_; }
  [[nodiscard]] TensorId targets() const { return targets_; }
  [[nodiscard]] TensorId loss() const { return loss_; }
  [[nodiscard]] double scale() const { return scale_; }

  /// Forward: from `a`, the head's input, to the loss. In parts: does nothing yet.
  void forward(TensorId a) {
    if (in_chunks()) return;
    loss_of_rows(to_.gathered(a, name_ + "ln_f.gathered"), targets_);
    if (at_once()) to_.emit(gradient_of(targets_));
  }

  /// Backward: from the logits to `da`. In parts: from `a` to the loss and to `da`.
  void backward(TensorId a, TensorId da) {
    if (!in_chunks()) {
      if (!at_once()) to_.emit(gradient_of(targets_));
      to_.bias_backward(unembed_, logits_);
      to_.column_backward(unembed_, logits_, a, da, name_ + "ln_f");
      return;
    }
    const TensorId all = to_.gathered(a, name_ + "ln_f.gathered_again");
    const TensorId sums = to_.partial(da, "d_" + name_ + "ln_f.partial");
    for (std::int64_t i = 0; i < to_.options.loss_chunks; ++i) {
      const TensorId x = part_of(all, i), targets = part_of(targets_, i);
      loss_of_rows(x, targets);
      to_.emit(gradient_of(targets));
      to_.bias_backward(unembed_, logits_);
      to_.weight_backward(unembed_, logits_, x);
      to_.input_backward(unembed_, logits_, part_of(sums, i));
    }
    to_.add_up(sums, da);
  }

  /// Call once forward is complete. Adds what evaluation runs instead, if it differs: the loss in parts, or without
  /// gradient.
  void evaluate(TensorId a) {
    if (!in_chunks() && !at_once()) return;
    to_.program.evaluation = to_.program.forward;
    if (at_once()) {
      for (Part& part : to_.program.evaluation)
        std::erase_if(part.ops, [](const Op& op) { return op.kind == OpKind::cross_entropy_grad; });
      return;
    }
    to_.current = &to_.program.evaluation;
    const TensorId all = to_.gathered(a, "ln_f.gathered");
    for (std::int64_t i = 0; i < to_.options.loss_chunks; ++i) loss_of_rows(part_of(all, i), part_of(targets_, i));
  }

 private:
  [[nodiscard]] bool in_chunks() const { return to_.options.loss_chunks > 1; }
  [[nodiscard]] bool at_once() const { return !in_chunks() && to_.options.loss_at_once; }

  Op vocabulary_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, unembed_.out);
    o.n = rows_;
    o.vocab = to_.model.vocab;
    o.scale = scale_;
    o.accumulate = kind == OpKind::cross_entropy;
    if (kind == OpKind::cross_entropy_grad || kind == OpKind::soft_cap) o.cap = to_.model.logit_cap;
    return o;
  }

  Op gradient_of(TensorId targets) const {
    return vocabulary_op(OpKind::cross_entropy_grad, {logits_, maxima_, sums_, targets}, {logits_});
  }

  void loss_of_rows(TensorId x, TensorId targets) {
    to_.linear_forward(unembed_, x, logits_, unembed_.bias.exists());
    if (to_.model.logit_cap > 0) to_.emit(vocabulary_op(OpKind::soft_cap, {logits_}, {logits_}));
    to_.emit(vocabulary_op(OpKind::softmax_max, {logits_}, {maxima_}));
    to_.all_reduce(maxima_, GroupOperation::maximum);
    to_.emit(vocabulary_op(OpKind::softmax_sum, {logits_, maxima_, targets}, {sums_}));
    to_.all_reduce(sums_);
    to_.emit(vocabulary_op(OpKind::cross_entropy, {maxima_, sums_}, {loss_}));
  }

  /// Part `i` of the rows of a tensor that has one row for each row of the head.
  TensorId part_of(TensorId whole, std::int64_t i) {
    Tensor t = to_.program.tensors[whole];
    t.shape[0] /= to_.options.loss_chunks;
    t.name += "." + std::to_string(i);
    t.part_of = whole;
    t.first = i * t.elements();
    return to_.add(std::move(t));
  }

  LinearNotes& to_;
  Linear unembed_;
  TensorId targets_, loss_;
  TensorId logits_, maxima_, sums_;  ///< of one part's rows
  std::int64_t rows_ = 0;            ///< of one part
  double scale_ = 1;
  std::string name_;
};

}  // namespace orrery::models
