#pragma once
/// Interprets rows of mixtures of experts: the model that their name means, and what their words say about how tokens
/// travel, what is recomputed and how evenly experts are loaded. rows.cpp reads the numeric keys.
#include <string>
#include <vector>

#include "models/model.h"
#include "models/names.h"
#include "plan/spec/modules.h"
#include "plan/spec/software.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Words of rows are compared in small letters.
[[nodiscard]] std::string small_letters(std::string text);

/// The catalogue's model that a row's `model` names: one name begins with the letters and digits of the other, and
/// layers, width, heads and experts match the row. Nothing if there is none, or if it cannot be planned.
[[nodiscard]] const models::Model* model_meant(const Setup& setup, const std::vector<models::Model>& catalogue);
/// That model with the vocabulary and sequence length that the row states.
[[nodiscard]] models::Model as_row_has(models::Model model, const Setup& setup);

/// `latent_attention:` from a row's `mla`, as a line of a model file; empty if the row has none.
[[nodiscard]] std::string latent_line(const Setup& setup);

/// Fills what a mixture's row leaves open from its software's own recipe, and adds notes.
void take_recipe(Setup& setup, std::vector<std::string>& notes);

/// What "selective" recomputes in the row: the modules that its words name, as far as the model has them. None: what
/// its software does without.
[[nodiscard]] plan::Modules modules_of(const Setup& setup, const models::Model& model);

/// What a mixture's row, or its recipe, says of how tokens travel, what overlaps, and graphs.
void take_travel(const Setup& setup, plan::Software& software);

/// The load of the fullest rank that shares a row's experts / the mean. 1 if the row says that balance is forced, or
/// says nothing; if a router trains without dropping, that of Zipf's law with the exponent below.
[[nodiscard]] double imbalance_of(const Setup& setup, std::vector<std::string>& notes);

/// For a router in its first steps, balanced by an auxiliary loss. From four pairs of runs that differ only in whether
/// balance was forced (Megatron-MoE-ModelZoo, Qwen3 235B on 256 H100s, 16k to 128k tokens): the difference is 0.66 us
/// per token at every length.
inline constexpr double kUntrainedZipf = 0.7;

}  // namespace orrery::sim
