#pragma once
/// What a plan numbers, where other rooms and parts name it, too.
#include "base/id.h"

namespace orrery::plan {

using LayerId = base::Id<struct LayerTag>;  ///< a block of the model
using StageId = base::Id<struct StageTag>;  ///< of the pipeline, in the order of ranks
inline constexpr StageId kFirstStage(0);

}  // namespace orrery::plan
