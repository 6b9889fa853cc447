/// Assumes usual practice instead of "off".
#include "sim/validate/unstated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "models/read/families.h"
#include "sim/validate/mixture_rows.h"

namespace orrery::sim {

namespace {

/// Defaults of Megatron-LM's arguments.py that a script of FlagPerf's does not change.
struct Script {
  const char* source;     ///< a word of the row's
  const char* framework;  ///< the beginning of the row's
  const char* model;      ///< the beginning of its name
  const char* file;
  bool
      plain;  ///< neither --disable-bias-linear nor --untie-embeddings-and-output-weights nor --position-embedding-type
};
constexpr Script kScripts[] = {
    {"FlagPerf", "Megatron-Core", "Llama 3 8B", "training/benchmarks/llama3_8B/megatron/pretrain_llama3.sh", true},
    {"FlagPerf", "Megatron-Core", "Llama 3 70B", "training/benchmarks/llama3_70B/megatron/pretrain_llama3.sh", true},
    {"FlagPerf", "Megatron-Core", "Mixtral", "training/benchmarks/mixtral_8x7B/megatron/megatron_main.sh", false},
};
constexpr double kDropout = 0.1;  // --hidden-dropout, --attention-dropout

/// The quotient, if both are given and the division leaves no rest.
std::optional<std::int64_t> over(std::optional<std::int64_t> a, std::int64_t b) {
  return a && b > 0 && *a % b == 0 ? std::optional(*a / b) : std::nullopt;
}

/// The degree that is left when the others are known.
void take_split(Setup& s) {
  const bool sharded = s.zero_stage == 3 || !s.fsdp_sharding.empty();
  for (auto* degree : {&s.tensor, &s.pipeline})
    if (!*degree && (s.gpus == 1 || sharded || (s.data && s.gpus == s.data))) {
      *degree = 1;
      if (s.gpus != 1 && s.gpus != s.data)
        s.assumed.push_back(degree == &s.tensor ? "no tensor parallelism" : "no pipeline");
    }
  const std::int64_t context = s.context.value_or(1);
  const auto rest = [&](const auto& one, const auto& other) {
    return one && other ? over(s.gpus, *one * *other * context) : std::nullopt;
  };
  if (!s.data) s.data = rest(s.tensor, s.pipeline);
  if (!s.tensor) s.tensor = rest(s.data, s.pipeline);
  if (!s.pipeline) s.pipeline = rest(s.data, s.tensor);
}

/// A name without the minor version: "Llama 3.1 8B" has the shape of Llama 3 8B.
std::string without_minor(std::string name) {
  for (std::size_t at = 1; at + 1 < name.size(); ++at)
    if (name[at] == '.' && std::isdigit(static_cast<unsigned char>(name[at - 1])) != 0 &&
        std::isdigit(static_cast<unsigned char>(name[at + 1])) != 0)
      return name.erase(at, 2);
  return name;
}

const models::Model* named_in(const std::vector<models::Model>& catalogue, const std::string& name) {
  for (const std::string& letters : {letters_of(name), letters_of(without_minor(name))})
    for (const models::Model& m : catalogue)
      if (!m.recommender && !letters.empty() && letters_of(m.name) == letters) return &m;
  return nullptr;
}

}  // namespace

void take_arithmetic(Setup& s) {
  if (s.family == kRecommender) return;
  take_split(s);
  if (!s.data || !s.pipeline) return;
  if (!s.batch && s.local_batch) s.batch = *s.local_batch * *s.data;
  if (!s.batch && s.micro_batch && s.accumulation) s.batch = *s.micro_batch * *s.accumulation * *s.data;
  const auto replica = over(s.batch, *s.data);
  if (s.micro_batch || !replica) return;
  // A batch of a replica's own becomes as many micro-batches as there are stages, where nobody says how many
  // (torchtitan of 2024, config_manager.py, pipeline_parallel_microbatches).
  s.micro_batch = s.accumulation ? over(replica, *s.accumulation) : over(s.local_batch, *s.pipeline);
  if (s.micro_batch && *replica % *s.micro_batch == 0) return;
  constexpr std::int64_t kMost = 8;
  std::int64_t micro = *s.pipeline == 1 ? std::min(kMost, *replica) : 1;
  while (*replica % micro != 0) --micro;
  s.micro_batch = micro;
  s.open_micro_batch = true;
}

void take_shape(Setup& s, const std::vector<models::Model>& catalogue) {
  if (!s.layers || !s.hidden || !s.heads)
    if (const models::Model* m = named_in(catalogue, s.model)) {
      const auto take = [](std::optional<std::int64_t>& into, std::int64_t value) {
        if (!into && value > 0) into = value;
      };
      take(s.layers, m->layers), take(s.hidden, m->hidden), take(s.heads, m->heads), take(s.kv_heads, m->kv_heads);
      take(s.head_dim, m->head_dim), take(s.ffn_hidden, m->ffn_hidden), take(s.vocab, m->vocab);
      take(s.experts, m->experts.count), take(s.expert_ffn, m->experts.hidden);
      if (m->experts.any()) take(s.experts_per_token, m->experts.chosen);
      if (s.family.empty()) s.family = models::name_of(m->family);
      if (!s.tied_embeddings) s.tied_embeddings = m->tied_embeddings;
      s.assumed.push_back(fmt::format("the shape of {}", m->name));
    }
  if (s.heads || !s.hidden) return;
  constexpr std::int64_t kWide = 128, kNarrow = 64;
  const std::int64_t ranks = s.tensor.value_or(1);
  for (const std::int64_t width : {kWide, kNarrow})
    if (*s.hidden % width == 0 && *s.hidden / width % ranks == 0) {
      s.heads = *s.hidden / width;
      s.assumed.push_back(fmt::format("{} heads, of {} columns", *s.heads, width));
      return;
    }
}

void take_recomputation(Setup& s, std::vector<std::string>& notes) {
  // Its recipes of one device (examples/llm_benchmark, llama3_1_8b and qwen2_5_7b) do not.
  if (!s.recompute.empty() || !s.lora_rank || s.gpus == 1 || s.source.find("AutoModel") == std::string::npos) return;
  s.recompute = "full";
  notes.push_back(
      "recomputed, as in its recipes (NVIDIA-NeMo/Automodel, examples/llm_finetune/llama3_3, of 2025: "
      "activation_checkpointing)");
}

models::Model as_script_runs(models::Model model, const Setup& s, std::vector<std::string>& notes) {
  for (const Script& known : kScripts) {
    if (s.source.find(known.source) == std::string::npos || s.framework.rfind(known.framework, 0) != 0 ||
        s.model.rfind(known.model, 0) != 0)
      continue;
    model.dropout = {.embedding = kDropout, .attention = kDropout, .residual = kDropout};
    if (known.plain) {
      model.bias = model.tied_embeddings = true;
      model.positions = models::Positions::learned;
    }
    notes.push_back(fmt::format("dropout of {}{}, as its script leaves them ({})", kDropout,
                                known.plain ? ", biases, learned positions and one token table" : "", known.file));
    return model;
  }
  return model;
}

void take_practice(const Setup& s, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes) {
  const cost::Practice& usual = stack.usual;
  if (spec.mesh.tensor > 1 && !s.sequence_parallel && usual.sequence_parallel &&
      spec.shape.sequence % spec.mesh.tensor == 0) {
    spec.mesh.sequence_parallel = true;
    notes.push_back(fmt::format("sequence parallelism, as {} usually has it", stack.name));
  }
  const bool parts = s.partition_checkpoints.value_or(usual.partition_checkpoints && spec.states.zero_stage > 0);
  spec.recomputation.partition_checkpoints =
      parts && spec.mesh.tensor > 1 && spec.recomputation.what == plan::Recompute::full && !spec.mesh.sequence_parallel;
  if (spec.recomputation.partition_checkpoints && !s.partition_checkpoints)
    notes.push_back(fmt::format("checkpoints partitioned over the tensor group, as {} usually has them", stack.name));
  const bool open = !s.virtual_stages && !s.interleaved && s.schedule.empty();
  const std::int64_t layers = *s.layers / spec.mesh.pipeline;
  std::int64_t chunk = usual.chunk_layers;
  while (chunk > 1 && layers % chunk != 0) --chunk;  // an odd number of layers in chunks of two: single layers
  if (spec.mesh.pipeline > 1 && open && chunk > 0 && *s.layers % spec.mesh.pipeline == 0 && layers > chunk &&
      spec.micro_batches() % spec.mesh.pipeline == 0) {
    spec.stages.virtual_stages = static_cast<int>(layers / chunk);
    notes.push_back(fmt::format("{} chunks per stage, as {} usually has them", spec.stages.virtual_stages, stack.name));
  }
}

}  // namespace orrery::sim
