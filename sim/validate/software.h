#pragma once
/// The software that a row's words name, where its `stack` is not one of the catalogue.
#include <cstdint>
#include <optional>
#include <string>

#include "cost/parameters/as_run.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// "megatron-2023" is megatron of 2023; a name without a number at the end is only a family, without a year.
struct Version {
  std::string family;
  std::int64_t year = 0;
};
[[nodiscard]] Version version_of(const std::string& name);

/// Whether Megatron-LM of this year is Megatron-Core, whose models it runs by default (pretrain_gpt.py).
[[nodiscard]] bool is_core(const std::string& stack, std::int64_t year);

/// The year of a row's software or run; 0 if nothing says it.
[[nodiscard]] std::int64_t year_of(const Setup& setup);

/// Whether a row's `stack` or `framework` names a compiler, or a runtime that executes a whole graph: no Python issues
/// its kernels.
[[nodiscard]] bool is_compiled(const Setup& setup);

/// The stack, or its family, of other software that a row's words name besides its own; empty if they name none. NeMo
/// ran the Megatron-LM of its year before it ran Megatron-Core; its AutoModel runs neither. JAX's sharding is called
/// FSDP too, but XLA does it.
[[nodiscard]] std::string software_of(const Setup& setup);

/// Whether a row says that it ran before 2023, when PyTorch 2 and XLA (through cuDNN) had no fused attention yet.
[[nodiscard]] bool precedes_fused_attention(const Setup& setup);

/// The generic stack for a row that names nothing known: compiled, eager, or eager as it was before its year had fused
/// attention.
[[nodiscard]] const char* generic_of(const Setup& setup);

/// Whether a row's words name kernels that replace norms, rotations and gates of such a model.
[[nodiscard]] bool replaces_operators(const Setup& setup);
/// The ZeRO stage that software has unless it is told otherwise, and where that stands.
struct UsualZero {
  std::int64_t stage = 0;
  const char* source = "";
};
/// Where the row leaves the stage open. DeepSpeed under Hugging Face's Trainer: Accelerate, utils/dataclasses.py,
/// DeepSpeedPlugin.zero_stage. NeMo and Megatron Bridge: NeMo-Framework-Launcher, conf/training (optim.name); NeMo,
/// collections/llm/recipes/optim/adam.py.
[[nodiscard]] std::optional<UsualZero> usual_zero_stage(const Setup& setup);
/// Whether NVIDIA, or who repeats its recipes, published a run of Megatron-Core: `source` names it, its frameworks or
/// MLPerf. Such runs are tuned as those recipes are; others have the software's defaults.
[[nodiscard]] bool follows_recipes(const Setup& setup);
/// Whether the row runs such a model's own operators, on a stack that says nothing of the model's code.
[[nodiscard]] bool runs_transformers(const Setup& setup, const cost::Stack& engine);
/// Whether such a run gives attention a mask of padding: several sequences a micro-batch, neither packed nor with a
/// kernel that the row names. Only all-ones masks are left out (Transformers, modeling_attn_mask_utils.py,
/// _ignore_causal_mask_sdpa), and with a mask PyTorch's scaled_dot_product_attention runs its memory-efficient kernel
/// instead of FlashAttention's, over all scores.
[[nodiscard]] bool attends_masked(const Setup& setup);

}  // namespace orrery::sim
