// Hashes values and checks that they are finite in one pass, while each piece is in the cache.
#include "exec/state/state_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "exec/failure.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace orrery::exec {
namespace {

constexpr std::int64_t kPiece = 64 << 10;       // bytes: fits the first levels of cache
constexpr std::int64_t kDevicePiece = 8 << 20;  // bytes copied from a device at a time
constexpr std::int64_t kWorthThread = 4 << 20;  // bytes: for fewer, starting a thread costs more than it saves

/// Whether any of the values has all bits of `exponent` set: adding the lowest of them then carries into the sign bit.
template <class Bits, Bits exponent>
bool any_not_finite(const std::byte* data, std::size_t count) {
  constexpr Bits kLow = exponent & (~exponent + 1U);
  constexpr std::size_t kStride = 64;
  std::array<Bits, kStride> block{};
  Bits all = 0;
  const auto take = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) all |= static_cast<Bits>(static_cast<Bits>(block[i] & exponent) + kLow);
  };
  std::size_t at = 0;
  for (; at + kStride <= count; at += kStride) {
    std::memcpy(block.data(), data + at * sizeof(Bits), sizeof block);
    take(kStride);
  }
  std::memcpy(block.data(), data + at * sizeof(Bits), (count - at) * sizeof(Bits));
  take(count - at);
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return (all & kSign) != 0;
}

bool any_not_finite(const std::byte* data, std::int64_t count, models::DType dtype) {
  const auto n = static_cast<std::size_t>(count);
  if (dtype == models::DType::fp32) return any_not_finite<std::uint32_t, 0x7f800000U>(data, n);
  if (dtype == models::DType::bf16) return any_not_finite<std::uint16_t, 0x7f80U>(data, n);
  if (dtype == models::DType::fp16) return any_not_finite<std::uint16_t, 0x7c00U>(data, n);
  return false;  // 8-bit codes are always finite
}

class Looker {
 public:
  explicit Looker(models::DType dtype) : dtype_(dtype) { XXH3_64bits_reset(&state_); }

  /// `bytes`: a whole number of elements.
  void take(const std::byte* data, std::int64_t bytes) {
    const std::int64_t size = models::size_of(dtype_);
    for (std::int64_t at = 0; at < bytes; at += kPiece) {
      const std::int64_t piece = std::min(kPiece, bytes - at);
      XXH3_64bits_update(&state_, data + at, static_cast<std::size_t>(piece));
      if (!look_.not_finite && any_not_finite(data + at, piece / size, dtype_)) find(data + at, piece / size);
      seen_ += piece / size;
    }
  }
  PartLook done() {
    look_.hash = XXH3_64bits_digest(&state_);
    return look_;
  }

 private:
  void find(const std::byte* data, std::int64_t count) {
    const std::int64_t size = models::size_of(dtype_);
    for (std::int64_t i = 0; i < count; ++i)
      if (any_not_finite(data + i * size, 1, dtype_)) {
        look_.not_finite = seen_ + i;
        return;
      }
  }
  models::DType dtype_;
  XXH3_state_t state_;
  PartLook look_;
  std::int64_t seen_ = 0;
};

bool on_host(const HeldPart& part, const CheckpointContext& context) {
  return !context.backend.asynchronous() || context.arena.space_of(part.buffer) != plan::Space::device;
}

}  // namespace

std::uint64_t hash_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

PartLook look_at(const HeldPart& part, const CheckpointContext& context) {
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  const models::DType dtype = rank_class.buffers[part.buffer].dtype;
  const std::int64_t size = models::size_of(dtype), bytes = part.elements * size;
  const std::byte* const data = context.arena.data(part.buffer, {-1, part.version}) + part.first * size;
  Looker looker(dtype);
  if (on_host(part, context)) {
    looker.take(data, bytes);
    return looker.done();
  }
  std::vector<std::byte> host(static_cast<std::size_t>(std::min(bytes, kDevicePiece)));
  for (std::int64_t at = 0; at < bytes; at += kDevicePiece) {
    const std::span<std::byte> piece(host.data(), static_cast<std::size_t>(std::min(kDevicePiece, bytes - at)));
    context.backend.copy_to_host(piece, data + at);
    looker.take(piece.data(), static_cast<std::int64_t>(piece.size()));
  }
  return looker.done();
}

std::vector<PartLook> look_at(std::span<const HeldPart> parts, const CheckpointContext& context, int threads) {
  std::vector<PartLook> out(parts.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < parts.size(); i = next++) out[i] = look_at(parts[i], context);
  };
  std::int64_t bytes = 0;
  bool host = true;
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  for (const HeldPart& part : parts) {
    bytes += part.elements * models::size_of(rank_class.buffers[part.buffer].dtype);
    host = host && on_host(part, context);
  }
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; host && i < std::min<std::int64_t>(threads, bytes / kWorthThread); ++i)
    others.emplace_back(work);
  work();
  return out;
}

std::optional<std::int64_t> first_not_finite(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  if (!any_not_finite(bytes.data(), static_cast<std::int64_t>(values.size()), models::DType::fp32)) return std::nullopt;
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return found - values.begin();
}

void require_finite(std::span<const float> values, const std::string& file, const std::string& tensor,
                    std::int64_t first) {
  const std::optional<std::int64_t> at = first_not_finite(values);
  if (!at) return;
  throw InputFailure({base::Severity::error,
                      "E0650",
                      {file, 0, 0, 1},
                      fmt::format("element {} of tensor {} is not a finite number ({})", first + *at,
                                  base::quoted(tensor), values[static_cast<std::size_t>(*at)]),
                      "get the weights from their source again, or use an earlier checkpoint of the run",
                      {}});
}

}  // namespace orrery::exec
