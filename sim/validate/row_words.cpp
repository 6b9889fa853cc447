/// Reads the words of rows.
#include "sim/validate/row_words.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <utility>

#include "sim/validate/mixture_rows.h"

namespace orrery::sim {

namespace {

/// Whether parameters, gradients and the optimizer's states all are in 16 bits: "AdamW, all states in bf16", or a
/// precision of Lightning's kind ("bf16-true", "16-true") or called pure.
bool all_in_16_bits(const Setup& s) {
  const std::string optimizer = small_letters(s.optimizer), precision = small_letters(s.precision);
  const auto has = [](const std::string& words, std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(), [&](const char* word) { return words.find(word) != std::string::npos; });
  };
  return has(optimizer, {"states in bf16", "states in fp16", "states in 16 bits"}) ||
         has(precision, {"16-true", "pure"});
}

}  // namespace

double attention_generation(const std::string& kernel) {
  constexpr double kBest = 3;
  if (small_letters(kernel).find("cudnn") != std::string::npos) return kBest;
  const auto digit = std::find_if(kernel.begin(), kernel.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digit == kernel.end() ? 0 : std::min(kBest, static_cast<double>(*digit - '0'));
}

std::string network_of(const std::string& words) {
  const std::pair<const char*, const char*> kinds[] = {{"EFA", "efa"},
                                                       {"RoCE", "roce"},
                                                       {"Omni-Path", "omni-path"},
                                                       {"OPA", "omni-path"},
                                                       {"Slingshot", "slingshot"},
                                                       {"TCP", "tcp"},
                                                       {"InfiniBand", "infiniband"},
                                                       {"IB ", "infiniband"}};
  for (const auto& [word, kind] : kinds)
    if (words.find(word) != std::string::npos) return kind;
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

void take_optimizer(const Setup& s, cost::MemoryRecipe& recipe, std::vector<cost::Parameter>& numbers) {
  constexpr double kEightBit = 2, kHalf = 4, kFp32 = 8, kRoot = 2;
  const bool half = all_in_16_bits(s);
  recipe.moment_bytes = s.optimizer.find("8-bit") != std::string::npos ? kEightBit : half ? kHalf : kFp32;
  if (!half) return;
  numbers.push_back({"stack.one_copy", 1, cost::Unit::number, "the row's words"});
  recipe.update_bf16 = std::max(recipe.update_bf16, kRoot);
  recipe.update_fp16 = std::max(recipe.update_fp16, kRoot);
}

}  // namespace orrery::sim
