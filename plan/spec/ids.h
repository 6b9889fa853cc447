#pragma once
/// What a plan numbers, where other rooms and parts name it, too.
#include "base/id.h"

namespace orrery::plan {

using LayerId = base::Id<struct LayerTag>;  ///< a block of the model

}  // namespace orrery::plan
