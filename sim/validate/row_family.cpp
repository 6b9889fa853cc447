/// Names of families, and what tells an unknown one's block.
#include "sim/validate/row_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "sim/validate/mixture_rows.h"

namespace orrery::sim {

namespace {

constexpr std::int64_t kGptVocab = 50257, kBertVocab = 30522, kLlamaVocab = 32000, kPalmVocab = 256000;

constexpr FamilyWord kFamilies[] = {
    {"gpt", "gpt", "", kGptVocab},
    {"gpt (MPT)", "gpt", "bias: false\n", kGptVocab},
    {"bert", "bert", "", kBertVocab},
    {"llama", "llama", "", kLlamaVocab},
    // Chowdhery et al. 2022, sections 2 and 2.1: SwiGLU, both halves of a block at once behind one norm, one head of
    // keys and values, heads of 256 columns, rotation, tables shared, no biases
    {"palm", "llama", "normalisation: layer_norm\nparallel: true\nshared_norm: true\n", kPalmVocab, 1, 256, true},
};

/// Null if there is none.
const FamilyWord* named(std::string_view word) {
  const auto* const found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const FamilyWord& f) { return f.word == word; });
  return found == std::end(kFamilies) ? nullptr : found;
}

/// Null if it is neither known nor like a known one.
const FamilyWord* known(const std::string& name) {
  if (const FamilyWord* found = named(name)) return found;
  const std::string small = small_letters(name);
  for (const char* like : {"llama", "mistral", "qwen", "gemma", "internlm", "baichuan", "deepseek", "olmo", "yi-",
                           "phi-3", "phi3", "skywork", "smollm", "minicpm", "granite", "exaone", "stablelm", "chatglm"})
    if (small.find(like) != std::string::npos) return named("llama");
  return small.find("bert") != std::string::npos ? named("bert") : named(small);
}

/// By parameters: whether their number is nearer to that of three products with the MLP's width than to two.
bool is_gated(const Setup& s) {
  if (s.gated_mlp) return *s.gated_mlp;
  if (!s.activation.empty()) return small_letters(s.activation).find("glu") != std::string::npos;
  if (!s.params_b || !s.ffn_hidden) return false;
  const auto width = static_cast<double>(*s.hidden), ffn = static_cast<double>(*s.ffn_hidden);
  const double attention = 4 * width * width, table = static_cast<double>(s.vocab.value_or(kGptVocab)) * width;
  const auto apart = [&](double products) {
    const double size = static_cast<double>(*s.layers) * (attention + products * width * ffn) + table;
    return std::abs(std::log(size / (1e9 * *s.params_b)));
  };
  constexpr double kPlain = 2, kGated = 3;
  return apart(kGated) < apart(kPlain);
}

}  // namespace

const FamilyWord& family_of(const Setup& s, std::vector<std::string>& notes) {
  if (const FamilyWord* family = known(s.family)) return *family;
  if (s.experts.value_or(1) > 1) return *named("llama");
  const FamilyWord& like = *named(is_gated(s) ? "llama" : "gpt");
  notes.push_back(fmt::format("family '{}' is treated as {}", s.family, like.family));
  return like;
}

std::int64_t copied_groups(std::int64_t groups, std::int64_t tensor, std::vector<std::string>& notes) {
  if (groups >= tensor || tensor % groups != 0) return groups;
  notes.push_back("heads of keys and values copied to the tensor ranks that share them");
  return tensor;
}

}  // namespace orrery::sim
