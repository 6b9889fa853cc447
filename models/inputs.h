#pragma once
/// What a training step reads of its data: the tensors that load_tokens makes of a micro-batch.
#include <cstdint>
#include <vector>

#include "models/expand.h"

namespace orrery::models {

/// Tokens of a sequence that a masked-language model predicts: the nearest whole number to its fraction, at least 1,
/// and not [CLS] and [SEP] (the rule of Devlin et al.'s data preparation). 0: it predicts the next of each.
[[nodiscard]] std::int64_t predictions_per_sequence(const Model& model, std::int64_t sequence);
/// The shortest sequence that holds what a masked-language model adds to its text, and a token of each segment.
inline constexpr std::int64_t kShortestMasked = 8;

struct Input {
  TensorRole role{};
  const char* name = "";
  std::int64_t elements = 0;
  bool of_embedding = false;  ///< read by the embedding; the others by the head
};
/// In the order of load_tokens' outputs, for B sequences of T tokens.
[[nodiscard]] std::vector<Input> inputs_of(const Model& model, std::int64_t batch, std::int64_t sequence);
/// The operator without its outputs.
[[nodiscard]] Op load_of(const Model& model, std::int64_t batch, std::int64_t sequence, std::int64_t context);

}  // namespace orrery::models
