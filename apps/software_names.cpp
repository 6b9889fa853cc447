// Each software's own documentation says what it runs underneath; no number is claimed for it here.
#include "apps/software_names.h"

#include <algorithm>
#include <cctype>

namespace orrery::apps {
namespace {

struct Row {
  const char *name, *stack, *why;
};

constexpr const char* kFsdp = "PyTorch FSDP, layer by layer";
constexpr const char* kCore = "it runs Megatron-Core";
constexpr const char* kEager = "eager PyTorch; FSDP below it is pytorch-fsdp, DeepSpeed is deepspeed";
constexpr const char* kTransformers = "models of Transformers; FSDP below them is pytorch-fsdp, DeepSpeed is deepspeed";
constexpr const char* kXla = "JAX programs that XLA compiles";
constexpr const char* kCompiled = "kernels of its own, issued without a Python host";
constexpr const char* kTables = "software for embedding tables that nobody measured";

constexpr Row kRows[] = {
    {"torchtitan", "torchtitan-2024", kFsdp},
    {"fsdp", "pytorch-fsdp", kFsdp},
    {"fsdp1", "pytorch-fsdp", kFsdp},
    {"fsdp2", "pytorch-fsdp", kFsdp},
    {"llama-recipes", "pytorch-fsdp", kFsdp},
    {"litgpt", "pytorch-fsdp", kFsdp},
    {"olmo", "pytorch-fsdp", kFsdp},
    {"fairscale", "pytorch-fsdp", "its FSDP became PyTorch's"},
    {"composer", "fsdp-composer-2023", "MosaicML's Composer runs PyTorch FSDP"},
    {"llm-foundry", "fsdp-composer-2023", "LLM Foundry runs Composer"},
    {"mosaicml", "fsdp-composer-2023", "Composer with PyTorch FSDP"},
    {"nemo", "megatron-core", kCore},
    {"nemo-framework", "megatron-core", kCore},
    {"megatron", "megatron-core", "its newest version"},
    {"megatron-lm-core", "megatron-core", kCore},
    {"mcore", "megatron-core", kCore},
    {"transformer-engine", "megatron-core", "Megatron-Core's layers are Transformer Engine's"},
    {"zero", "deepspeed", "ZeRO is DeepSpeed's"},
    {"zero-3", "deepspeed", "ZeRO is DeepSpeed's"},
    {"gpt-neox", "megatron-deepspeed-2022", "GPT-NeoX is Megatron's model on DeepSpeed's engine"},
    {"neox", "megatron-deepspeed-2022", "GPT-NeoX is Megatron's model on DeepSpeed's engine"},
    {"megatron-deepspeed", "megatron-deepspeed-2022", "the newest of its years"},
    {"jax", "maxtext", kXla},
    {"t5x", "maxtext", kXla},
    {"flax", "maxtext", kXla},
    {"axlearn", "maxtext", kXla},
    {"levanter", "maxtext", kXla},
    {"easylm", "maxtext", kXla},
    {"alpa", "maxtext", kXla},
    {"accelerate", "huggingface", kTransformers},
    {"hf", "huggingface", kTransformers},
    {"transformers", "huggingface", kTransformers},
    {"trl", "huggingface", kTransformers},
    {"trainer", "huggingface", kTransformers},
    {"axolotl", "huggingface", kTransformers},
    {"llama-factory", "huggingface", kTransformers},
    {"lightning", "generic-eager", kEager},
    {"pytorch-lightning", "generic-eager", kEager},
    {"pytorch", "generic-eager", kEager},
    {"torch", "generic-eager", kEager},
    {"ddp", "generic-eager", kEager},
    {"fairseq", "generic-eager", kEager},
    {"nanogpt", "generic-compiled", "its training step is torch.compile's"},
    {"nanochat", "generic-compiled", "its training step is torch.compile's"},
    {"unsloth", "generic-compiled", kCompiled},
    {"llm.c", "generic-compiled", kCompiled},
    {"torchrec", "torchrec-2022", "the one that is published"},
    {"tensorflow-recommenders", "generic-recommender", kTables},
    {"persia", "generic-recommender", kTables},
    {"hugectr", "hugectr-2023", "the newest of its years"},
    {"dlrm", "generic-recommender", kTables},
    {"neo", "zionex-2021", "Neo is ZionEX's software"},
    {"zionex", "zionex-2021", "the one that is published"},
};

}  // namespace

std::optional<NearestStack> nearest_stack(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '_' || c == ' ' ? '-' : std::tolower(c); });
  for (const Row& row : kRows)
    if (name == row.name) return NearestStack{row.stack, row.why};
  return std::nullopt;
}

}  // namespace orrery::apps
