#pragma once
/// Low-rank adaptation (LoRA, Hu et al. 2022): the model's own weights stay as they are, and products of its blocks
/// gain two narrow matrices that train in their place: y = W x + (alpha / rank) B A x (equation 3). A is (rank, in),
/// random at first; B is (out, rank), zero at first.
#include <cstdint>
#include <string>

#include "base/yaml.h"

namespace orrery::models {

struct Lora {
  std::int64_t rank = 0;  ///< 0: no adapters, all weights train
  double alpha = 0;
  /// Which products have an adapter. q, k and v are one product here, as are gate and up, so they share an A. Experts,
  /// routers and the narrow products of latent attention have none.
  bool qkv = true, projection = true, up = true, down = true;
  [[nodiscard]] bool any() const { return rank > 0; }
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const Lora&) const = default;
};

/// {rank: 16, alpha: 32, targets: [qkv, proj, up, down]}. alpha defaults to the rank, targets to all four. Also
/// understands the names of Hugging Face's PEFT and Megatron Bridge (q_proj, linear_fc1, …).
[[nodiscard]] Lora read_lora(const base::Cursor& at);
[[nodiscard]] std::string lora_text(const Lora& lora);

}  // namespace orrery::models
