#pragma once
/// Predictions further than the next token: the module of models::FurtherPrediction, as part of the head. The last
/// block's output is its x. Private to models/; see expand.cpp.
#include <optional>
#include <string>
#include <tuple>

#include "models/layers/block_notes.h"
#include "models/layers/embedding_notes.h"
#include "models/layers/loss_chunks.h"

namespace orrery::models {

class FurtherModule {
 public:
  /// The tokens that it embeds are those that the head (`words`) predicts; it predicts those after them.
  FurtherModule(LinearNotes& to, const VocabularyLoss& words) : to_(to), next_(words.targets()) {
    const std::int64_t c = to_.model.hidden;
    to_.layer = to_.model.layers;
    const std::string at = to_.prefix();
    if (to_.model.tied_embeddings)
      table_ = words.unembed().weight, table_gradient_ = words.unembed().weight_gradient;
    else
      std::tie(table_, table_gradient_) = token_table(to_, true);
    of_hidden_ = to_.norm(at + "hnorm"), of_token_ = to_.norm(at + "enorm");
    from_hidden_ = half(at + "eh_proj.hidden.weight"), from_token_ = half(at + "eh_proj.token.weight");
    embedded_ = to_.own_activation("further.embedded", c);
    hidden_ = to_.own_activation("further.hidden", c), token_ = to_.own_activation("further.token", c);
    joined_ = to_.own_activation("further.joined", c), y_ = to_.own_activation("further.y", c);
    block_.emplace(to_, joined_, y_);
    last_ = to_.norm(at + "ln_f");
    a_ = to_.own_activation("further.ln_f", c);
    loss_.emplace(to_, words.unembed(), input(to_, TensorRole::further_targets), words.loss(),
                  words.scale() * to_.model.further.weight, "further.");
  }

  void forward() {
    look_up(to_, next_, table_, embedded_, "further.embedded.partial");
    to_.norm_forward(of_token_, embedded_, token_);
    to_.norm_forward(of_hidden_, to_.program.x, hidden_);
    to_.linear_forward(from_hidden_, hidden_, joined_, false);
    to_.linear_forward(from_token_, token_, joined_, false);
    to_.current->back().ops.back().accumulate = true;
    block_->forward();
    to_.norm_forward(last_, y_, a_);
    loss_->forward(a_);
  }

  /// Adds its own gradient of x to `dx`, as program.dx.
  void backward(TensorId dx) {
    const std::int64_t c = to_.model.hidden;
    const auto fresh = [&](const char* name) { return to_.own_activation(name, c); };
    const TensorId da = fresh("d_further.ln_f"), dhidden = fresh("d_further.hidden");
    const TensorId dtoken = fresh("d_further.token"), dembedded = fresh("d_further.embedded");
    const TensorId dy = fresh("d_further.y"), djoined = fresh("d_further.joined");
    loss_->backward(a_, da);
    to_.norm_backward(last_, da, y_, {}, dy);
    block_->backward(dy, djoined);
    to_.linear_backward(from_token_, djoined, token_, dtoken);
    to_.linear_backward(from_hidden_, djoined, hidden_, dhidden);
    to_.norm_backward(of_token_, dtoken, embedded_, {}, dembedded);
    const TensorId all = to_.gathered(dembedded, "d_further.embedded.gathered");
    to_.emit(table_op(to_, OpKind::embedding_grad, {next_, all}, table_gradient_));
    to_.norm_backward(of_hidden_, dhidden, to_.program.x, dx, to_.program.dx);
  }

 private:
  Linear half(const std::string& name) {
    const std::int64_t c = to_.model.hidden;
    Linear linear{.in = c, .out = c, .rows = to_.own_rows};
    std::tie(linear.weight, linear.weight_gradient) =
        to_.parameter(to_.by_rows(to_.matrix(name, c, c, -1, to_.model.initial_stddev)));
    return linear;
  }

  LinearNotes& to_;
  Norm of_hidden_, of_token_, last_;
  Linear from_hidden_, from_token_;  ///< the two halves of the product that joins them
  TensorId table_, table_gradient_, next_;
  TensorId hidden_, token_, embedded_, joined_, y_, a_;
  std::optional<PreNormBlock> block_;
  std::optional<VocabularyLoss> loss_;
};

}  // namespace orrery::models
