#pragma once
/// GPT-NeoX's configuration, in YAML with one map: its keys as Megatron-LM's flags, from which they come, and
/// DeepSpeed's settings among them. Sources: megatron/neox_arguments/neox_args.py and megatron/model/transformer.py of
/// EleutherAI/gpt-neox in 2026.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/frameworks/key_words.h"

namespace orrery::plan {

struct NeoxSettings : AsFlags {
  std::vector<Given> deepspeed;  ///< of deepspeed_settings_table()
  std::vector<Given> own;        ///< what means something only beside other keys, by its name with underscores
};

/// The settings of one run, which may lie in several files (text, name); the last of a key wins. E0101 and the like: a
/// text is not YAML.
[[nodiscard]] base::Result<NeoxSettings> neox_settings(
    const std::vector<std::pair<std::string_view, std::string>>& files);
/// Whether a text is such a configuration, or a part of one.
[[nodiscard]] bool is_neox(std::string_view text);
/// Defaults of GPT-NeoX, where its files are silent.
[[nodiscard]] Draft neox_defaults();
/// After the settings are read, and the ranks known: batch, MLPs, biases, residuals. Before finish_megatron().
void begin_neox(const NeoxSettings& settings, Reading& reading, Draft& draft, const base::Location& where);
/// After finish_megatron().
void finish_neox(const NeoxSettings& settings, Draft& draft);

}  // namespace orrery::plan
