/// Rows of mixtures of experts.
#include "sim/validate/mixture_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "plan/spec/expert_loads.h"

namespace orrery::sim {

std::string small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

namespace {

/// Splits text into words of letters, digits and underscores.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : small_letters(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

bool has_word(const std::string& text, const char* word) {
  const std::vector<std::string> words = words_of(text);
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool contains(const std::string& text, const char* part) {
  return small_letters(text).find(part) != std::string::npos;
}

/// What a framework's own recipe for a model does, for rows that do not say.
struct Recipe {
  const char* framework;  ///< a word of the row's
  const char* model;      ///< the beginning of its letters
  const char* device;     ///< of its devices' name
  const char* recompute;  ///< modules; empty: none, or not known
  bool two_hop, graphed, unfused;
  const char* source;
  bool hidden = false;  ///< all-to-alls behind another micro-batch's compute
};
constexpr const char* kBridge = "NVIDIA Megatron Bridge, scripts/performance/configs at v0.2.0 and v0.3.0";
constexpr Recipe kRecipes[] = {
    // Tokens travel by HybridEP within a rack of NVLink, by DeepEP or NCCL elsewhere; graphs where Grace issues.
    {"bridge", "deepseekv3", "GB", "mla_up_proj", true, true, false, kBridge},
    {"bridge", "deepseekv3", "B", "mla_up_proj", true, false, false, kBridge},
    {"bridge", "deepseekv3", "H", "mla_up_proj, mlp", true, false, false, kBridge, true},
    {"bridge", "qwen330b", "GB", "", true, true, false, kBridge},
    {"bridge", "qwen330b", "B300", "", true, true, false, kBridge},
    {"bridge", "qwen330b", "H", "", true, false, false, kBridge, true},
    {"bridge", "qwen3235b", "GB", "", true, true, false, kBridge},
    {"bridge", "qwen3235b", "B300", "", false, false, false, kBridge, true},
    {"bridge", "qwen3235b", "H", "", false, false, false, kBridge, true},
    {"nemo", "deepseekv3", "H", "mla_up_proj, layernorm, moe, mlp", true, false, true,
     "NVIDIA NeMo, nemo/collections/llm/recipes/deepseek_v3.py"},
    // At that time DeepEP did not reach beyond a tray (Megatron-LM, discussions/deepseek-v3-gb200-optimization, 1).
    {"nemo", "deepseekv3", "GB", "mla_up_proj, layernorm, moe, mlp", false, false, true,
     "NVIDIA NeMo, nemo/collections/llm/recipes/deepseek_v3.py"},
    {"megatron-core (dev)", "qwen3235b", "GB", "", true, true, false,
     "Megatron-MoE-ModelZoo, best_practice/qwen3/readme.md: HybridEP, graphs of attention and router"},
};

const Recipe* recipe_of(const Setup& s) {
  const std::string model = models::letters_of(s.model);
  for (const Recipe& known : kRecipes)
    if (contains(s.framework, known.framework) && model.rfind(known.model, 0) == 0 &&
        s.gpu_type.rfind(known.device, 0) == 0)
      return &known;
  return nullptr;
}

}  // namespace

const models::Model* model_meant(const Setup& s, const std::vector<models::Model>& catalogue) {
  const std::string row = models::letters_of(s.model);
  constexpr std::size_t kLeast = 5;  // letters that distinguish one model from another
  if (row.size() < kLeast) return nullptr;
  for (const models::Model& m : catalogue) {
    const std::string name = models::letters_of(m.name);
    const std::size_t common = std::min(row.size(), name.size());
    const bool alike = row.compare(0, common, name, 0, common) == 0;
    if (alike && m.layers == *s.layers && m.hidden == *s.hidden && m.heads == *s.heads &&
        m.experts.count == s.experts.value_or(0) && m.experts.chosen == s.experts_per_token.value_or(m.experts.chosen))
      return &m;
  }
  return nullptr;
}

models::Model as_row_has(models::Model model, const Setup& s) {
  model.name = "row";
  model.vocab = s.vocab.value_or(model.vocab);
  model.max_sequence = std::max(model.max_sequence, *s.sequence);
  model.further.modules = s.further.value_or(0) > 0 ? 1 : 0;
  return model;
}

std::string latent_line(const Setup& s) {
  if (!s.latent_kv || !s.latent_nope || !s.latent_rope || !s.latent_value) return {};
  return fmt::format("latent_attention: {{q_rank: {}, kv_rank: {}, nope: {}, rope: {}, value: {}}}\n",
                     s.latent_q.value_or(0), *s.latent_kv, *s.latent_nope, *s.latent_rope, *s.latent_value);
}

void take_recipe(Setup& s, std::vector<std::string>& notes) {
  const Recipe* known = recipe_of(s);
  if (!known) return;
  notes.push_back(fmt::format("what it leaves open follows its recipe ({})", known->source));
  if (!s.recompute.empty() || *known->recompute == 0) return;
  s.recompute = "selective";
  s.recompute_modules = known->recompute;
}

plan::Modules modules_of(const Setup& s, const models::Model& model) {
  using plan::Module;
  constexpr std::pair<const char*, Module> kWords[] = {{"moe", Module::experts},
                                                       {"moe_act", Module::activations},
                                                       {"act", Module::activations},
                                                       {"layernorm", Module::norms},
                                                       {"norm", Module::norms},
                                                       {"mla", Module::up_projections},
                                                       {"mla_up_proj", Module::up_projections},
                                                       {"mlp", Module::mlp}};
  plan::Modules out;
  for (const auto& [word, one] : kWords) {
    const bool there = one == Module::up_projections ? model.latent.any()
                       : one == Module::experts      ? model.experts.any()
                                                     : true;
    if (there && has_word(s.recompute_modules, word)) out = out.with(one);
  }
  return contains(s.recompute_modules, "core") ? out.with(Module::core) : out;
}

void take_travel(const Setup& s, plan::Software& software) {
  const std::string told = s.section + " " + s.overlap;
  const Recipe* known = recipe_of(s);
  if (contains(told, "deepep") || (known && known->two_hop)) software.token_dispatcher = plan::TokenDispatcher::deepep;
  if (contains(told, "hybridep")) software.token_dispatcher = plan::TokenDispatcher::hybridep;
  if ((contains(s.overlap, "1f1b") && (contains(s.overlap, "all-to-all") || contains(s.overlap, "a2a"))) ||
      (known && known->hidden))
    software.overlap_exchange = true;
  if (contains(told, "cuda graph") || (known && known->graphed)) software.cuda_graphs = true;
  if (known && known->unfused) software.router_fusion = false;
}

double imbalance_of(const Setup& s, std::vector<std::string>& notes) {
  const std::int64_t experts = s.experts.value_or(1), ranks = s.expert.value_or(1);
  const bool forced = contains(s.routing, "force");
  if (ranks < 2 || experts % ranks != 0 || forced || !contains(s.routing, "dropless")) return 1;
  notes.push_back(fmt::format("experts loaded by Zipf's law, exponent {}", kUntrainedZipf));
  const plan::ExpertLoads untrained{.zipf = kUntrainedZipf, .from = {}, .layers = {}};
  return plan::fullest_of(untrained, {.count = experts, .chosen = s.experts_per_token.value_or(2)},
                          static_cast<int>(ranks))
      .mean;
}

}  // namespace orrery::sim
