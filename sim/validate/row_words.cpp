/// Reads the words of rows.
#include "sim/validate/row_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "plan/spec/precision.h"
#include "sim/validate/mixture_rows.h"
#include "sim/validate/software.h"

namespace orrery::sim {

namespace {

bool says(const std::string& words, const char* word) {
  return words.find(word) != std::string::npos;
}

/// Rows of a chunk of prime-rl's head in reinforcement learning (trainer/rl/config.py, fused_lm_head_chunk_size).
std::optional<std::int64_t> chunk_of_loss(const Setup& s) {
  constexpr std::int64_t kRows = 2048;
  return says(small_letters(s.stack + " " + s.framework), "prime-rl") && says(s.section, "RL") ? std::optional(kRows)
                                                                                               : std::nullopt;
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

std::optional<plan::AttentionKernel> attention_kernel_of(const std::string& words) {
  using plan::AttentionKernel;
  if (small_letters(words).find("cudnn") != std::string::npos) return AttentionKernel::cudnn;
  const auto digit = std::find_if(words.begin(), words.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (digit == words.end() || *digit == '0') return std::nullopt;
  return *digit == '1' ? AttentionKernel::flash_1 : *digit == '2' ? AttentionKernel::flash_2 : AttentionKernel::flash_3;
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
  const std::string words = small_letters(s.precision.empty() ? s.precision_words : s.precision);
  using enum models::DType;
  constexpr std::pair<const char*, models::DType> kWords[] = {
      {"fp8", fp8},   {"float8", fp8}, {"fp4", fp4},      {"bf16", bf16}, {"bfloat16", bf16}, {"tf32", tf32},
      {"fp16", fp16}, {"half", fp16},  {"float16", fp16}, {"fp32", fp32}, {"float32", fp32}};
  for (const auto& [word, type] : kWords)
    if (words.find(word) != std::string::npos) return type;
  constexpr std::int64_t kLastInFp16 = 2023;  // Megatron-LM's and DeepSpeed's scripts of then
  const std::int64_t year = year_of(s);
  const bool old = year > 0 && year <= kLastInFp16;
  const models::DType usual = old && plan::computes_in(device, fp16) ? fp16 : plan::usual_precision(device);
  const char* const why = usual == fp16 ? "" : ", in which this device's users train";
  notes.push_back(fmt::format("precision {}{}", models::name_of(usual), why));
  return usual;
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

}  // namespace orrery::sim
