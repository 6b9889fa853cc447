// Shapes of a step's inputs: next tokens and those after them, or BERT's masked ones with their positions.
#include "models/layers/inputs.h"

#include <algorithm>
#include <cmath>

namespace orrery::models {

std::int64_t predictions_per_sequence(const Model& model, std::int64_t sequence) {
  if (model.masked_fraction <= 0) return 0;
  constexpr std::int64_t kSpecial = 3;  // [CLS], and [SEP] twice
  const std::int64_t nearest = std::llround(model.masked_fraction * static_cast<double>(sequence));
  return std::max<std::int64_t>(1, std::min(nearest, sequence - kSpecial));
}

std::vector<Input> inputs_of(const Model& model, std::int64_t batch, std::int64_t sequence) {
  const std::int64_t predicted = batch * predictions_per_sequence(model, sequence);
  std::vector<Input> out = {{TensorRole::tokens, "tokens", batch * sequence, true},
                            {TensorRole::targets, "targets", predicted > 0 ? predicted : batch * sequence, false}};
  if (predicted == 0 && model.token_types == 0 && !model.further.any()) return out;
  out.push_back({TensorRole::token_types, "token_types", model.token_types > 0 ? batch * sequence : 0, true});
  out.push_back({TensorRole::masked_rows, "masked_rows", predicted, false});
  out.push_back({TensorRole::next_sentence, "next_sentence", model.next_sentence ? batch : 0, false});
  if (model.further.any()) out.push_back({TensorRole::further_targets, "further_targets", batch * sequence, false});
  return out;
}

Op load_of(const Model& model, std::int64_t batch, std::int64_t sequence, std::int64_t context) {
  Op load;
  load.kind = OpKind::load_tokens;
  load.dtype = DType::int32;
  load.batch = batch;
  load.sequence = sequence;
  load.context = context;
  load.vocab = model.vocab;
  load.k = predictions_per_sequence(model, sequence);
  return load;
}

}  // namespace orrery::models
