#pragma once
/// Gist's delayed precision reduction and lossless storage (Jain et al. 2018, sections 4.2 and 4.1) as a pass over a
/// lowered class. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Bits of a value that waits; 0: of lossless storage, where that is no constant.
[[nodiscard]] std::int64_t bits_of(ActivationEncoding encoding);

/// What blocks of the model save for their backward passes, but for the statistics of rows and what another stage
/// has sent, is encoded right behind its
/// last use in forward, which reads it in full, and decoded right ahead of its first use in backward: in between it
/// waits in fewer bits. With full recomputation that is the blocks' inputs. Needs births, deaths and the program.
///
/// Lossless storage (section 4.1) is of what a ReLU has left alone, and room is fixed ahead: for `capacity` of the
/// values. How many are not zero is data. Where it is more, none is kept and the product ahead of the ReLU is computed
/// again in backward, from the MLP's input, which the gradient of its weight needs anyway, and its weight: the same
/// operator on the same operands has the same bits, on this rank alone, whatever the other ranks find.
void encode_activations(RankClass& rank_class, const Compression& compression);

/// How many of so many values lossless storage has room for.
[[nodiscard]] std::int64_t kept_values(std::int64_t elements, double capacity);

}  // namespace orrery::plan
