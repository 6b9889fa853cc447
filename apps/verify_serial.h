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

/// How far rounding may carry two orders of the same sums apart, relative, over 20 steps: 1e-5 in fp32. 2e-2 in 16
/// bits, and with moments in 8 bits, of which the last digit of a gradient moves whole steps.
[[nodiscard]] double serial_bound(const plan::PlanSpec& spec);

/// Two run directories, both with gradients of steps 1 and `steps` (exec::TrainCommand::dump_gradients): the largest
/// relative difference of the losses, and |g - g'| / |g| of the whole gradients.
[[nodiscard]] base::Result<reports::SerialComparison> compare_with_serial(const std::filesystem::path& split,
                                                                          const std::filesystem::path& serial,
                                                                          std::int64_t steps, double bound);

}  // namespace orrery::apps
