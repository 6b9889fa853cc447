#pragma once
/// What the entries of the table of families share. Private to models/families*.cpp.
#include "models/families.h"
#include "models/limits.h"

namespace orrery::models::family_parts {

inline constexpr double kMostRate = 0.99;

inline void rate(ConfigKeys& k, const char* key, double& value) {
  k.real({key}, value, 0, kMostRate, 0);
}

inline void sizes(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers", "n_layer"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size", "n_embed", "n_embd"}, m.hidden, 1, kMostWidth);
  k.count({"num_attention_heads", "n_head"}, m.heads, 1, kMostWidth);
}

inline void positions_up_to(ConfigKeys& k, Model& m) {
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence);
}

// transformers 5 moved rope_theta into rope_parameters.
inline void rotation(ConfigKeys& k, Model& m, double share) {
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 10000);
  if (share > 0)
    k.real({"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, m.rotary_share, 0, 1, share);
  if (k.given("rope_scaling"))
    k.remark("rope_scaling is left out: it changes the values of the rotation, not its shape or cost");
}

/// A window that is not shorter than what there is to see is none.
inline void window_within(ConfigKeys& k, Model& m) {
  if (k.reads() && m.window >= m.max_sequence) m.window = m.window_period = 0;
}

}  // namespace orrery::models::family_parts
