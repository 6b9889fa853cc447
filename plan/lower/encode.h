#pragma once
/// Gist's delayed precision reduction and lossless storage (Jain et al. 2018, sections 4.2 and 4.1), as a pass over a
/// lowered class. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Bits per stored value; 0: lossless storage, where the number is not constant.
[[nodiscard]] std::int64_t bits_of(ActivationEncoding encoding);

/// Encodes what the model's blocks save for backward, except statistics of rows and what another stage has sent. A
/// buffer is encoded right after its last use in forward, which reads the full values, and decoded right before its
/// first use in backward; between the two it waits in fewer bits. With full recomputation these buffers are the blocks'
/// inputs. Needs births, deaths and the program.
///
/// Lossless storage (section 4.1) applies only to outputs of a ReLU, and its room is fixed in advance: `capacity` of
/// the values. How many are nonzero depends on data. If there are more, none is kept, and backward repeats the product
/// before the ReLU from the MLP's input, which the gradient of its weight needs anyway, and its weight. The same
/// operator on the same operands gives the same bits. It runs on this rank alone, whatever the others find.
void encode_activations(RankClass& rank_class, const Compression& compression);

/// How many of `elements` values lossless storage has room for.
[[nodiscard]] std::int64_t kept_values(std::int64_t elements, double capacity);

}  // namespace orrery::plan
