// Samples a token stream.
#include "exec/data/mark.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "exec/data/data.h"
#include "exec/failure.h"
#include "exec/files/checksum.h"

namespace orrery::exec {

DataMark mark_of(const TokenStream& stream) {
  constexpr std::int64_t kRun = 4096, kRuns = 256;
  DataMark mark{stream.size(), stream.format(), 0};
  std::vector<std::int32_t> tokens;
  const std::int64_t runs = std::min((stream.size() + kRun - 1) / kRun, kRuns);
  for (std::int64_t i = 0; i < runs; ++i) {
    const std::int64_t length = std::min(kRun, stream.size() - (runs < kRuns ? i * kRun : 0));
    const std::int64_t first = runs < kRuns ? i * kRun : (stream.size() - length) / (kRuns - 1) * i;
    const std::int64_t at = i == kRuns - 1 ? stream.size() - length : first;
    tokens.resize(static_cast<std::size_t>(length));
    try {
      stream.read(at, tokens, std::numeric_limits<std::int64_t>::max());
    } catch (const InputFailure&) {
      std::fill(tokens.begin(), tokens.end(), -1);  // an invalid token is reported where training reads it
    }
    mark.sampled_crc = crc32(std::as_bytes(std::span(tokens)), mark.sampled_crc);
  }
  return mark;
}

DataMark mark_of(const Batches& batches) {
  return batches.clicks() != nullptr ? batches.clicks()->mark() : mark_of(batches.stream());
}

std::string describe(const DataMark& mark) {
  const DataFormatTraits& format = traits_of(mark.format);
  return fmt::format("{} {} ({}), crc32:{:08x}", mark.size, format.pieces, format.word, mark.sampled_crc);
}

}  // namespace orrery::exec
