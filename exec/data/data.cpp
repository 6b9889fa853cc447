// Reads tokens from open files, and orders sequences.
#include "exec/data/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "base/random.h"
#include "exec/data/row_blocks.h"
#include "exec/failure.h"

namespace orrery::exec {

TokenStream::TokenStream(TokenStream&& other) noexcept
    : files_(std::exchange(other.files_, {})),
      segments_(std::move(other.segments_)),
      size_(other.size_),
      format_(other.format_) {}

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(segments_, other.segments_);
  std::swap(size_, other.size_);
  std::swap(format_, other.format_);
  return *this;
}

TokenStream::~TokenStream() {
  for (const File& file : files_)
    if (file.descriptor >= 0) ::close(file.descriptor);
}

void TokenStream::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const {
  ENSURE(size_ > 0 && first >= 0, "token {} of {}", first, size_);
  std::int64_t at = first % size_;
  while (!out.empty()) {
    const auto after = std::upper_bound(segments_.begin(), segments_.end(), at,
                                        [](std::int64_t value, const Segment& s) { return value < s.first; });
    const Segment& segment = *(after - 1);
    const auto count = static_cast<std::size_t>(
        std::min<std::int64_t>(segment.first + segment.tokens - at, static_cast<std::int64_t>(out.size())));
    read_run(segment, at - segment.first, out.first(count), vocab);
    out = out.subspan(count);
    at += static_cast<std::int64_t>(count);
    if (at == size_) at = 0;
  }
}

void TokenStream::read_run(const Segment& segment, std::int64_t first, std::span<std::int32_t> out,
                           std::int64_t vocab) const {
  const File& file = files_[static_cast<std::size_t>(segment.file)];
  const auto width = static_cast<std::size_t>(segment.width);
  std::vector<unsigned char> raw(out.size() * width);
  const std::int64_t start = segment.offset + first * segment.width;
  for (std::size_t have = 0; have < raw.size();) {
    const ssize_t n =
        pread(file.descriptor, raw.data() + have, raw.size() - have, start + static_cast<std::int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure(fmt::format("{}: {}", file.name, std::strerror(errno)));
    if (n == 0) throw Failure(fmt::format("{}: became shorter while training read it", file.name));
    have += static_cast<std::size_t>(n);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, raw.data() + i * width, width);  // little endian
    auto id = static_cast<std::int64_t>(bits);
    if (segment.is_signed && width < 8 && (bits >> (8 * width - 1)) != 0) id -= std::int64_t{1} << (8 * width);
    if (id < 0 || id >= vocab)
      throw InputFailure({base::Severity::error,
                          "E0613",
                          {file.name, 0, 0, 1},
                          fmt::format("{}: token {} at byte {} is outside the vocabulary of {}", file.name, id,
                                      start + static_cast<std::int64_t>(i * width), vocab),
                          "the file was made with a tokenizer other than the model's",
                          {}});
    out[i] = static_cast<std::int32_t>(id);
  }
}

std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  ENSURE(index < count, "{} of {}", index, count);
  int half = 1;
  while (half < 32 && (std::uint64_t{1} << (2 * half)) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  constexpr std::uint32_t kRounds = 4;  // Luby and Rackoff, 1988
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const auto mixed = base::philox({static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(epoch),
                                       static_cast<std::uint32_t>(epoch >> 32)},
                                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      left ^= mixed[0] & mask;
      std::swap(left, right);
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

Batches::Batches(TokenStream stream, plan::DataOrder order, std::uint64_t seed, std::int64_t batch,
                 std::int64_t sequence, std::int64_t vocab)
    : stream_(std::move(stream)), order_(order), seed_(seed), batch_(batch), sequence_(sequence), vocab_(vocab) {}

std::int64_t Batches::position(std::int64_t step, std::int64_t sequence_index) const {
  const std::int64_t g = sequences_before(step) + sequence_index;
  if (order_ == plan::DataOrder::sequential) return g * stride_ % stream_.size();
  const std::int64_t windows = std::max<std::int64_t>(1, (stream_.size() - 1) / stride_);
  return static_cast<std::int64_t>(permuted(static_cast<std::uint64_t>(g % windows),
                                            static_cast<std::uint64_t>(windows), seed_,
                                            static_cast<std::uint64_t>(g / windows))) *
         stride_;
}

Batches::Batches(std::shared_ptr<const ClickSource> clicks, plan::DataOrder order, std::uint64_t seed,
                 std::int64_t batch)
    : clicks_(std::move(clicks)), order_(order), seed_(seed), batch_(batch), sequence_(1), vocab_(1) {}

void Batches::load_clicks(std::int64_t step, std::int64_t first, std::int64_t count, const ClickBatch& out) const {
  const std::int64_t size = clicks_->size(), begin = sequences_before(step) + first;
  if (order_ == plan::DataOrder::sequential) {
    clicks_->read(begin, out);
    return order_by_blocks(clicks_->model(), out.indices);
  }
  const auto features = out.dense.size() / static_cast<std::size_t>(count),
             bag = out.indices.size() / static_cast<std::size_t>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto sample = permuted(static_cast<std::uint64_t>((begin + i) % size), static_cast<std::uint64_t>(size),
                                 seed_, static_cast<std::uint64_t>((begin + i) / size));
    clicks_->read(static_cast<std::int64_t>(sample), {out.dense.subspan(at * features, features),
                                                      out.labels.subspan(at, 1), out.indices.subspan(at * bag, bag)});
  }
  order_by_blocks(clicks_->model(), out.indices);
}

void Batches::load(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(sequence_);
  ENSURE(tokens.size() == static_cast<std::size_t>(count) * length && targets.size() == tokens.size(),
         "{} sequences of {} into {} ids", count, sequence_, tokens.size());
  std::vector<std::int32_t> window(length + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    stream_.read(position(step, first + i), window, vocab_);
    const std::size_t at = static_cast<std::size_t>(i) * length;
    std::copy_n(window.begin(), length, tokens.begin() + static_cast<std::ptrdiff_t>(at));
    std::copy_n(window.begin() + 1, length, targets.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace orrery::exec
