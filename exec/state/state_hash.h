#pragma once
/// One pass over what a rank holds from step to step: a hash of each part's bytes (XXH3, 64 bits), and the place of a
/// value that is not finite. A single flipped bit always changes the hash.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "exec/state/checkpoint.h"
#include "exec/state/held_states.h"

namespace orrery::exec {

struct PartLook {
  std::uint64_t hash = 0;
  std::optional<std::int64_t> not_finite;  ///< first such element within the part
};

[[nodiscard]] std::uint64_t hash_of(std::string_view text);

/// Looks at one part. Copies values of a device to the host piece by piece.
[[nodiscard]] PartLook look_at(const HeldPart& part, const CheckpointContext& context);
/// Looks at all parts, divided over `threads` if they are in host memory.
[[nodiscard]] std::vector<PartLook> look_at(std::span<const HeldPart> parts, const CheckpointContext& context,
                                            int threads);

/// The first of `values` that is not finite, if any.
[[nodiscard]] std::optional<std::int64_t> first_not_finite(std::span<const float> values);
/// Throws InputFailure E0650 if one of `values` is not finite. They are the elements of `tensor` in `file` from `first`
/// on.
void require_finite(std::span<const float> values, const std::string& file, const std::string& tensor,
                    std::int64_t first);

}  // namespace orrery::exec
