// Two tables of words, and their lookup; keys in the wrong map.
#include "plan/spec/synonyms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/other_words.h"

namespace orrery::plan {
namespace {

constexpr base::OtherKey kKeys[] = {
    {"", "gpus", "devices"},
    {"", "num_gpus", "devices"},
    {"", "n_gpus", "devices"},
    {"", "world_size", "devices"},
    {"", "nodes", "devices: nodes times devices of a node"},
    {"", "global_batch", "batch"},
    {"", "global_batch_size", "batch"},
    {"", "batch_size", "batch"},
    {"", "gbs", "batch"},
    {"", "seq", "sequence"},
    {"", "seq_len", "sequence"},
    {"", "seq_length", "sequence"},
    {"", "sequence_length", "sequence"},
    {"", "dtype", "precision"},
    {"", "framework", "stack"},
    {"", "lr", "training: {optimizer: {learning_rate: …}}"},
    {"", "steps", "training: {steps: …}"},
    {"plan", "dp", "data"},
    {"plan", "data_parallel", "data"},
    {"plan", "tp", "tensor"},
    {"plan", "tensor_parallel", "tensor"},
    {"plan", "pp", "pipeline"},
    {"plan", "pipeline_parallel", "pipeline"},
    {"plan", "cp", "context"},
    {"plan", "ep", "expert"},
    {"plan", "etp", "expert_tensor"},
    {"plan", "sp", "sequence_parallel"},
    {"plan", "vp", "virtual_stages"},
    {"plan", "vpp", "virtual_stages"},
    {"plan", "mbs", "micro_batch"},
    {"plan", "micro_batch_size", "micro_batch"},
    {"plan", "ga", "micro_batch: batch / (data x micro_batch) are accumulated"},
    {"plan", "gradient_accumulation", "micro_batch: batch / (data x micro_batch) are accumulated"},
    {"plan", "zero", "zero_stage"},
    {"plan", "fsdp", "zero_stage: 3"},
    {"plan", "activation_checkpointing", "recompute"},
    {"plan", "recomputation", "recompute"},
    {"plan", "gradient_checkpointing", "recompute"},
    {"plan", "checkpointing", "recompute"},
    {"plan", "recompute_granularity", "recompute"},
    {"plan", "dp_size", "data"},
    {"plan", "data_parallel_size", "data"},
    {"plan", "tp_size", "tensor"},
    {"plan", "tensor_parallel_size", "tensor"},
    {"plan", "tensor_model_parallel_size", "tensor"},
    {"plan", "pp_size", "pipeline"},
    {"plan", "pipeline_parallel_size", "pipeline"},
    {"plan", "pipeline_model_parallel_size", "pipeline"},
    {"plan", "cp_size", "context"},
    {"plan", "context_parallel", "context"},
    {"plan", "context_parallel_size", "context"},
    {"plan", "ep_size", "expert"},
    {"plan", "expert_parallel", "expert"},
    {"plan", "expert_model_parallel_size", "expert"},
    {"plan", "vpp_size", "virtual_stages"},
    {"plan", "use_distributed_optimizer", "zero_stage: 1"},
    {"software", "compile", "compiled"},
    {"software", "torch_compile", "compiled"},
    {"software", "attn_implementation", "attention_kernel"},
    {"software", "attention_backend", "attention_kernel"},
    {"software", "flash_attention", "attention_kernel: flash-2"},
    {"software", "liger", "operators: fused` and `cross_entropy: fused"},
    {"software", "replaced_operators", "operators: fused"},
    {"software", "grad_reduce_in_fp32", "gradient_dtype: fp32"},
    {"software", "grad_reduce_in_bf16", "gradient_dtype: bf16"},
    {"software", "communication_data_type", "reduce_dtype"},
    {"software", "cpu_offloading_num_layers", "cpu_offloading_layers"},
    {"software", "fp8_params", "fp8_param_gather"},
    {"software", "deepep", "token_dispatcher: deepep"},
    {"training", "lr", "optimizer: {learning_rate: …}"},
    {"training", "learning_rate", "optimizer: {learning_rate: …}"},
    {"training", "iterations", "steps"},
    {"training", "max_steps", "steps"},
    {"training", "train_iters", "steps"},
    {"training", "dataset", "data"},
    {"training", "grad_clip", "clip_norm"},
    {"optimizer", "lr", "learning_rate"},
    {"optimizer", "eps", "epsilon"},
    {"optimizer", "wd", "weight_decay"},
    {"optimizer", "betas", "beta1 and beta2"},
    {"optimizer", "type", "name"},
};

constexpr base::OtherValue kValues[] = {
    {"precision", "float32", "fp32"},
    {"precision", "float", "fp32"},
    {"precision", "single", "fp32"},
    {"precision", "float16", "fp16"},
    {"precision", "half", "fp16"},
    {"precision", "bfloat16", "bf16"},
    {"precision", "float8", "fp8"},
    {"precision", "e4m3", "fp8"},
    {"precision", "mxfp8", "fp8` with `software: {fp8_recipe: mxfp8}"},
    {"precision", "nvfp4", "fp4` with `software: {fp8_recipe: nvfp4}"},
    {"precision", "mxfp4", "fp4"},
    {"precision", "float4", "fp4"},
    {"schedule", "interleaved", "1f1b` with `virtual_stages: 2"},
    {"schedule", "interleaved-1f1b", "1f1b` with `virtual_stages: 2"},
    {"schedule", "pipedream-flush", "1f1b"},
    {"schedule", "zero-bubble", "zb-h1"},
    {"schedule", "zerobubble", "zb-h1"},
    {"schedule", "dualpipev", "dualpipe-v"},
    {"recompute", "true", "full"},
    {"recompute", "all", "full"},
    {"recompute", "uniform", "full"},
    {"recompute", "block", "full"},
    {"recompute", "false", "none"},
    {"recompute", "attention", "selective"},
};

/// `{training: {optimizer: {learning_rate: 1e-4}}}`, without the outer braces.
std::string nested(std::string_view path, std::string inner) {
  while (!path.empty()) {
    const std::size_t dot = path.rfind('.');
    const std::string_view last = path.substr(dot == path.npos ? 0 : dot + 1);
    inner = fmt::format("{}: {{{}}}", last, inner);
    path = path.substr(0, dot == path.npos ? 0 : dot);
  }
  return inner;
}

/// Reports other tools' words for keys of `plan:` that stand at the top of a job.
void name_keys_of_plan(const base::Cursor& job) {
  for (const base::OtherKey& one : kKeys)
    for (const std::string& key : base::spellings(one.other))
      if (one.map == std::string("plan") && job.has(key)) {
        const std::string_view ours = one.ours;
        const std::string value = ours.find(':') == ours.npos ? ": " + job.optional(key).scalar_text() : std::string();
        job.refuse(key, fmt::format("it belongs in `plan`: `plan: {{{}{}}}`", ours, value));
      }
}

}  // namespace

void name_keys(const base::Cursor& map, const std::string& name) {
  if (map.is_map() && name.empty()) name_keys_of_plan(map);
  base::refuse_other_keys(map, name, kKeys);
}

void name_misplaced(const base::Cursor& map, const std::vector<base::Document>& known) {
  const auto depth = [](const std::string& place) {
    return place.empty() ? -1 : std::count(place.begin(), place.end(), '.');
  };
  for (const std::string& key : map.unread()) {
    std::vector<std::string> places;
    for (const base::Document& one : known)
      for (const std::string& place : one.maps_with(key))
        if (place != map.path() && std::find(places.begin(), places.end(), place) == places.end())
          places.push_back(place);
    if (places.empty()) continue;
    const auto least = depth(*std::min_element(places.begin(), places.end(),
                                               [&](const auto& a, const auto& b) { return depth(a) < depth(b); }));
    std::erase_if(places, [&](const std::string& one) { return depth(one) > least; });
    const std::string value = map.optional(key).scalar_text();
    std::vector<std::string> ways;
    for (const std::string& place : places)
      ways.push_back(fmt::format("`{}`", nested(place, fmt::format("{}: {}", key, value.empty() ? "…" : value))));
    const std::string where = least < 0 ? "at the top of the job" : fmt::format("in `{}`", fmt::join(places, "` or `"));
    map.refuse(key, fmt::format("it belongs {}: {}", where, fmt::join(ways, " or ")));
  }
}

bool is_other_word(const base::Cursor& value, const std::string& key) {
  return base::is_other_value(value, key, kValues);
}

}  // namespace orrery::plan
