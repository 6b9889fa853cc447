#pragma once
/// Parameters and FLOPs of a Model, as counts. The FLOPs used for MFU: matrix products and the full attention matrix.
#include <cstdint>

#include "models/model.h"

namespace orrery::models {

/// All parameters, unpadded; the tied table counts once. GPT-2 small: 124,439,808.
[[nodiscard]] std::int64_t parameters(const Model& model);
/// Those that train: all, or the adapters alone (models/lora.h).
[[nodiscard]] std::int64_t parameters_trained(const Model& model);
/// Of one block: with experts those in one layer may be more than those in another.
[[nodiscard]] std::int64_t parameters_of_block(const Model& model, std::int64_t layer);
/// Parameters that a token passes through, whole tables of embeddings among them (equals parameters() for dense
/// models): of experts as many as are chosen, and those that all take; of a
/// recommendation model those outside the tables, and the rows that a sample looks up.
[[nodiscard]] std::int64_t parameters_active(const Model& model);
/// Of a recommendation model per sample (models/recommender.h). Else forward FLOPs per token at sequence length T:
/// blocks, full attention matrix and head; no recomputation.
[[nodiscard]] double flops_per_token_forward(const Model& model, std::int64_t sequence);
/// Forward times 3 over a batch of `sequences`: the numerator of MFU. Products of weights that do not train have no
/// gradient of the weight: these count twice.
[[nodiscard]] double flops_per_step(const Model& model, std::int64_t sequences, std::int64_t sequence);

}  // namespace orrery::models
