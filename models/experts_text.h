#pragma once
/// The part of a model's file that is about its experts, and about latent attention. Private to models/.
#include <string>

#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// `at` is the map `experts`; what it does not say is as in the model, whose other sizes have been read.
[[nodiscard]] Experts read_experts(const base::Cursor& at, const Model& model);
[[nodiscard]] LatentAttention read_latent(const base::Cursor& at);
/// Relations of numbers, E0112: at the key, or at `root` where there is none. head_dim is given if it was not.
void check_experts(const base::Cursor& root, const Model& model);
void check_latent(const base::Cursor& root, Model& model);
/// What differs from `usual`, as lines behind `margin`; empty where there are none.
[[nodiscard]] std::string experts_text(const Experts& experts, const Experts& usual, const std::string& margin);
[[nodiscard]] std::string latent_text(const LatentAttention& latent, const std::string& margin);

}  // namespace orrery::models
