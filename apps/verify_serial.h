#pragma once
/// `train --verify-serial`: the same job on one rank, and how far the split run's numbers are from it.
#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/inputs.h"
#include "base/result.h"
#include "reports/text.h"

namespace orrery::apps {

/// The plan on one rank: nothing split, nothing partitioned or recomputed, its micro-batch kept. E0210
/// where no serial program computes the same.
[[nodiscard]] base::Result<plan::PlanFile> serial_of(const plan::PlanFile& file);

/// How far rounding may carry two orders of the same sums apart: 1e-5 in fp32 (relative; 20 steps).
[[nodiscard]] double serial_bound(models::DType precision);

/// Two run directories, both with gradients of steps 1 and `steps` (exec::TrainCommand::dump_gradients): the largest
/// relative difference of the losses, and |g - g'| / |g| of the whole gradients.
[[nodiscard]] base::Result<reports::SerialComparison> compare_with_serial(const std::filesystem::path& split,
                                                                          const std::filesystem::path& serial,
                                                                          std::int64_t steps, double bound);

}  // namespace orrery::apps
