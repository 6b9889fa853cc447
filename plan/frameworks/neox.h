#pragma once
/// GPT-NeoX's configuration, in YAML with one map: its keys as Megatron-LM's flags, from which they come, and
/// DeepSpeed's settings among them. Sources: megatron/neox_arguments/neox_args.py and megatron/model/transformer.py of
/// EleutherAI/gpt-neox in 2026.
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/frameworks/key_words.h"

namespace orrery::plan {

struct NeoxSettings : AsFlags {
  std::vector<Given> deepspeed;  ///< of deepspeed_settings_table()
  std::vector<Given> own;        ///< of neox_settings_table()
  /// Flags that the command line sets: they win over what keys make of the same.
  std::set<std::string, std::less<>> set = {};
};

/// Keys that mean something only beside other keys, by their names with underscores. begin_neox() reads them.
[[nodiscard]] std::span<const Setting> neox_settings_table();
/// The settings of one run, which may lie in several files (text, name). E0101 and the like: a text is not YAML; E0650:
/// two files say the same key, which GPT-NeoX refuses.
[[nodiscard]] base::Result<NeoxSettings> neox_settings(
    const std::vector<std::pair<std::string_view, std::string>>& files);
/// Whether a text is such a configuration, or a part of one.
[[nodiscard]] bool is_neox(std::string_view text);
/// The run's GPUs, and those of a node; 0: the files do not say.
struct NeoxRanks {
  int all = 0, per_node = 0;
};
[[nodiscard]] NeoxRanks neox_ranks(const NeoxSettings& settings, Reading& reading);
/// Defaults of GPT-NeoX, where its files are silent.
[[nodiscard]] Draft neox_defaults();
/// After the settings are read, and the ranks known: batch, MLPs, biases, residuals. Before finish_megatron().
void begin_neox(const NeoxSettings& settings, Reading& reading, Draft& draft, const base::Location& where);
/// After finish_megatron().
void finish_neox(const NeoxSettings& settings, Reading& reading, Draft& draft);

}  // namespace orrery::plan
