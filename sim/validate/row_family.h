#pragma once
/// Which of Orrery's families has the block of a row's model.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/validate/rows.h"

namespace orrery::sim {

/// Other names of model families, in terms of Orrery's; MPT differs from GPT-2 in biases and positions.
struct FamilyWord {
  const char* word;
  const char* family;
  const char* extra;                        ///< further lines of the model's text
  std::int64_t vocab;                       ///< default: GPT-2's, BERT's, Llama 2's and PaLM's own
  std::int64_t kv_heads = 0, head_dim = 0;  ///< defaults; 0: as Orrery's family has them
  bool tied = false;                        ///< default: one table, in a family that has two
};

/// The family of the row's name or, of others' names, the one with the same block: RMS norms, a gated MLP and rotation;
/// encoders. Of an unknown name a mixture has Llama's block, as nearly all of them have; a dense model too if its MLP
/// is gated: as `activation` or `gated_mlp` says or, where the row has neither, as its number of parameters does. Else
/// it has GPT-2's. `notes` says what was taken for it.
[[nodiscard]] const FamilyWord& family_of(const Setup& setup, std::vector<std::string>& notes);

/// Heads of keys and values where tensor ranks that are a multiple of them each have one whole, as GSPMD and
/// Megatron-Core copy them: as many as these ranks.
[[nodiscard]] std::int64_t copied_groups(std::int64_t groups, std::int64_t tensor, std::vector<std::string>& notes);

}  // namespace orrery::sim
