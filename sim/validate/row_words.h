#pragma once
/// What words of rows mean: kernels, networks, releases, optimizers.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "models/dtype.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/software.h"
#include "plan/spec/space.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// A kernel such as "FlashAttention-2", "flash-attn 3" or "cuDNN"; later generations of FlashAttention count as its
/// third. Nothing: the words name none.
[[nodiscard]] std::optional<plan::AttentionKernel> attention_kernel_of(const std::string& words);

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
/// from Ampere and 2024 on, fp16 before, fp32 on CPU ranks.
[[nodiscard]] models::DType precision_of(const Setup& s, const clusters::Device& device,
                                         std::vector<std::string>& notes);

/// The optimizer that a source's words name ("Muon, updates divided among ranks"); AdamW's kind if they name none, or
/// one whose update costs the same.
[[nodiscard]] plan::OptimizerKind optimizer_of(const std::string& words);

/// Where the row says that something is: "host", "CPU" or "true" (offloaded) mean the host's memory, "nvme" a drive.
[[nodiscard]] plan::Space space_of(const std::string& words);

}  // namespace orrery::sim
