#pragma once
/// `train --verify-serial`: runs the same job as one serial program, and compares the split run's numbers with it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "apps/inputs.h"
#include "base/result.h"
#include "reports/text.h"

namespace orrery::apps {

/// How far rounding may separate two orders of the same sums, relative, over 20 steps.
struct SerialBounds {
  double loss = 0, gradient = 0;
  std::optional<double> last = {};  ///< of the last step's gradient, where it is another than the first's
};

/// fp32: 1e-5. tf32: 1e-3 of the loss, 5e-2 of gradients, as operands may be rounded the other way. 2e-2 in 16 bits,
/// in fp8, and with moments in 8 bits, of which the last digit of a gradient moves whole steps. Gradients in fewer
/// bits: 1e-5 of the loss; of the gradients half of a last digit (bf16 2^-9, fp16 2^-12), as a sum that comes in
/// another order may be rounded the other way, and 1e-3 of PowerSGD's. Rows of tokens in fewer bits: the first gradient
/// as ever (2e-2 where tensor ranks round parts of sums); from then on a last bit of a weight moves codes, and those a
/// router's choices: losses 2e-2, the last gradient within its own length.
[[nodiscard]] SerialBounds serial_bounds(const plan::PlanSpec& spec);

/// Compares two run directories, both with gradients of steps 1 and `steps` (exec::TrainCommand::dump_gradients): the
/// largest relative difference of losses, and |g - g'| / |g| over all gradients.
[[nodiscard]] base::Result<reports::SerialComparison> compare_with_serial(const std::filesystem::path& split,
                                                                          const std::filesystem::path& serial,
                                                                          std::int64_t steps,
                                                                          const SerialBounds& bounds);

}  // namespace orrery::apps
