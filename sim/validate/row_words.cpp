/// Reads the words of rows.
#include "sim/validate/row_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "base/units.h"
#include "sim/validate/mixture_rows.h"
#include "sim/validate/software.h"

namespace orrery::sim {

namespace {

/// Whether parameters, gradients and the optimizer's states all are in 16 bits: "AdamW, all states in bf16", a
/// precision of Lightning's kind ("bf16-true", "16-true") or called pure, or software whose recipes have no other:
/// torchtune's set_default_dtype of `dtype` (recipes/full_finetune_single_device.py), Thunder's model.to(bfloat16)
/// (thunder/benchmarks/benchmark_litgpt.py).
bool all_in_16_bits(const Setup& s) {
  const std::string optimizer = small_letters(s.optimizer), precision = small_letters(s.precision);
  const auto has = [](const std::string& words, std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(), [&](const char* word) { return words.find(word) != std::string::npos; });
  };
  return has(optimizer, {"states in bf16", "states in fp16", "states in 16 bits"}) ||
         has(precision, {"16-true", "pure"}) ||
         (has(precision, {"bf16", "fp8"}) && has(small_letters(s.stack + " " + s.framework), {"torchtune", "thunder"}));
}

/// Blocks whose activations NVIDIA's recipes of FSDP keep on the host.
struct OnHost {
  const char* model;      ///< the beginning of its letters
  const char* device;     ///< of its devices' name
  const char* precision;  ///< a word of the row's
  std::int64_t blocks;
};
// Megatron Bridge v0.3.0, scripts/performance/configs/llama: cpu_offloading_num_layers.
constexpr OnHost kOnHost[] = {{"llama 3 70b", "GB300", "fp8", 20},    {"llama 3 70b", "GB300", "bf16", 30},
                              {"llama 3 70b", "GB200", "fp8", 40},    {"llama 3 70b", "GB200", "bf16", 20},
                              {"llama 3 70b", "B200", "fp8", 5},      {"llama 3.1 405b", "GB200", "fp8", 92},
                              {"llama 3.1 405b", "GB300", "fp8", 10}, {"llama 3 405b", "GB200", "fp8", 92},
                              {"llama 3 405b", "GB300", "fp8", 10}};

bool says(const std::string& words, const char* word) {
  return words.find(word) != std::string::npos;
}

/// The run's date, that of its source ("torchtitan, commit 7a04053 (2025-01)") or its stack's year.
std::string date_of(const Setup& s) {
  constexpr std::size_t kMonth = 7;
  if (!s.date.empty()) return s.date;
  if (const std::size_t at = s.source.rfind("(20"); at != std::string::npos) return s.source.substr(at + 1, kMonth);
  const std::int64_t year = year_of(s);
  return year > 0 ? fmt::format("{}", year) : "";
}

/// Whether a run of torchtitan has the code of a month ("2025-04") after its release 0.0.2.
bool torchtitan_of(const Setup& s, const char* month) {
  const std::string date = date_of(s);
  return date.empty() ? release_of(s.framework) != "-0.0" : date >= month;
}

/// Rows of a chunk of prime-rl's head in reinforcement learning (trainer/rl/config.py, fused_lm_head_chunk_size).
std::optional<std::int64_t> chunk_of_loss(const Setup& s) {
  constexpr std::int64_t kRows = 2048;
  return says(small_letters(s.stack + " " + s.framework), "prime-rl") && says(s.section, "RL") ? std::optional(kRows)
                                                                                               : std::nullopt;
}

/// Losses that a name or a release tells apart from its stack's.
void take_loss(const Setup& s, const std::string& stack, cost::MemoryRecipe& recipe) {
  const std::string words = small_letters(s.stack + " " + s.framework);
  constexpr int kHeld = 3;
  // Its `out` holds the logits, cast to fp32, during backward (trainer/sft/train.py and trainer/model.py, 2026-01).
  if (says(words, "prime-rl")) recipe.loss_copies = chunk_of_loss(s) ? 0 : kHeld;
  if (says(words, "prime-rl")) recipe.fragmentation = recipe.stuck = 0;  // expandable segments (benchmarks.yaml, rl.py)
  // Their kernels write gradients over logits (liger_kernel/ops/cross_entropy.py;
  // unsloth/kernels/cross_entropy_loss.py).
  if (says(words, "liger") || says(words, "unsloth")) recipe.loss_copies = 0, recipe.loss_apart = false;
  // The loss goes through chunks of rows, each compiled (torchtune/modules/loss): gradients of a chunk at a time.
  if (says(words, "torchtune") && is_compiled(s)) recipe.loss_copies = 0, recipe.loss_apart = false;
  // Its scripts compile the loss (OLMo-core, src/scripts/train: compile_loss).
  if (says(words, "olmo-core") && is_compiled(s)) recipe.loss_copies = 0, recipe.loss_apart = true;
  // build_cross_entropy_loss compiles it with the blocks from its commit bbb1b616e (2025-04-02) on, after 0.0.2.
  if (stack.rfind("torchtitan", 0) == 0 && is_compiled(s) && torchtitan_of(s, "2025-04"))
    recipe.loss_copies = 0, recipe.loss_apart = true;
}

}  // namespace

