#pragma once
/// By what a run that goes on knows its data again.
#include "exec/data/data.h"
#include "exec/data/mark.h"

namespace orrery::exec {

/// Of the tokens alone, wherever their files are: all of up to a million, of more 256 runs of 4,096 that are spread
/// over the stream, the first and the last among them.
[[nodiscard]] DataMark mark_of(const TokenStream& stream);
/// Of what the batches are of: tokens, or samples.
[[nodiscard]] DataMark mark_of(const Batches& batches);

/// "10000 tokens (bytes), crc32:1f2e3d4c".
[[nodiscard]] std::string describe(const DataMark& mark);

}  // namespace orrery::exec
