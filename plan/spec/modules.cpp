// Sets of modules as words.
#include "plan/spec/modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/printable.h"

namespace orrery::plan {

namespace {

/// Megatron-core's `recompute_modules`, where its word differs (megatron/core/transformer/transformer_config.py).
constexpr std::array<std::pair<const char*, Module>, 5> kOthers = {{{"core_attn", Module::core},
                                                                    {"layernorm", Module::norms},
                                                                    {"mla_up_proj", Module::up_projections},
                                                                    {"moe_act", Module::activations},
                                                                    {"moe", Module::experts}}};

std::optional<Module> module_of(const std::string& word) {
  for (std::size_t i = 0; i < kModuleWords.size(); ++i)
    if (word == kModuleWords.at(i)) return static_cast<Module>(i);
  for (const auto& [other, one] : kOthers)
    if (word == other) return one;
  return std::nullopt;
}

}  // namespace

base::Result<Modules> Modules::parse_rows(const std::vector<Cell>& rows) {
  Modules all;
  base::Diagnostics found;
  const auto refuse = [&](const Cell& row, const std::string& message, const std::string& help) {
    found.push_back({base::Severity::error, "E0129", row.where, message, help, {}});
  };
  for (const Cell& row : rows) {
    const std::optional<Module> one = module_of(row.text);
    if (!one)
      refuse(row, fmt::format("{} is not a module that can be recomputed", base::quoted(row.text)),
             fmt::format("{}", fmt::join(kModuleWords, ", ")));
    else if (all.has(*one))
      refuse(row, fmt::format("{} is named twice", base::quoted(row.text)), "keep one of them");
    else
      all = all.with(*one);
  }
  if (!found.empty()) return base::fail(std::move(found));
  return all;
}

std::vector<std::string> Modules::rows() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < kModuleWords.size(); ++i)
    if (has(static_cast<Module>(i))) out.emplace_back(kModuleWords.at(i));
  return out;
}

}  // namespace orrery::plan
