#pragma once
/// What a checkpoint keeps of the data that its run reads, and by what a run that goes on knows it again.
#include <cstdint>
#include <string>

namespace orrery::exec {

/// Which tokens a run reads: how many, in what form, and a checksum over samples of them (all, of up to a million).
struct DataMark {
  std::int64_t tokens = 0;
  std::string format;
  std::uint32_t sampled_crc = 0;
  friend bool operator==(const DataMark&, const DataMark&) = default;
};

class TokenStream;
class Batches;

/// Of the tokens alone, wherever their files are: all of up to a million, of more 256 runs of 4,096 that are spread
/// over the stream, the first and the last among them.
[[nodiscard]] DataMark mark_of(const TokenStream& stream);
/// Of what the batches are of: tokens, or samples.
[[nodiscard]] DataMark mark_of(const Batches& batches);

/// "10000 tokens (bytes), crc32:1f2e3d4c".
[[nodiscard]] std::string describe(const DataMark& mark);

}  // namespace orrery::exec
