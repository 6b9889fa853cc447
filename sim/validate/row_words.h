#pragma once
/// What words of rows mean: kernels, networks, releases, optimizers.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "cost/parameters/stack.h"
#include "models/dtype.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/space.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// The generation of a kernel such as "FlashAttention-2", "flash-attn 3" or "cuDNN". 3 is the best known; later ones
/// and cuDNN count as 3. 0: none.
[[nodiscard]] double attention_generation(const std::string& kernel);

/// Parts into which the row's software divides the head's rows.
[[nodiscard]] std::int64_t loss_chunks_of(const Setup& s, std::int64_t rows);

/// "50 of 80 layers" are recomputed; nothing if the row's words do not count them.
[[nodiscard]] std::optional<std::int64_t> recomputed_layers(const Setup& s);

/// The kind of network that a source's words name; empty if they name none.
[[nodiscard]] std::string network_of(const std::string& words);

/// "-0.6" of "Megatron-Core 0.6.0": the first number of the form N.M; empty if there is none. A Megatron-LM of a
/// certain day counts as the release that has the same code for mixtures (megatron/core/transformer/moe).
[[nodiscard]] std::string release_of(const std::string& framework);

/// The precision of a run by its words, of which the narrowest arithmetic counts: fp8 by blocks, delayed or current
/// scales (mxfp8, fp8-cs and others), nvfp4, "bf16-true", "amp_bf16", "float16". Else what its users train in: bf16
/// from Ampere and 2024 on, fp16 before.
[[nodiscard]] models::DType precision_of(const Setup& s, const clusters::Device& device,
                                         std::vector<std::string>& notes);

/// The optimizer that a source's words name ("Muon, updates divided among ranks"); AdamW's kind if they name none, or
/// one whose update costs the same.
[[nodiscard]] plan::OptimizerKind optimizer_of(const std::string& words);

/// Where the row says that something is: "host", "CPU" or "true" (offloaded) mean the host's memory, "nvme" a drive.
[[nodiscard]] plan::Space space_of(const std::string& words);

/// What a run keeps of its optimizer, beside what its stack says. Moments take one byte each in 8 bits (Dettmers et al.
/// 2022), two if all is in 16 bits, else four. In 16 bits PyTorch's AdamW, which updates lists of tensors at once,
/// makes a value per parameter for the roots of the second moments (torch/optim/adamw.py, _multi_tensor_adamw:
/// exp_avg_sq_sqrt).
void take_optimizer(const Setup& s, cost::MemoryRecipe& recipe, std::vector<cost::Parameter>& numbers);

/// What a run's words say of its messages, beside its stack, which may be generic. FSDP's mixed precision is "PURE"
/// (sums of gradients travel in 16 bits) or "DEFAULT" (in fp32), as Composer calls them, or names the type; InternEvo
/// sums in 16 bits, OLMo in fp32. On a network that the row calls slow, layers of a pipeline wait for each tensor rank.
void take_messages(const Setup& s, const cost::Stack& stack, std::vector<cost::Parameter>& numbers);

/// What operators move that eager code composes of others, where the stack's numbers are of compiled runs: torchtitan's
/// rotation and loss, and its norms before PyTorch 2.9.
void take_composed(const Setup& s, const cost::Stack& stack, std::vector<cost::Parameter>& numbers,
                   std::vector<std::string>& notes);

/// Whether a vendor tuned the run's products for their shapes: in its submissions to MLPerf, and in its own software.
void take_tuning(const Setup& s, std::vector<cost::Parameter>& numbers, std::vector<std::string>& notes);

/// What a run's framework keeps by its recipes, beside what its stack, called `stack`, says: NVIDIA's recipes of NeMo
/// and Megatron Bridge add gradients up in bf16, keep weights in fp8, and put some layers' activations on the host; the
/// modules that a row says are recomputed keep no results.
void take_framework_memory(const Setup& s, const std::string& stack, cost::MemoryRecipe& recipe,
                           std::vector<std::string>& notes);

}  // namespace orrery::sim
