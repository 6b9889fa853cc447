#pragma once
/// A plan in the words of other frameworks, for clusters that train with them: Megatron-LM's flags, the
/// configurations of DeepSpeed and torchtitan. Everything that affects memory or time is written out, whatever the
/// framework's defaults are.
#include <functional>
#include <string>

#include "base/result.h"
#include "plan/spec/plan.h"
#include "plan/spec/plan_file.h"

namespace orrery::reports {

enum class Framework { megatron, deepspeed, torchtitan };
[[nodiscard]] const char* name_of(Framework framework);  ///< "megatron"

struct Settings {
  std::string text;            ///< a bash script that starts torchrun; a JSON object; TOML
  base::Diagnostics warnings;  ///< E0632: what the framework does otherwise or leaves to the user's code, at its key
};

/// A finding, placed at the line of a key ("plan.schedule") of the plan file.
using Placing = std::function<base::Diagnostic(const std::string& key, base::Diagnostic found)>;

/// `plan` is made from `file`, which is at `path`. Errors: E0631, one for each thing that the framework cannot
/// express, at the key that says it. What is said, and of which version, is in the tables of plan/frameworks/, which
/// `import` reads back.
[[nodiscard]] base::Result<Settings> settings_for(Framework framework, const plan::PlanFile& file,
                                                  const plan::Plan& plan, const std::string& path,
                                                  const Placing& placed = {});

}  // namespace orrery::reports
