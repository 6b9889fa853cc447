#pragma once
/// A plan's serial program (plan/lower/serial.h), trained as its plan is.
#include "tests/exec/training.h"

namespace orrery::exec::testing {

/// Trains with a schedule of the caller's: lower(plan), or the serial program of another plan.
[[nodiscard]] Outcome train(const Trial& trial, const plan::Plan& plan, const plan::Schedule& schedule);

/// What the trial's plan must come to, by its serial program. Fails the test where there is none.
[[nodiscard]] Outcome train_serially(const Trial& trial);

}  // namespace orrery::exec::testing
