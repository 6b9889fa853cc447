#pragma once
/// What words of rows mean: kernels, networks, releases, optimizers.
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// The generation of a kernel such as "FlashAttention-2", "flash-attn 3" or "cuDNN". 3 is the best known; later ones
/// and cuDNN count as 3. 0: none.
[[nodiscard]] double attention_generation(const std::string& kernel);

/// The kind of network that a source's words name; empty if they name none.
[[nodiscard]] std::string network_of(const std::string& words);

/// "-0.6" of "Megatron-Core 0.6.0": the first number of the form N.M; empty if there is none. A Megatron-LM of a
/// certain day counts as the release that has the same code for mixtures (megatron/core/transformer/moe).
[[nodiscard]] std::string release_of(const std::string& framework);

/// What a run keeps of its optimizer, beside what its stack says. Moments take one byte each in 8 bits (Dettmers et al.
/// 2022), two if all is in 16 bits, else four. In 16 bits PyTorch's AdamW, which updates lists of tensors at once,
/// makes a value per parameter for the roots of the second moments (torch/optim/adamw.py, _multi_tensor_adamw:
/// exp_avg_sq_sqrt).
void take_optimizer(const Setup& s, cost::MemoryRecipe& recipe, std::vector<cost::Parameter>& numbers);

}  // namespace orrery::sim
