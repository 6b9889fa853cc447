/// Assumes usual practice instead of "off".
#include "sim/validate/unstated.h"

#include <fmt/format.h>

#include <string_view>

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

}  // namespace

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
