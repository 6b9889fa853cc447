#pragma once
/// Additions to Findings, for readers of long texts.
#include "base/yaml.h"

namespace orrery::base {

/// True when further errors would be dropped, so there is no need to look for them.
[[nodiscard]] bool is_full(const Findings& findings);

}  // namespace orrery::base
