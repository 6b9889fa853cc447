// LoRA's words: ours, and those of the frameworks that users come from.
#include "models/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "models/limits.h"

namespace orrery::models {
namespace {

constexpr double kMostAlpha = 1e6;

/// A word for a product, or for one of the parts that form a product here.
struct Word {
  const char* word;
  bool Lora::*target;
  int part = 0;  ///< one of several parts that must be named together; 0: the whole product
};
constexpr auto kWords = std::to_array<Word>({
    {"qkv", &Lora::qkv},
    {"proj", &Lora::projection},
    {"up", &Lora::up},
    {"down", &Lora::down},
    // Hugging Face's PEFT, for Llama and relatives
    {"q_proj", &Lora::qkv, 1},
    {"k_proj", &Lora::qkv, 2},
    {"v_proj", &Lora::qkv, 3},
    {"o_proj", &Lora::projection},
    {"gate_proj", &Lora::up, 1},
    {"up_proj", &Lora::up, 2},
    {"down_proj", &Lora::down},
    // Megatron Bridge and NeMo
    {"linear_qkv", &Lora::qkv},
    {"linear_proj", &Lora::projection},
    {"linear_fc1", &Lora::up},
    {"linear_fc2", &Lora::down},
});
constexpr std::array kOurs = {kWords[0], kWords[1], kWords[2], kWords[3]};

void read_targets(const base::Cursor& at, Lora& lora) {
  std::vector<std::string> words;
  for (const Word& one : kWords) words.emplace_back(one.word);
  for (const Word& one : kOurs) lora.*one.target = false;
  std::set<int> of_qkv, of_up;
  for (const base::Cursor& item : at.one_or_many()) {
    const Word& word = kWords[static_cast<std::size_t>(item.choice(words))];
    lora.*word.target = true;
    std::set<int>& parts = word.target == &Lora::qkv ? of_qkv : of_up;
    if (word.part > 0) parts.insert(word.part);
  }
  const auto whole = [&](const std::set<int>& parts, std::size_t all, const char* message, const char* help) {
    if (!parts.empty() && parts.size() < all) at.error("E0112", message, help);
  };
  whole(of_qkv, 3, "q, k and v are one product here, with one adapter",
        "use targets: [qkv], or q_proj, k_proj and v_proj together");
  whole(of_up, 2, "gate and up are one product here, with one adapter",
        "use targets: [up], or for gated layers gate_proj and up_proj together");
  if (std::none_of(kOurs.begin(), kOurs.end(), [&](const Word& one) { return lora.*one.target; }))
    at.error("E0112", "adapters on no product train nothing", "targets: [qkv, proj, up, down], or some of them");
}

}  // namespace

Lora read_lora(const base::Cursor& at) {
  Lora lora;
  lora.rank = at.at("rank").integer(1, kMostWidth, 1);
  lora.alpha = at.optional("alpha").number(1e-6, kMostAlpha, static_cast<double>(lora.rank));
  if (const base::Cursor targets = at.optional("targets"); targets.exists()) read_targets(targets, lora);
  return lora;
}

std::string lora_text(const Lora& lora) {
  std::vector<std::string> targets;
  for (const Word& one : kOurs)
    if (lora.*one.target) targets.emplace_back(one.word);
  return fmt::format("{{rank: {}, alpha: {}, targets: [{}]}}", lora.rank, lora.alpha, fmt::join(targets, ", "));
}

}  // namespace orrery::models
