#pragma once
/// Software: how the software of a run was set up, as far as its stack leaves that open: compiled or eager, which
/// kernels, which types. A job says it under `software:`, a published row in its words, an imported file in its
/// settings; cost/parameters/as_run.h makes numbers of it, for all of them alike. Plain data; what a stack does not
/// know, it refuses.
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/yaml.h"
#include "models/dtype.h"
#include "plan/spec/parts.h"

namespace orrery::plan {

/// Whose kernels norms, rotations, gates and the loss of a model's code are.
enum class OperatorCode : std::uint8_t {
  fused,         ///< kernels that replace them: Liger, Unsloth, apex, Transformer Engine
  transformers,  ///< Hugging Face's Transformers, which composes them of PyTorch's operators
};
enum class AttentionKernel : std::uint8_t { flash_1, flash_2, flash_3, cudnn, math, xla };
enum class NormKernel : std::uint8_t { fused, composed };
/// What the loss over the vocabulary keeps of its logits.
enum class LossKernel : std::uint8_t {
  native,    ///< PyTorch's: log-softmax and gradients in fp32
  upcast,    ///< the same, and its caller holds the logits in fp32
  compiled,  ///< one kernel a pass, the gradient beside the logits
  fused,     ///< the gradient written over the logits
};
enum class Fp8Recipe : std::uint8_t { delayed, tensorwise, rowwise, blockwise, mxfp8, nvfp4 };
enum class TokenDispatcher : std::uint8_t { alltoall, deepep, hybridep };
enum class ReduceType : std::uint8_t { fp32, bf16, fp16 };

/// Nothing: as the stack has it.
struct Software {
  std::optional<bool> compiled = {};
  std::optional<OperatorCode> operators = {};
  std::optional<AttentionKernel> attention_kernel = {};
  std::optional<bool> padding_mask = {};
  std::optional<NormKernel> rms_norm = {};
  std::optional<LossKernel> cross_entropy = {};
  std::optional<bool> autocast = {};
  std::optional<bool> tuned_gemms = {};
  std::optional<Fp8Recipe> fp8_recipe = {};
  std::optional<bool> fp8_param_gather = {};
  std::optional<std::int64_t> moment_bits = {};
  std::optional<bool> master_weights = {};
  std::optional<ReduceType> gradient_dtype = {};
  std::optional<ReduceType> reduce_dtype = {};
  std::optional<bool> expandable_segments = {};
  std::optional<bool> fused_optimizer = {};
  std::optional<std::int64_t> cpu_offloading_layers = {};
  std::optional<bool> scatter_gather = {};
  std::optional<TokenDispatcher> token_dispatcher = {};
  std::optional<bool> overlap_exchange = {};
  std::optional<bool> cuda_graphs = {};
  std::optional<bool> router_fusion = {};
  std::optional<bool> slow_network = {};
  std::optional<std::string> gemm_rate_of = {};
  bool operator==(const Software&) const = default;
};

inline const std::vector<std::string> kOperatorWords = {"fused", "transformers"};
inline const std::vector<std::string> kAttentionWords = {"flash-1", "flash-2", "flash-3", "cudnn", "math", "xla"};
inline const std::vector<std::string> kNormWords = {"fused", "composed"};
inline const std::vector<std::string> kLossWords = {"native", "upcast", "compiled", "fused"};
inline const std::vector<std::string> kFp8Words = {"delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"};
inline const std::vector<std::string> kDispatcherWords = {"alltoall", "deepep", "hybridep"};
inline const std::vector<std::string> kReduceWords = {"fp32", "bf16", "fp16"};
inline const std::vector<std::string> kMomentWords = {"8", "16", "32"};

/// A key under `software:`. `words`: of an enumeration, in its order, or the only numbers.
template <class Of>
struct SoftwareField {
  const char* key;
  const std::vector<std::string>* words;
  std::int64_t high;  ///< the largest of a number, from 0
  const char* says;   ///< one line, for whoever asks what there is
  Of of;              ///< the member
};
template <class Of>
SoftwareField(const char*, const std::vector<std::string>*, std::int64_t, const char*, Of) -> SoftwareField<Of>;

// One row per key.
// clang-format off
#define ORRERY_SAID(member) [](auto& s) -> auto& { return s.member; }
inline constexpr auto kSoftwareFields = std::make_tuple(
    SoftwareField{"compiled", nullptr, 0, "torch.compile or another compiler fuses operators; false: eager",
                  ORRERY_SAID(compiled)},
    SoftwareField{"operators", &kOperatorWords, 0,
                  "whose kernels norms, rotations and gates are: Transformers' own, or fused ones that replace them",
                  ORRERY_SAID(operators)},
    SoftwareField{"attention_kernel", &kAttentionWords, 0, "which kernel attention runs",
                  ORRERY_SAID(attention_kernel)},
    SoftwareField{"padding_mask", nullptr, 0, "attention is given a mask of padding, so that no kernel skips scores",
                  ORRERY_SAID(padding_mask)},
    SoftwareField{"rms_norm", &kNormWords, 0, "RMS norms are one kernel, or composed of operators",
                  ORRERY_SAID(rms_norm)},
    SoftwareField{"cross_entropy", &kLossWords, 0, "what the loss keeps of its logits", ORRERY_SAID(cross_entropy)},
    SoftwareField{"autocast", nullptr, 0, "parameters stay in fp32, and so do sums of residual branches",
                  ORRERY_SAID(autocast)},
    SoftwareField{"tuned_gemms", nullptr, 0, "products run the kernels tuned for their shapes",
                  ORRERY_SAID(tuned_gemms)},
    SoftwareField{"fp8_recipe", &kFp8Words, 0, "what shares a scale in fp8 and fp4", ORRERY_SAID(fp8_recipe)},
    SoftwareField{"fp8_param_gather", nullptr, 0, "weights are kept in fp8 alone; false: beside those in 16 bits",
                  ORRERY_SAID(fp8_param_gather)},
    SoftwareField{"moment_bits", &kMomentWords, 0, "of each of Adam's moments", ORRERY_SAID(moment_bits)},
    SoftwareField{"master_weights", nullptr, 0, "false: parameters and gradients exist in 16 bits alone (bf16-true)",
                  ORRERY_SAID(master_weights)},
    SoftwareField{"gradient_dtype", &kReduceWords, 0, "in which gradients add up", ORRERY_SAID(gradient_dtype)},
    SoftwareField{"reduce_dtype", &kReduceWords, 0, "in which gradients travel", ORRERY_SAID(reduce_dtype)},
    SoftwareField{"expandable_segments", nullptr, 0, "the allocator's segments grow, so that none breaks into pieces",
                  ORRERY_SAID(expandable_segments)},
    SoftwareField{"fused_optimizer", nullptr, 0, "an optimizer on the host updates a parameter in one pass",
                  ORRERY_SAID(fused_optimizer)},
    SoftwareField{"cpu_offloading_layers", nullptr, 10'000,
                  "layers whose activations wait on the host behind compute (cpu_offloading_num_layers)",
                  ORRERY_SAID(cpu_offloading_layers)},
    SoftwareField{"scatter_gather", nullptr, 0, "tensor ranks send the next node's stage a part each",
                  ORRERY_SAID(scatter_gather)},
    SoftwareField{"token_dispatcher", &kDispatcherWords, 0, "how tokens travel to experts",
                  ORRERY_SAID(token_dispatcher)},
    SoftwareField{"overlap_exchange", nullptr, 0, "tokens' all-to-alls run beside another micro-batch's compute",
                  ORRERY_SAID(overlap_exchange)},
    SoftwareField{"cuda_graphs", nullptr, 0, "all but experts' operators is replayed as CUDA graphs",
                  ORRERY_SAID(cuda_graphs)},
    SoftwareField{"router_fusion", nullptr, 0, "the kernels of a router that chooses groups first are fused",
                  ORRERY_SAID(router_fusion)},
    SoftwareField{"slow_network", nullptr, 0, "the network was ill: layers of a pipeline wait for each tensor rank",
                  ORRERY_SAID(slow_network)},
    SoftwareField{"gemm_rate_of", nullptr, 0,
                  "the run's software only resembles the stack: products are no faster than those of this one",
                  ORRERY_SAID(gemm_rate_of)});
#undef ORRERY_SAID
// clang-format on

template <class Visit>
void for_each_software_field(const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, kSoftwareFields);
}

/// Reads `software:` of a job in this precision. E0121: values that contradict each other or the precision.
[[nodiscard]] Software read_software(const base::Cursor& at, models::DType precision);
/// E0121: a word of software that the plan's own keys contradict. `flash`, `sent`: what those say, if anything.
void check_software(const base::Cursor& software, const Software& said, const std::optional<bool>& flash,
                    const std::vector<GradientCompression>& sent);
/// Whether the software is said to run a kernel of fused attention.
[[nodiscard]] bool attends_fused(const Software& software);
/// What is said, as keys and values in the table's order.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> software_lines(const Software& software);
/// The same on one line, "compiled: false, fp8_recipe: mxfp8"; empty: nothing is said.
[[nodiscard]] std::string software_text(const Software& software);

}  // namespace orrery::plan
