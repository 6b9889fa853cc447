#pragma once
/// What rows of mixtures of experts mean: the model that their name stands for, and what their words say of how tokens
/// travel, what is recomputed and how evenly experts are loaded. Keys that are numbers are read by rows.cpp.
#include <string>
#include <vector>

#include "cost/parameters/calibration.h"
#include "models/model.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// The model of the catalogue that a row's `model` names: letters and digits of one begin with those of the other, and
/// layers, width, heads and experts are the row's. Nothing where there is none, or where it cannot be planned.
[[nodiscard]] const models::Model* model_meant(const Setup& setup, const std::vector<models::Model>& catalogue);
/// The same with what the row states: its vocabulary, and sequences as long as its own.
[[nodiscard]] models::Model as_row_has(models::Model model, const Setup& setup);

/// `latent_attention:` of a row's `mla`, as a line of a model file; empty without.
[[nodiscard]] std::string latent_line(const Setup& setup);

/// Fills what a row of a mixture leaves open and its software's own recipe says, and notes it.
void take_recipe(Setup& setup, std::vector<std::string>& notes);

/// Whether "selective" of the row has the core of the attention run again: it does unless words name other modules.
[[nodiscard]] bool recomputes_core(const Setup& setup);

/// Numbers of the stack that are this row's own: two hops, overlap, graphs, experts that are run again.
[[nodiscard]] std::vector<cost::Parameter> numbers_of_row(const Setup& setup);

/// The fullest of the ranks that divide a row's experts over their mean: 1 where the row says that balance is forced,
/// or says nothing; where a router trains without dropping, that of Zipf's law with the exponent below.
[[nodiscard]] double imbalance_of(const Setup& setup, std::vector<std::string>& notes);

/// Of a router in its first steps, balanced by an auxiliary loss. From four pairs of runs that differ in nothing but
/// whether balance was forced (Megatron-MoE-ModelZoo, Qwen3 235B on 256 H100s, 16k to 128k tokens): the difference is
/// 0.66 us a token whatever the length.
inline constexpr double kUntrainedZipf = 0.7;

}  // namespace orrery::sim
