#pragma once
/// More about findings, for readers of long texts.
#include "base/yaml.h"

namespace orrery::base {

/// True when further errors would not be kept: there is no need to look for them.
[[nodiscard]] bool is_full(const Findings& findings);

}  // namespace orrery::base
