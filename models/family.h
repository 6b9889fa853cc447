#pragma once
/// Families: what a model file says nothing of is theirs, and so are their weights' names in files. A family is a name
/// here and an entry of the table (models/families.h).
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
  gpt_neox,
  phi3,
  opt,
  falcon,
  bloom,
  nemotron,
  mixtral,
  qwen2_moe,
  qwen3_moe,
  deepseek_v2,
  deepseek_v3,
  gpt_oss,
  llama4,
  dlrm,  ///< no stack of blocks, and no entry in the table (models/recommender.h)
};

}  // namespace orrery::models
