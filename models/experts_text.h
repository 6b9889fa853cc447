#pragma once
/// The part of a model's file about its experts and its latent attention. Private to models/.
#include <string>

#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// `at` is the map `experts`. Keys that it leaves out keep the model's values; the model's other sizes must have been
/// read.
[[nodiscard]] Experts read_experts(const base::Cursor& at, const Model& model);
[[nodiscard]] LatentAttention read_latent(const base::Cursor& at);
[[nodiscard]] Indexer read_indexer(const base::Cursor& at);
[[nodiscard]] CompressedAttention read_compressed(const base::Cursor& at);
[[nodiscard]] std::string compressed_text(const CompressedAttention& compressed, const std::string& margin);
/// Checks relations between numbers (E0112): at the key, or at `root` if there is none. Fills in head_dim if it is
/// missing.
void check_experts(const base::Cursor& root, const Model& model);
void check_latent(const base::Cursor& root, Model& model);
/// What differs from `usual`, as lines indented by `margin`; empty if there are no experts.
[[nodiscard]] std::string experts_text(const Experts& experts, const Experts& usual, const std::string& margin);
[[nodiscard]] std::string indexer_text(const Indexer& indexer, const std::string& margin);
[[nodiscard]] std::string latent_text(const LatentAttention& latent, const std::string& margin);

}  // namespace orrery::models
