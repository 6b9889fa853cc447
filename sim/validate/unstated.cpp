/// Assumes usual practice instead of "off".
#include "sim/validate/unstated.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "models/names.h"
#include "sim/validate/software.h"

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

void fill_in(Setup& s, const std::string& what) {
  s.assumed.push_back("filled in: " + what);
}

/// Whether the degrees that are stated use all devices, so that every other one is 1.
bool uses_all_devices(const Setup& s) {
  std::optional<std::int64_t> rest = s.gpus;
  for (const auto& degree : {s.data, s.tensor, s.pipeline, s.context}) rest = over(rest, degree.value_or(1));
  return rest == 1;
}

/// The degree that is left when the others are known.
void take_split(Setup& s) {
  const bool sharded = s.zero_stage == 3 || !s.fsdp_sharding.empty();
  const bool used = uses_all_devices(s);
  if (!s.pipeline && (used || sharded)) {
    s.pipeline = 1;
    fill_in(s, "no pipeline");
  }
  if (!s.tensor && (used || (sharded && !s.data))) {
    s.tensor = 1;
    fill_in(s, "no tensor parallelism");
  }
  const std::int64_t context = s.context.value_or(1);
  const auto rest = [&](const char* name, std::optional<std::int64_t>& open, const auto& one, const auto& other) {
    if (open || !one || !other || !s.gpus) return;
    const std::int64_t stated = *one * *other * context;
    open = over(s.gpus, stated);
    if (open) fill_in(s, fmt::format("{} {}, which the devices leave", name, *open));
    if (!open) s.contradiction = fmt::format("its degrees, {} together, do not divide {} devices", stated, *s.gpus);
  };
  rest("data", s.data, s.tensor, s.pipeline);
  rest("tensor", s.tensor, s.data, s.pipeline);
  rest("pipeline", s.pipeline, s.data, s.tensor);
}

/// Divides a replica's batch into micro-batches.
void take_micro_batch(Setup& s) {
  const auto replica = over(s.batch, *s.data);
  if (!replica) {
    s.contradiction = fmt::format("a batch of {} does not divide among {} replicas", *s.batch, *s.data);
    return;
  }
  // A batch of a replica's own becomes as many micro-batches as there are stages, where nobody says how many
  // (torchtitan of 2024, config_manager.py, pipeline_parallel_microbatches).
  const auto micro = s.accumulation ? over(replica, *s.accumulation) : over(s.local_batch, *s.pipeline);
  if (s.accumulation && !micro) {
    s.contradiction = fmt::format("a replica's batch of {} is not accumulated in {} steps", *replica, *s.accumulation);
    return;
  }
  s.micro_batch = micro;
  if (micro && *replica % *micro == 0) {
    fill_in(s, fmt::format("micro-batches of {}, by {}", *micro, s.accumulation ? "grad_accum" : "local_batch"));
    return;
  }
  constexpr std::int64_t kMost = 8;
  std::int64_t most = *s.pipeline == 1 ? std::min(kMost, *replica) : 1;
  while (*replica % most != 0) --most;
  s.micro_batch = most;
  s.open_micro_batch = true;
}

/// The catalogue's model of this name, if it has every size that the row states.
const models::Model* named_in(const std::vector<models::Model>& catalogue, const Setup& s) {
  const auto agrees = [](const std::optional<std::int64_t>& stated, std::int64_t size) {
    return !stated || *stated == size;
  };
  for (const std::string& name : {s.model, models::without_minor_version(s.model)})
    for (const models::Model& m : catalogue)
      if (const std::string letters = models::letters_of(name);
          !m.recommender && !letters.empty() && models::letters_of(m.name) == letters && agrees(s.layers, m.layers) &&
          agrees(s.hidden, m.hidden) && agrees(s.heads, m.heads) && agrees(s.kv_heads, m.kv_heads) &&
          agrees(s.ffn_hidden, m.ffn_hidden) && agrees(s.experts, m.experts.count))
        return &m;
  return nullptr;
}

/// Heads of 128 columns, or of 64, which BERT's have, as far as groups and tensor ranks divide them.
void take_heads(Setup& s) {
  constexpr std::int64_t kWide = 128, kNarrow = 64;
  std::vector<std::int64_t> widths = {kWide, kNarrow};
  if (s.family == "bert") widths = {kNarrow};
  if (s.head_dim && !s.latent_kv) widths = {*s.head_dim};
  for (const std::int64_t width : widths) {
    const auto heads = over(s.hidden, width);
    if (!heads || *heads % s.tensor.value_or(1) != 0 || *heads % s.kv_heads.value_or(1) != 0) continue;
    s.heads = heads;
    fill_in(s, fmt::format("{} heads, of {} columns", *heads, width));
    return;
  }
}

}  // namespace

void take_arithmetic(Setup& s) {
  if (s.family == kRecommender) return;
  take_split(s);
  if (!s.data || !s.pipeline || !s.contradiction.empty()) return;
  if (!s.batch) {
    if (s.local_batch) s.batch = *s.local_batch * *s.data;
    if (!s.local_batch && s.micro_batch && s.accumulation) s.batch = *s.micro_batch * *s.accumulation * *s.data;
    if (s.batch) fill_in(s, fmt::format("a batch of {}", *s.batch));
  }
  if (s.batch && !s.micro_batch) take_micro_batch(s);
}

void take_shape(Setup& s, const std::vector<models::Model>& catalogue) {
  if (!s.layers || !s.hidden || !s.heads || s.family.empty())
    if (const models::Model* m = named_in(catalogue, s)) {
      s.layers = m->layers, s.hidden = m->hidden, s.heads = m->heads;
      if (m->experts.any()) s.experts = m->experts.count;
      s.catalogued = m->name;
      fill_in(s, fmt::format("the shape of {}", m->name));
    }
  if (!s.heads && s.hidden) take_heads(s);
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
  const int piped = stack.can.zero_in_pipeline(spec.states.zero_stage);
  if (spec.mesh.pipeline > 1 && piped != spec.states.zero_stage) {
    notes.push_back(
        fmt::format("ZeRO {} for {}, which {} is in a pipeline", piped, spec.states.zero_stage, stack.name));
    spec.states.zero_stage = piped;
  }
  const bool parts = s.partition_checkpoints.value_or(usual.partition_checkpoints && spec.states.zero_stage > 0);
  spec.recomputation.partition_checkpoints =
      parts && spec.mesh.tensor > 1 && spec.recomputation.what == plan::Recompute::full && !spec.mesh.sequence_parallel;
  if (spec.recomputation.partition_checkpoints && !s.partition_checkpoints)
    notes.push_back(fmt::format("checkpoints partitioned over the tensor group, as {} usually has them", stack.name));
  // Who only asks for more stages does not interleave them: Megatron-LM, arguments.py, and NeMo, recipes of models that
  // need no pipeline, have no virtual stages by default.
  const bool plain = stack.name.rfind("megatron-core", 0) == 0 && !follows_recipes(s);
  const bool open = !s.virtual_stages && !s.interleaved && s.schedule.empty() && !plain;
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
