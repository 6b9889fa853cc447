#pragma once
/// `train --verify-serial`: runs the same job as one serial program, and compares the split run's numbers with it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "apps/inputs.h"
#include "base/result.h"
#include "reports/tables/text.h"

namespace orrery::apps {

/// How far rounding may separate two orders of the same sums, relative, over 20 steps.
struct SerialBounds {
  double loss = 0, gradient = 0;
  std::optional<double> last = {};  ///< of the last step's gradient, if it differs from the first's
};

/// fp32: 1e-5. tf32: 1e-3 for the loss and 5e-2 for gradients, because operands may be rounded the other way. 2e-2 in
/// 16 bits, in fp8, and with 8-bit moments, where the last digit of a gradient moves a moment by whole steps. Gradients
/// in fewer bits: 1e-5 for the loss; for the gradients half of a last digit (bf16 2^-9, fp16 2^-12), because a sum in
/// another order may be rounded the other way, and 1e-3 with PowerSGD. Rows of tokens in fewer bits: for the first
/// gradient as above (2e-2 where tensor ranks round parts of sums); after that, the last bit of a weight changes codes,
/// and these change a router's choices, so 2e-2 for losses, and for the last gradient its own length.
[[nodiscard]] SerialBounds serial_bounds(const plan::PlanSpec& spec);

/// The types of embedding vectors and of their gradients that travel in fewer bits: "embedding.forward: int8". The
/// serial program looks rows up where they are used, so it does not round them, and the bounds do not allow for that.
/// Empty where all travel in fp32.
[[nodiscard]] std::string rounded_only_split(const plan::PlanSpec& spec);

/// The plan's serial program with its sums in another order, in other micro-batches, as a plan of one rank. None where
/// the program is not a plain step, or where micro-batches are of the mathematics (fp8's scales, a model's batch).
[[nodiscard]] std::optional<plan::PlanFile> serial_in_another_order(const LoadedPlan& loaded);

/// Compares two run directories, both with gradients of steps 1 and `steps` (exec::TrainCommand::dump_gradients): the
/// largest relative difference of losses, and |g - g'| / |g| over all gradients.
[[nodiscard]] base::Result<reports::SerialComparison> compare_with_serial(const std::filesystem::path& split,
                                                                          const std::filesystem::path& serial,
                                                                          std::int64_t steps,
                                                                          const SerialBounds& bounds);

}  // namespace orrery::apps
