#pragma once
/// NeMo 1's configuration of a language model, in YAML (megatron_gpt_config.yaml, and the launcher's `conf/training`):
/// its keys as Megatron-LM's flags, which they become in NeMo too.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/frameworks/settings.h"

namespace orrery::plan {

struct NemoSettings {
  std::vector<Given> given;    ///< of megatron_settings_table(), each with its own name
  std::vector<Given> unknown;  ///< what neither NeMo's table nor that one has
  /// With the reason: what moves neither time nor memory, and what may.
  std::vector<std::pair<Given, std::string>> passed, left;
  int ranks = 0, per_node = 0;  ///< 0: the file does not say
};

/// E0101 and the like: the text is not YAML. References to other keys (`${.hidden_size}`, `${multiply:4, …}`) are
/// followed; one that leads elsewhere is a value that is missing.
[[nodiscard]] base::Result<NemoSettings> nemo_settings(std::string_view text, const std::string& file);

}  // namespace orrery::plan