std::int64_t loss_chunks_of(const Setup& s, std::int64_t rows) {
  const std::optional<std::int64_t> chunk = chunk_of_loss(s);
  return chunk && rows > *chunk && rows % *chunk == 0 ? rows / *chunk : 1;
}

std::optional<std::int64_t> recomputed_layers(const Setup& s) {
  std::int64_t some = 0, all = 0;
  const bool counts = std::sscanf(s.recompute_modules.c_str(), "%" SCNd64 " of %" SCNd64 " layers", &some, &all) == 2;
  if (!counts || all != s.layers.value_or(0) || some < 0 || some > all) return std::nullopt;
  return some;
}

double attention_generation(const std::string& kernel) {
  constexpr double kBest = 3;
  if (small_letters(kernel).find("cudnn") != std::string::npos) return kBest;
  const auto digit = std::find_if(kernel.begin(), kernel.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digit == kernel.end() ? 0 : std::min(kBest, static_cast<double>(*digit - '0'));
}

std::string network_of(const std::string& words) {
  constexpr std::pair<const char*, const char*> kKinds[] = {{"efa", "efa"},
                                                            {"roce", "roce"},
                                                            {"omni-path", "omni-path"},
                                                            {"omnipath", "omni-path"},
                                                            {"opa", "omni-path"},
                                                            {"slingshot", "slingshot"},
                                                            {"tcp", "tcp"},
                                                            {"infiniband", "infiniband"},
                                                            {"ib ", "infiniband"},
                                                            {"ndr", "infiniband"},
                                                            {"hdr", "infiniband"},
                                                            {"edr", "infiniband"},
                                                            {"ethernet", "tcp"},
                                                            {"gbe", "tcp"}};
  const std::string small = small_letters(words);
  for (const auto& [word, kind] : kKinds)
    if (says(small, word)) return kind;
  return {};
}

std::string release_of(const std::string& framework) {
  if (framework.find("Megatron-LM 240405") != std::string::npos) return "-0.6";
  const auto digit = [&](std::size_t at) {
    return at < framework.size() && std::isdigit(static_cast<unsigned char>(framework[at])) != 0;
  };
  for (std::size_t dot = framework.find('.'); dot != std::string::npos; dot = framework.find('.', dot + 1)) {
    std::size_t first = dot, last = dot + 1;
    while (first > 0 && digit(first - 1)) --first;
    while (digit(last)) ++last;
    if (first < dot && last > dot + 1) return "-" + framework.substr(first, last - first);
  }
  return {};
}

models::DType precision_of(const Setup& s, const clusters::Device& device, std::vector<std::string>& notes) {
  const std::string words = small_letters(s.precision);
  using enum models::DType;
  constexpr std::pair<const char*, models::DType> kWords[] = {
      {"fp8", fp8},   {"float8", fp8}, {"fp4", fp4},      {"bf16", bf16}, {"bfloat16", bf16}, {"tf32", tf32},
      {"fp16", fp16}, {"half", fp16},  {"float16", fp16}, {"fp32", fp32}, {"float32", fp32}};
  for (const auto& [word, type] : kWords)
    if (words.find(word) != std::string::npos) return type;
  constexpr std::int64_t kLastInFp16 = 2023;  // Megatron-LM's and DeepSpeed's scripts of then
  const std::int64_t year = year_of(s);
  const bool old = (device.kind == clusters::DeviceKind::gpu && device.architecture == clusters::Architecture::volta) ||
                   (year > 0 && year <= kLastInFp16);
  notes.push_back(old ? "precision fp16" : "precision bf16, in which this device's users train");
  return old ? fp16 : bf16;
}

plan::OptimizerKind optimizer_of(const std::string& words) {
  const std::string small = small_letters(words);
  if (says(small, "moments in bf16")) return plan::OptimizerKind::adamw_bf16;
  const auto letter = [&](std::size_t at) {
    return at < small.size() && std::isalpha(static_cast<unsigned char>(small[at])) != 0;
  };
  for (const plan::OptimizerTraits& known : plan::kOptimizers) {
    const std::string name = known.name;
    const std::size_t at = small.find(name);
    if (at == std::string::npos || (at > 0 && letter(at - 1)) || letter(at + name.size())) continue;
    if (!known.tables_only && known.update != models::OpKind::adamw) return known.kind;
  }
  return plan::OptimizerKind::adamw;
}

plan::Space space_of(const std::string& words) {
  const std::string small = small_letters(words);
  if (small == "nvme") return plan::Space::nvme;
  return small == "host" || small == "cpu" || small == "true" ? plan::Space::host : plan::Space::device;
}

void take_optimizer(const Setup& s, cost::MemoryRecipe& recipe, std::vector<cost::Parameter>& numbers) {
  constexpr double kEightBit = 2, kHalf = 4, kFp32 = 8, kRoot = 2;
  const bool half = all_in_16_bits(s);
  recipe.moment_bytes = s.optimizer.find("8-bit") != std::string::npos ? kEightBit : half ? kHalf : kFp32;
  if (!half) return;
  numbers.push_back({"stack.one_copy", 1, cost::Unit::number, "the row's words"});
  recipe.update_bf16 = std::max(recipe.update_bf16, kRoot);
  recipe.update_fp16 = std::max(recipe.update_fp16, kRoot);
}

void take_messages(const Setup& s, const cost::Stack& stack, std::vector<cost::Parameter>& numbers) {
  const std::string mixed = small_letters(s.mixed_precision);
  // DDP's buckets and FSDP's shards have the parameters' own type (c10d/reducer.cpp, fsdp/_flat_param.py).
  const bool half = says(mixed, "pure") || says(mixed, "bf16") || says(mixed, "fp16") ||
                    (stack.generic && mixed.empty() && all_in_16_bits(s)) ||
                    (stack.generic && says(small_letters(s.framework), "internevo"));
  // OLMo's FSDP is `precision: mixed`, whose reduce_dtype is fp32 (olmo/config.py, FSDPPrecision; configs/official).
  const bool olmo = mixed.empty() && says(small_letters(s.stack + " " + s.framework), "olmo");
  if (half || olmo || says(mixed, "default") || says(mixed, "fp32"))
    numbers.push_back({"stack.reduces_half", half ? 1.0 : 0.0, cost::Unit::number, "the row's words"});
  constexpr double kWait = 200e-6;
  if (stack.generic && s.network_state == "slow")
    numbers.push_back(
        {"stack.pipeline_message_time", kWait, cost::Unit::seconds,
         "nanotron 8B (2024), runs on a slow network: a stage's layer takes 14, 23 and 50 ms with 4, 8 and "
         "16 tensor ranks however few rows it has; one digit"});
}

void take_composed(const Setup& s, const cost::Stack& stack, std::vector<cost::Parameter>& numbers,
                   std::vector<std::string>& notes) {
  const bool eager = s.compiled ? !*s.compiled : says(small_letters(s.framework), "eager");
  if (stack.name.rfind("torchtitan", 0) != 0 || !eager) return;
  constexpr double kRotary = 5, kLoss = 4.5, kNorm = 9;
  const auto push = [&](const char* name, double passes, const char* source) {
    numbers.push_back({name, passes, cost::Unit::number, source});
  };
  push("stack.rotary_passes", kRotary,
       "torchtitan, models/llama3/model: apply_rotary_emb: to fp32, complex product, back to 16 bits; 20 bytes a value "
       "where one kernel moves 4");
  push("stack.loss_passes", kLoss, "torchtitan, components/loss.py: F.cross_entropy(pred.float(), ...)");
  const std::string date = date_of(s);
  if (date.empty() || (date >= "2025" && date < "2025-10"))
    push("stack.norm_passes", kNorm,
         "torch.nn.RMSNorm before PyTorch 2.9 (pytorch/pytorch #153666): as Transformers' LlamaRMSNorm");
  notes.push_back("operators composed, as in eager torchtitan");
}

void take_tuning(const Setup& s, std::vector<cost::Parameter>& numbers, std::vector<std::string>& notes) {
  const bool submitted = says(small_letters(s.source), "mlperf");
  const bool own = says(small_letters(s.stack + " " + s.framework), "primus");  // AMD-AGI/Primus, Primus-Turbo
  if (!submitted && !own) return;
  numbers.push_back({"stack.untuned", 0, cost::Unit::number, "the row's words"});
  if (small_letters(s.gpu_type).find("mi") == 0)
    notes.push_back("products tuned for their shapes, as in AMD's submissions and software");
}

void take_framework_memory(const Setup& s, const std::string& stack, cost::MemoryRecipe& recipe,
                           std::vector<std::string>& notes) {
  const std::string precision = small_letters(s.precision), framework = small_letters(s.framework);
  constexpr double kHalf = 2, kSingle = 4;  // bytes
  recipe.scales_blocks = says(precision, "mx") || says(precision, "block") || says(precision, "nvfp4");
  // "custom: projections and inputs of layers on the host": MaxText's remat_policy: custom, decoder_layer_input:
  // offload
  if (says(s.recompute_modules, "on the host") || says(s.recompute_modules, "offload")) {
    recipe.blocks_on_host = *s.layers;
    notes.push_back("what blocks keep is on the host; its copies count as hidden");
  }
  take_loss(s, stack, recipe);
  // Its Llama 2 of 2024 is of norm_type fused_rmsnorm (train_configs/llama2_13b.toml).
  if (const std::string date = date_of(s); stack.rfind("torchtitan", 0) == 0 && !date.empty() && date < "2025")
    recipe.composes_norms = false;
  if (is_compiled(s)) recipe.composes_gates = recipe.composes_norms = recipe.repeats_keys = false;
  if (says(small_letters(s.precision_words + " " + s.framework), "autocast")) {
    recipe.wide_sums = true;
    notes.push_back("sums of branches in fp32, as autocast leaves them");
  }
  // Gradients stay in the parameters' type until the update (internlm/solver/optimizer/hybrid_zero_optim.py).
  if (says(framework, "internevo")) {
    recipe.gradient_bytes = kHalf;
    recipe.gradients_beside = false;
    notes.push_back("gradients in 16 bits, as InternEvo has them");
  }
  if (stack.rfind("megatron-core", 0) != 0 && stack != "megatron-fsdp" && stack != "megatron-bridge") return;
  const bool bridge = says(framework, "bridge"), nemo = says(framework, "nemo") && !says(framework, "automodel");
  if (!bridge && !nemo) return;
  // Its own recipes sum in fp32 (recipes/*, DistributedDataParallelConfig) and cast the logits to it
  // (cross_entropy_fusion_impl native); those of its tables of performance do neither.
  const bool measured = !bridge || says(small_letters(s.source), "performance") || says(s.source, "NVIDIA");
  if (measured) recipe.gradient_bytes = kHalf;
  // Launchers of 2024 have fp8_params for fine-tuning alone; NeMo 2's and Bridge's precisions have fp8_param_gather.
  const std::string released = s.section + " " + framework;
  const bool launcher = nemo && (says(released, "24.05") || says(released, "24.07"));
  recipe.rounded_weights = launcher && !s.packed ? cost::RoundedWeights::beside : cost::RoundedWeights::instead;
  // set_perf_optimization_configs: cross_entropy_fusion_impl te (NeMo, scripts/performance/helpers.py, of 2025).
  const std::string release = release_of(framework);
  const bool fuses = bridge ? measured : release >= "-25.04" && release < "-3";
  if (fuses) recipe.loss_copies = 0;
  if (!measured) {
    recipe.gradient_bytes = kSingle;
    recipe.loss_copies = std::max(recipe.loss_copies, 2);
    notes.push_back(
        "gradients and logits in fp32, as Megatron Bridge's recipes outside its tables of performance have "
        "them (recipes, grad_reduce_in_fp32)");
    return;
  }
  notes.push_back(bridge ? "gradients in bf16, weights in fp8 alone, the loss in place of the logits, as Megatron "
                           "Bridge's recipes have them (scripts/performance/configs, grad_reduce_in_fp32; "
                           "mixed_precision.py, fp8_param_gather; cross_entropy_fusion_impl)"
                         : "gradients in bf16, as NVIDIA's examples have them (NeMo-Framework-Launcher, "
                           "examples/training: grad_sync_dtype; NeMo, recipes: grad_reduce_in_fp32)");
  if (!bridge || s.zero_stage.value_or(0) != 3) return;
  const std::string model = small_letters(s.model);
  for (const OnHost& known : kOnHost)
    if (model.rfind(known.model, 0) == 0 && s.gpu_type.rfind(known.device, 0) == 0 &&
        says(precision, known.precision)) {
      recipe.blocks_on_host = known.blocks;
      notes.push_back(
          fmt::format("activations of {} on the host, as in its recipe (scripts/performance/configs, "
                      "cpu_offloading_num_layers); their copies count as hidden",
                      base::count_of(known.blocks, "block")));
      return;
    }
}

}  // namespace orrery::sim
