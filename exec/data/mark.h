#pragma once
/// Identifies the data of a run in its checkpoints, so that a resumed run notices when the data has changed.
#include <cstdint>
#include <string>

#include "exec/data/data_format.h"

namespace orrery::exec {

/// What a run reads: the number of tokens or samples, their format, and a checksum over some of them (all, up to a
/// million).
struct DataMark {
  std::int64_t size = 0;  ///< in the format's pieces
  DataFormat format = DataFormat::bytes;
  std::uint32_t sampled_crc = 0;
  friend bool operator==(const DataMark&, const DataMark&) = default;
};

class TokenStream;
class Batches;

/// Depends only on the tokens, wherever their files are: on all of them, up to a million; beyond that on 256 runs of
/// 4,096, spread over the stream, including its beginning and end.
[[nodiscard]] DataMark mark_of(const TokenStream& stream);
/// The mark of the tokens, or of the samples.
[[nodiscard]] DataMark mark_of(const Batches& batches);

/// "10000 tokens (bytes), crc32:1f2e3d4c".
[[nodiscard]] std::string describe(const DataMark& mark);

}  // namespace orrery::exec
