#pragma once
/// Gist's delayed precision reduction (Jain et al. 2018, section 4.2) as a pass over a lowered class. Private to plan/.
#include "plan/schedule.h"

namespace orrery::plan {

/// Bits of a value that waits.
[[nodiscard]] std::int64_t bits_of(ActivationEncoding encoding);

/// What blocks of the model save for their backward passes, but for the statistics of rows and what another stage
/// has sent, is encoded right behind its
/// last use in forward, which reads it in full, and decoded right ahead of its first use in backward: in between it
/// waits in fewer bits. With full recomputation that is the blocks' inputs. Needs births, deaths and the program.
void encode_activations(RankClass& rank_class, ActivationEncoding encoding);

}  // namespace orrery::plan
