/// Finds software by words of `stack` and `framework`.
#include "sim/validate/software.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "sim/validate/mixture_rows.h"

namespace orrery::sim {

namespace {

/// All that a row says of its software, in small letters.
std::string words_of(const Setup& s) {
  return small_letters(s.stack + " " + s.framework);
}

bool names(const std::string& words, std::initializer_list<const char*> any) {
  return std::any_of(any.begin(), any.end(), [&](const char* word) { return words.find(word) != std::string::npos; });
}

/// Other names of an engine; the first that a row's words contain decides. Each software's documentation says what it
/// runs.
constexpr std::pair<const char*, const char*> kEngines[] = {
    {"deeplearningexamples", "dle-bert"},
    {"megatron-core", "megatron-core"},
    {"megatron core", "megatron-core"},
    {"megatron bridge", "megatron-core"},
    {"megatron-deepspeed", "megatron-deepspeed"},
    {"neox", "megatron-deepspeed"},  // Megatron's model on DeepSpeed's engine
    {"megatron-lm", "megatron"},
    {"torchtitan", "torchtitan"},
    {"llm-foundry", "fsdp-composer"},
    {"llm foundry", "fsdp-composer"},
    {"mosaicml", "fsdp-composer"},
    {"deepspeed", "deepspeed"},
    {"maxtext", "maxtext"},
    {"paxml", "paxml"},
};

/// Frameworks that shard by PyTorch's FSDP without saying so: OLMo (olmo/config.py, FSDPConfig), OpenLM, Fairscale
/// (whose FSDP became PyTorch's), llama-recipes, LitGPT and torchtune.
constexpr std::initializer_list<const char*> kShardByFsdp = {
    "olmo", "open_lm", "openlm", "fairscale", "llama-recipes", "llama-cookbook", "litgpt", "lit-gpt", "torchtune"};

}  // namespace

Version version_of(const std::string& name) {
  for (std::size_t dash = name.find('-'); dash != std::string::npos; dash = name.find('-', dash + 1)) {
    std::size_t end = dash + 1;
    std::int64_t year = 0;
    constexpr std::int64_t kTen = 10, kLatest = 1'000'000;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0 && year < kLatest)
      year = kTen * year + (name[end++] - '0');
    if (end > dash + 1) return {name.substr(0, dash), year};
  }
  return {name, 0};
}

bool is_core(const std::string& stack, std::int64_t year) {
  constexpr std::int64_t kFirst = 2025;  // core_r0.7 of May 2024 made the models of Megatron-LM Core's by default
  return year >= kFirst && version_of(stack).family == "megatron";
}

std::int64_t year_of(const Setup& s) {
  constexpr std::int64_t kFirst = 2015, kLast = 2100;
  for (const std::int64_t year :
       {version_of(s.stack).year, std::int64_t{std::strtoll(s.date.c_str(), nullptr, 10)}})  // NOLINT: decimal
    if (year >= kFirst && year <= kLast) return year;
  return 0;
}

bool is_compiled(const Setup& s) {
  // OneFlow compiles a job into actors with fused operators (Yuan et al. 2021, sections 3 to 5); TensorFlow, MXNet and
  // MindSpore run whole graphs (tf.function; hybridize; GRAPH_MODE), as PaddlePaddle does if it says so. XLA alone
  // reaches a TPU.
  if (small_letters(s.gpu_type).rfind("tpu", 0) == 0) return s.compiled.value_or(true);
  return s.compiled.value_or(
      names(words_of(s), {"jax", "xla", "compile", "maxtext", "pax", "t5x", "flax", "levanter", "easylm", "alpa",
                          "oneflow", "tensorflow", "mxnet", "mindspore", "static graph", "llm.c"}));
}

std::string software_of(const Setup& s) {
  const std::string words = words_of(s);
  for (const auto& [word, stack] : kEngines)
    if (words.find(word) != std::string::npos) return stack;
  constexpr std::int64_t kFirstOfCore = 2024;
  const std::int64_t year = version_of(s.stack).year;
  if (names(words, {"nemo"}) && !names(words, {"automodel"}))
    return year > 0 && year < kFirstOfCore ? fmt::format("megatron-{}", year) : "megatron-core";
  if (names(words, {"jax", "xla"})) return {};
  const bool shards = s.zero_stage.value_or(0) >= 2 || !s.fsdp_sharding.empty();
  if (names(words, {"fsdp"}) || (shards && names(words, kShardByFsdp)))
    return is_compiled(s) ? "pytorch-fsdp-compiled" : "pytorch-fsdp";
  // What the catalogue's clusters of TPUs name.
  return small_letters(s.gpu_type).rfind("tpu", 0) == 0 ? "maxtext" : std::string();
}

bool precedes_fused_attention(const Setup& s) {
  constexpr std::int64_t kFused = 2023;
  const std::int64_t year = year_of(s);
  return year > 0 && year < kFused;
}

const char* generic_of(const Setup& s) {
  if (s.family == kRecommender) return cost::kGenericRecommender;
  if (is_compiled(s)) return cost::kGenericCompiled;
  return precedes_fused_attention(s) ? "generic-eager-2022" : cost::kGenericEager;
}

bool replaces_operators(const Setup& s) {
  return names(words_of(s), {"liger", "unsloth", "transformer engine", "fused kernel"});
}

namespace {

/// Words of software whose models are Transformers'.
bool names_transformers(const std::string& words) {
  return names(words, {"hugging face", "huggingface", "transformers", "-hf", "hf model", "hf trainer", "peft", "trl",
                       "sfttrainer", "accelerate", "axolotl", "llama-factory", "llamafactory", "xtuner", "swift",
                       "lmflow", "fastchat"});
}

}  // namespace

bool runs_transformers(const Setup& s, const cost::Stack& engine) {
  const std::string words = words_of(s);
  if (!engine.generic && engine.name.rfind("deepspeed", 0) != 0) return false;
  if (is_compiled(s) || replaces_operators(s) || names(words, {"megatron"})) return false;
  return names_transformers(words);
}

std::optional<UsualZero> usual_zero_stage(const Setup& s) {
  constexpr UsualZero kAccelerate{2, "Accelerate's default"};
  constexpr UsualZero kNemo{1, "as NVIDIA's recipes have it (distributed_fused_adam, use_distributed_optimizer)"};
  const std::string words = words_of(s);
  const bool open = !s.zero_stage && s.fsdp_sharding.empty() && s.data.value_or(1) > 1;
  if (!open) return std::nullopt;
  if (names(words, {"deepspeed"}) && names_transformers(words)) return kAccelerate;
  if (names(words, {"nemo", "megatron-bridge", "megatron bridge"}) && !names(words, {"automodel"})) return kNemo;
  return std::nullopt;
}

bool follows_recipes(const Setup& s) {
  return names(small_letters(s.source), {"nvidia", "mlperf", "nemo", "megatron bridge", "megatron-core"});
}

bool attends_masked(const Setup& s) {
  return !s.flash_attention && s.attention_kernel.empty() && !s.packed && s.micro_batch.value_or(1) > 1;
}

}  // namespace orrery::sim
