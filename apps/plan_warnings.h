#pragma once
/// Warnings about plans that are sound, but not what somebody may take them for: they change what is computed, or need
/// what the software lacks, or train with longer sequences than was meant.
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "apps/inputs.h"
#include "base/result.h"
#include "cost/prices/stacks.h"
#include "plan/spec/plan.h"

namespace orrery::apps {

/// Places a finding at a key of the file that it is about, such as LoadedJob::at.
using Placing = std::function<base::Diagnostic(const std::string& key, base::Diagnostic found)>;
template <class Loaded>
[[nodiscard]] Placing placing(const Loaded& loaded) {
  return [&loaded](const std::string& key, base::Diagnostic found) { return loaded.at(key, std::move(found)); };
}
/// A warning if the plan's order changes what is computed, at the key of `plan` that names it.
[[nodiscard]] std::optional<base::Diagnostic> changed_mathematics(const plan::PlanSpec& spec, const Placing& placed);

/// A warning if the named software cannot do what a plan needs, and is priced as if it could; at the key of `plan` that
/// asks for it.
[[nodiscard]] std::optional<base::Diagnostic> beyond_software(const cost::Stacks& stacks, const plan::PlanSpec& spec,
                                                              const Placing& placed);

/// Whether the job leaves open how long its sequences are, and the model can read longer ones than it is trained with
/// most of the time.
[[nodiscard]] bool takes_longest(const LoadedJob& job);
/// P172, a warning if it does.
[[nodiscard]] std::optional<base::Diagnostic> long_sequence(const LoadedJob& job);

}  // namespace orrery::apps
