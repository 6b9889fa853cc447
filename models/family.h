#pragma once
/// Families. A family decides what holds where a model file is silent, and how weights are named in files. It is a name
/// here and an entry in the table (models/read/families.h).
#include <cstdint>

namespace orrery::models {

enum class Family : std::uint8_t {
  gpt,
  bert,
  llama,
  mistral,
  qwen2,
  qwen3,
  gemma,
  gemma2,
  gemma3,
  gpt_neox,
  phi3,
  opt,
  falcon,
  bloom,
  nemotron,
  starcoder2,
  stablelm,
  internlm2,
  glm,
  glm4,
  ernie,
  seed_oss,
  smollm3,
  arcee,
  granite,
  baichuan,
  internlm3,
  cohere,
  cohere2,
  gpt_bigcode,
  mpt,
  qwen,
  roberta,
  mixtral,
  qwen2_moe,
  qwen3_moe,
  deepseek_v2,
  deepseek_v3,
  gpt_oss,
  llama4,
  glm4_moe,
  deepseek,
  dots1,
  ernie_moe,
  dbrx,
  dlrm,  ///< no stack of blocks, and no entry in the table (models/recommender.h)
};

}  // namespace orrery::models
