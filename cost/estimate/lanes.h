#pragma once
/// Kinds of messages that cross links alike. A stream has one message in flight at a time, but not each crosses the
/// same links: gradients are summed within a node and then between nodes, and experts have replicas of their own.
/// Private to cost/estimate/.
#include <cstddef>
#include <cstdint>

#include "plan/outline/outline.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

using Lane = std::uint8_t;
inline constexpr std::size_t kLanes = plan::kStreams + 2 * 6 + 2;
static_assert(kLanes <= 32, "sets of lanes have 32 bits");

/// Of a stream whose messages all cross the same links.
[[nodiscard]] constexpr Lane lane_of(plan::Stream stream) {
  return static_cast<Lane>(stream);
}
/// Of the tensor stream: what experts send if they are folded.
inline constexpr Lane kExpertTensorLane = kLanes - 1;
/// Of copies to the host that are added to what is there, at the rate at which the host adds.
inline constexpr Lane kAddingLane = kLanes - 2;
/// Of the data stream.
[[nodiscard]] constexpr Lane lane_of(plan::Over over, bool experts) {
  return static_cast<Lane>(plan::kStreams + 2 * static_cast<std::size_t>(over) + (experts ? 1 : 0));
}

[[nodiscard]] constexpr plan::Stream stream_of(Lane lane) {
  if (lane == kExpertTensorLane) return plan::Stream::tensor;
  if (lane == kAddingLane) return plan::Stream::to_host;
  return lane < plan::kStreams ? static_cast<plan::Stream>(lane) : plan::Stream::data;
}

}  // namespace orrery::cost
