#pragma once
/// NeMo 1's configuration of a language model, in YAML (megatron_gpt_config.yaml, and the launcher's `conf/training`):
/// its keys as Megatron-LM's flags, which they become in NeMo too.
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/frameworks/key_words.h"

namespace orrery::plan {

struct NemoSettings : AsFlags {
  int ranks = 0, per_node = 0;  ///< 0: the file does not say
};

/// E0101 and the like: the text is not YAML. References to other keys (`${.hidden_size}`, `${multiply:4, …}`) are
/// followed; one that leads elsewhere is a value that is missing.
[[nodiscard]] base::Result<NemoSettings> nemo_settings(std::string_view text, const std::string& file);

}  // namespace orrery::plan
