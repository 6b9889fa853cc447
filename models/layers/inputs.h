#pragma once
/// What a training step reads from its data: the tensors that load_tokens makes for a micro-batch.
#include <cstdint>
#include <vector>

#include "models/layers/expand.h"

namespace orrery::models {

/// How many tokens of a sequence a masked-language model predicts: its fraction to the nearest whole number, at least
/// 1, leaving out [CLS] and [SEP] (the rule of Devlin et al.'s data preparation). 0: for every token, the next one is
/// predicted.
[[nodiscard]] std::int64_t predictions_per_sequence(const Model& model, std::int64_t sequence);
/// The shortest sequence that holds what a masked-language model adds to its text, plus a token of each segment.
inline constexpr std::int64_t kShortestMasked = 8;

struct Input {
  TensorRole role{};
  const char* name = "";
  std::int64_t elements = 0;
  bool of_embedding = false;  ///< read by the embedding; the others by the head
};
/// In the order of load_tokens' outputs, for B sequences of T tokens.
[[nodiscard]] std::vector<Input> inputs_of(const Model& model, std::int64_t batch, std::int64_t sequence);
/// The operator, without its outputs.
[[nodiscard]] Op load_of(const Model& model, std::int64_t batch, std::int64_t sequence, std::int64_t context);

}  // namespace orrery::models
