#pragma once
/// All verbs.
#include <vector>

#include "apps/verbs/verb.h"

namespace orrery::apps {

/// Fresh records, in the order of the help.
[[nodiscard]] std::vector<Verb> all_verbs();

}  // namespace orrery::apps
