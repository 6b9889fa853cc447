/// Words of rows to plan::Software, and nothing else: what a word costs, cost/parameters/as_run.cpp says.
#include "sim/validate/software_said.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "base/units.h"
#include "sim/validate/mixture_rows.h"
#include "sim/validate/row_words.h"
#include "sim/validate/software.h"

namespace orrery::sim {

namespace {

using plan::Software;

bool tells(const std::string& words, const char* word) {
  return words.find(word) != std::string::npos;
}

/// All that a row says of its software, in small letters.
std::string software_words(const Setup& s) {
  return small_letters(s.stack + " " + s.framework);
}

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

/// A model's code and its attention where a stack says nothing of them.
void take_code(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, Software& software,
               std::vector<std::string>& notes) {
  if (!runs_transformers(s, stack)) return;
  if (stack.name != cost::kTransformers) {
    software.operators = plan::OperatorCode::transformers;
    notes.push_back("operators composed as in Hugging Face's Transformers");
  }
  if (!spec.numerics.flash) {
    software.attention_kernel = plan::AttentionKernel::math;  // modeling_bert.py, eager_attention_forward
    notes.push_back("attention composed as in Hugging Face's Transformers");
  } else if (attends_masked(s)) {
    software.padding_mask = true;
    notes.push_back("padded sequences, with whose mask attention computes all scores");
  }
}

/// XLA on GPUs had no fused softmax before 2023 (openxla/xla, softmax_rewriter_triton.cc), nor fused attention.
void take_xla(const Setup& s, const plan::PlanSpec& spec, Software& software, std::vector<std::string>& notes) {
  if (spec.numerics.flash || software.attention_kernel || !precedes_fused_attention(s) || !is_compiled(s)) return;
  const std::string words = software_words(s);
  const bool xla = tells(words, "xla") || tells(words, "jax") || tells(words, "flax");
  if (!xla || small_letters(s.gpu_type).rfind("tpu", 0) == 0) return;
  software.attention_kernel = plan::AttentionKernel::xla;
  notes.push_back("softmax in three kernels, as in XLA before 2023");
}

/// What a compiler fuses, and what eager torchtitan composes: its norms before PyTorch 2.9, and after its first year,
/// in which its Llama 2 was of norm_type fused_rmsnorm (train_configs/llama2_13b.toml).
void take_compiler(const Setup& s, const cost::Stack& stack, Software& software, std::vector<std::string>& notes) {
  if (is_compiled(s)) software.compiled = true;
  if (stack.software().rfind("torchtitan", 0) != 0) return;
  const std::string date = date_of(s);
  if (!date.empty() && date < "2025") software.rms_norm = plan::NormKernel::fused;
  const bool eager = s.compiled ? !*s.compiled : tells(small_letters(s.framework), "eager");
  if (!eager) return;
  software.compiled = false;
  if (date.empty() || (date >= "2025" && date < "2025-10")) software.rms_norm = plan::NormKernel::composed;
  notes.push_back("operators composed, as in eager torchtitan");
}

/// What a run's words say of its messages. FSDP's mixed precision is "PURE" (sums of gradients travel in 16 bits) or
/// "DEFAULT" (in fp32), as Composer calls them, or names the type; InternEvo sums in 16 bits, OLMo in fp32.
void take_messages(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, Software& software) {
  const std::string mixed = small_letters(s.mixed_precision);
  // DDP's buckets and FSDP's shards have the parameters' own type (c10d/reducer.cpp, fsdp/_flat_param.py).
  const bool half = tells(mixed, "pure") || tells(mixed, "bf16") || tells(mixed, "fp16") ||
                    (stack.generic && mixed.empty() && all_in_16_bits(s)) ||
                    (stack.generic && tells(small_letters(s.framework), "internevo"));
  // OLMo's FSDP is `precision: mixed`, whose reduce_dtype is fp32 (olmo/config.py, FSDPPrecision; configs/official).
  const bool olmo = mixed.empty() && tells(software_words(s), "olmo");
  if (half)
    software.reduce_dtype =
        spec.numerics.precision == models::DType::fp16 ? plan::ReduceType::fp16 : plan::ReduceType::bf16;
  else if (olmo || tells(mixed, "default") || tells(mixed, "fp32"))
    software.reduce_dtype = plan::ReduceType::fp32;
  if (s.scatter_gather == false) software.scatter_gather = false;
  if (stack.generic && s.network_state == "slow") software.slow_network = true;
}

/// Whether a vendor tuned the run's products for their shapes: in its submissions to MLPerf, and in its own software.
void take_tuning(const Setup& s, Software& software, std::vector<std::string>& notes) {
  const bool submitted = tells(small_letters(s.source), "mlperf");
  const bool own = tells(software_words(s), "primus");  // AMD-AGI/Primus, Primus-Turbo
  if (!submitted && !own) return;
  software.tuned_gemms = true;
  if (small_letters(s.gpu_type).find("mi") == 0)
    notes.push_back("products tuned for their shapes, as in AMD's submissions and software");
}

/// What a run keeps of its optimizer: moments of a byte in 8 bits (Dettmers et al. 2022), of two if all is in 16 bits.
void take_states(const Setup& s, Software& software) {
  constexpr std::int64_t kEight = 8, kHalf = 16;
  const bool half = all_in_16_bits(s);
  if (half) software.master_weights = false, software.moment_bits = kHalf;
  if (tells(s.optimizer, "8-bit")) software.moment_bits = kEight;
  if (tells(small_letters(s.optimizer), "fused on the host")) software.fused_optimizer = true;
}

std::optional<plan::Fp8Recipe> recipe_said(const Setup& s, models::DType type) {
  if (type != models::DType::fp8 && type != models::DType::fp4) return std::nullopt;
  const std::string precision = small_letters(s.precision);
  if (tells(precision, "nvfp4")) return plan::Fp8Recipe::nvfp4;
  if (tells(precision, "mx")) return plan::Fp8Recipe::mxfp8;
  if (tells(precision, "block")) return plan::Fp8Recipe::blockwise;
  return std::nullopt;
}

/// Losses that a name or a release tells apart from its stack's.
void take_loss_said(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, Software& software) {
  using plan::LossKernel;
  const std::string words = software_words(s);
  // Its `out` holds the logits, cast to fp32, during backward (trainer/sft/train.py and trainer/model.py, 2026-01).
  if (tells(words, "prime-rl")) {
    software.cross_entropy = spec.numerics.loss_chunks > 1 ? LossKernel::fused : LossKernel::upcast;
    software.expandable_segments = true;  // benchmarks.yaml, rl.py
  }
  // Their kernels write gradients over logits (liger_kernel/ops/cross_entropy.py;
  // unsloth/kernels/cross_entropy_loss.py).
  if (tells(words, "liger") || tells(words, "unsloth")) software.cross_entropy = LossKernel::fused;
  // The loss goes through chunks of rows, each compiled (torchtune/modules/loss): gradients of a chunk at a time.
  if (tells(words, "torchtune") && is_compiled(s)) software.cross_entropy = LossKernel::fused;
  // Its scripts compile the loss (OLMo-core, src/scripts/train: compile_loss).
  if (tells(words, "olmo-core") && is_compiled(s)) software.cross_entropy = LossKernel::compiled;
  // build_cross_entropy_loss compiles it with the blocks from its commit bbb1b616e (2025-04-02) on, after 0.0.2.
  if (stack.software().rfind("torchtitan", 0) == 0 && is_compiled(s) && torchtitan_of(s, "2025-04"))
    software.cross_entropy = LossKernel::compiled;
}

/// Blocks whose activations wait on the host by a recipe of NVIDIA's FSDP.
void take_offloading(const Setup& s, Software& software, std::vector<std::string>& notes) {
  const std::string model = small_letters(s.model), precision = small_letters(s.precision);
  for (const OnHost& known : kOnHost)
    if (model.rfind(known.model, 0) == 0 && s.gpu_type.rfind(known.device, 0) == 0 &&
        tells(precision, known.precision)) {
      software.cpu_offloading_layers = known.blocks;
      notes.push_back(
          fmt::format("activations of {} on the host, as in its recipe (scripts/performance/configs, "
                      "cpu_offloading_num_layers); their copies count as hidden",
                      base::count_of(known.blocks, "block")));
      return;
    }
}

/// NVIDIA's recipes of NeMo and Megatron Bridge add gradients up in bf16, keep weights in fp8, fuse the loss, and put
/// some layers' activations on the host.
void take_nvidias_recipes(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, Software& software,
                          std::vector<std::string>& notes) {
  const std::string& engine = stack.software();
  if (engine.rfind("megatron-core", 0) != 0 && engine != "megatron-fsdp" && engine != "megatron-bridge") return;
  const std::string framework = small_letters(s.framework);
  const bool bridge = tells(framework, "bridge");
  // NeMo's container has Megatron-LM itself, too, whose sums are in fp32.
  const bool nemo = tells(framework, "nemo") && !tells(framework, "automodel") && !tells(framework, "megatron-lm");
  if (!bridge && !nemo) return;
  // Its own recipes sum in fp32 (recipes/*, DistributedDataParallelConfig) and cast the logits to it
  // (cross_entropy_fusion_impl native); those of its tables of performance do neither.
  const bool measured = !bridge || tells(small_letters(s.source), "performance") || tells(s.source, "NVIDIA");
  software.gradient_dtype = measured ? plan::ReduceType::bf16 : plan::ReduceType::fp32;
  // Launchers of 2024 have fp8_params for fine-tuning alone; NeMo 2's and Bridge's precisions have fp8_param_gather.
  const std::string released = s.section + " " + framework;
  const bool launcher = nemo && (tells(released, "24.05") || tells(released, "24.07"));
  if (spec.numerics.precision == models::DType::fp8 || spec.numerics.precision == models::DType::fp4)
    software.fp8_param_gather = !launcher || s.packed.has_value();
  // set_perf_optimization_configs: cross_entropy_fusion_impl te (NeMo, scripts/performance/helpers.py, of 2025).
  const std::string release = release_of(framework);
  const bool fuses = bridge ? measured : release >= "-25.04" && release < "-3";
  if (fuses) software.cross_entropy = plan::LossKernel::fused;
  if (!measured) {
    software.cross_entropy = plan::LossKernel::native;
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
  if (bridge && s.zero_stage.value_or(0) == 3) take_offloading(s, software, notes);
}

/// What a run's framework keeps in memory.
void take_kept(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, Software& software,
               std::vector<std::string>& notes) {
  software.fp8_recipe = recipe_said(s, spec.numerics.precision);
  // "custom: projections and inputs of layers on the host": MaxText's remat_policy: custom, decoder_layer_input:
  // offload
  if (tells(s.recompute_modules, "on the host") || tells(s.recompute_modules, "offload")) {
    software.cpu_offloading_layers = *s.layers;
    notes.push_back("what blocks keep is on the host; its copies count as hidden");
  }
  take_loss_said(s, stack, spec, software);
  if (tells(small_letters(s.precision_words + " " + s.framework), "autocast")) {
    software.autocast = true;
    notes.push_back("sums of branches in fp32, as autocast leaves them");
  }
  // Gradients stay in the parameters' type until the update (internlm/solver/optimizer/hybrid_zero_optim.py).
  if (tells(small_letters(s.framework), "internevo")) {
    software.gradient_dtype = plan::ReduceType::bf16;
    notes.push_back("gradients in 16 bits, as InternEvo has them");
  }
  take_nvidias_recipes(s, stack, spec, software, notes);
}

}  // namespace

Software software_said(const Setup& s, const cost::Stack& stack, const plan::PlanSpec& spec, bool stands_in,
                       std::vector<std::string>& notes) {
  Software out;
  if (s.experts) take_travel(s, out);
  out.attention_kernel = attention_kernel_of(s.attention_kernel);
  take_code(s, stack, spec, out, notes);
  take_compiler(s, stack, out, notes);
  take_xla(s, spec, out, notes);
  take_messages(s, stack, spec, out);
  take_tuning(s, out, notes);
  take_states(s, out);
  take_kept(s, stack, spec, out, notes);
  // Software that stands in lends what it does, not what its own runs reached.
  if (stands_in && !stack.generic) out.gemm_rate_of = generic_of(s);
  return out;
}

}  // namespace orrery::sim
