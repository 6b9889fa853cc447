#pragma once
/// What routers of all backends have in common.
#include <cstdint>
#include <string>

#include "exec/engine/least_sum.h"
#include "plan/spec/ids.h"

namespace orrery::exec {

/// Where a router works: the block of the model (none: not known), and the training step from 0.
struct RoutedAt {
  plan::LayerId layer = {};
  std::int64_t step = 0;
};

/// Failures of a router or a slot, in words. Steps are named from 1, as in a run's log.
[[nodiscard]] std::string scores_not_finite(const RoutedAt& at, std::int64_t token);
[[nodiscard]] std::string slot_overflow(const RoutedAt& at, std::int64_t slot, std::int64_t experts, std::int64_t rows,
                                        std::int64_t capacity);

}  // namespace orrery::exec
