#pragma once
/// Arena offsets: where each buffer instance of a class lives. There is one arena per memory, with three regions:
/// persistent and step buffers; slabs of buffers that outlive their block (saved activations, messages that wait for
/// their turn); buffers that live within one block, laid out once per block. Simulator and executor both read peak
/// memory off this.
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

inline constexpr std::int64_t kAlignment = 256;  ///< bytes; of every buffer in an arena

/// One birth, in program order. `micro_batch` advances with the program's.
struct Placed {
  StepRef at;
  BufferId buffer;
  std::int32_t micro_batch = -1;
  std::int64_t offset = 0;  ///< bytes from the arena's start
  std::int64_t bytes = 0;   ///< rounded up to kAlignment
  /// A buffer that lives across training steps: instance i, counted over the run, lies i % ring strides further.
  std::int32_t ring = 1;
  std::int64_t stride = 0;  ///< bytes
  bool operator==(const Placed&) const = default;
};

/// Births repeat, as slots are reused.
template <>
struct Progression<Placed> {
  struct Advance {
    std::int32_t entries = 0, micro_batches = 0;
  };
  [[nodiscard]] static std::optional<Advance> between(const Placed& a, const Placed& b) {
    Placed moved = a;
    moved.at.entry = b.at.entry;
    moved.micro_batch = b.micro_batch;
    if (!(moved == b) || b.at.entry <= a.at.entry || a.micro_batch < 0 || b.micro_batch <= a.micro_batch)
      return std::nullopt;
    return Advance{b.at.entry - a.at.entry, b.micro_batch - a.micro_batch};
  }
  [[nodiscard]] static Placed advanced(Placed a, const Advance& advance, std::int64_t times) {
    a.at.entry += static_cast<std::int32_t>(advance.entries * times);
    if (a.micro_batch >= 0) a.micro_batch += static_cast<std::int32_t>(advance.micro_batches * times);
    return a;
  }
};
using Births = Repeated<Placed>;

/// The arena of a memory other than the device's.
struct SpaceUse {
  std::int64_t arena_bytes = 0, peak_live_bytes = 0;
  std::vector<std::int64_t> by_purpose = {};
};

/// `arena_bytes`, `peak_live_bytes` and `by_purpose` are the device's; an offset counts from the arena of its buffer's
/// space.
struct Placement {
  std::int64_t arena_bytes = 0;                   ///< the arena's size = its high-water mark over one step
  std::int64_t peak_live_bytes = 0;               ///< most bytes alive at once, without fragmentation
  base::ById<BufferId, std::int64_t> persistent;  ///< offset of version 0; -1 if not persistent
  Births births;                                  ///< every birth of one step in program order
  std::vector<std::int64_t> by_purpose;           ///< bytes alive by Purpose at the moment of peak_live_bytes
  SpaceUse host, nvme;
  [[nodiscard]] std::int64_t arena_bytes_of(Space space) const {
    return space == Space::device ? arena_bytes : (space == Space::host ? host : nvme).arena_bytes;
  }
  [[nodiscard]] std::int64_t peak_live_bytes_of(Space space) const {
    return space == Space::device ? peak_live_bytes : (space == Space::host ? host : nvme).peak_live_bytes;
  }
};

[[nodiscard]] Placement place(const RankClass& rank_class);
/// The same sizes without the births: skips micro-batches that repeat what earlier ones did.
[[nodiscard]] Placement sizes_of(const RankClass& rank_class);

/// Where the buffers of an evaluation (LowerOptions::forward_only) lie in the arena of the same plan's training step,
/// which is idle meanwhile: persistent buffers where those of the same name are, all others after the last persistent
/// one. `arena_bytes` is what the arena must hold; by_purpose and peak_live_bytes count only the evaluation.
[[nodiscard]] Placement place_beside(const RankClass& training, const Placement& placed, const RankClass& evaluation);

/// Slabs of nearly equal size (within an eighth of the larger) share slots of the largest one's size. Returns the pool
/// of each slab, numbered from the largest; the size of a pool is that of its first slab.
[[nodiscard]] std::vector<int> slab_pools(const std::vector<std::int64_t>& slabs);

}  // namespace orrery::plan
