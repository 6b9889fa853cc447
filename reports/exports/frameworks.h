#pragma once
/// A plan in the words of other frameworks, for clusters that train with them: Megatron-LM's flags, DeepSpeed's
/// configuration. Everything that affects memory or time is written out, whatever the framework's defaults are.
#include <string>

#include "base/result.h"
#include "plan/spec/plan.h"
#include "plan/spec/plan_file.h"

namespace orrery::reports {

enum class Framework { megatron, deepspeed };
[[nodiscard]] const char* name_of(Framework framework);  ///< "megatron", "deepspeed"

struct Settings {
  std::string text;            ///< a bash script that starts torchrun; a JSON object
  base::Diagnostics warnings;  ///< E0632: what the framework does differently or leaves to the user's code
};

/// `plan` is made from `file`, which is at `path`. Errors: E0631, one for each thing that the framework cannot
/// express. Flags are those of Megatron-LM's main branch at d98e8a64 (2026-08-22), keys those of DeepSpeed 0.17
/// (deepspeed.ai, "DeepSpeed Configuration JSON").
[[nodiscard]] base::Result<Settings> settings_for(Framework framework, const plan::PlanFile& file,
                                                  const plan::Plan& plan, const std::string& path);

}  // namespace orrery::reports
