#pragma once
/// Counts a Model's parameters and FLOPs. FLOPs are those that MFU uses: matrix products and the full attention matrix.
#include <cstdint>

#include "models/model.h"

namespace orrery::models {

/// All parameters of the model that inference runs, unpadded; a tied table counts once. GPT-2 small: 124,439,808.
[[nodiscard]] std::int64_t parameters(const Model& model);
/// Beside them: those that only predict further than the next token (Model::further).
[[nodiscard]] std::int64_t parameters_further(const Model& model);
/// Parameters that train: all of them, or the adapters alone (models/lora.h).
[[nodiscard]] std::int64_t parameters_trained(const Model& model);
/// Parameters of one block. In a model with experts, layers may differ.
[[nodiscard]] std::int64_t parameters_of_block(const Model& model, std::int64_t layer);
/// Parameters that a token passes through, including whole embedding tables (for dense models this equals
/// parameters()). Counts the chosen experts and the shared ones. In a recommendation model: the parameters outside the
/// tables, and the rows that a sample looks up.
[[nodiscard]] std::int64_t parameters_active(const Model& model);
/// Forward FLOPs per token at sequence length T: blocks, full attention matrix and head, no recomputation. For a
/// recommendation model: per sample (models/recommender.h).
[[nodiscard]] double flops_per_token_forward(const Model& model, std::int64_t sequence);
/// Forward times 3, over a batch of `sequences`: the numerator of MFU. Products with frozen weights count twice
/// instead, because they have no weight gradient.
[[nodiscard]] double flops_per_step(const Model& model, std::int64_t sequences, std::int64_t sequence);

}  // namespace orrery::models
