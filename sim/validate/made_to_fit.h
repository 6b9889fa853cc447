#pragma once
/// A run that ran fits its devices. Where its row leaves recomputation or ZeRO open, and the plan without them is
/// predicted not to fit, the run may have had the least of them that makes it fit.
#include <functional>
#include <memory>

#include "base/result.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// Whether the plan is predicted to need more than its devices have.
[[nodiscard]] bool outgrows(const Subject& subject);

/// `stated`: the row with everything off that it leaves open, as `translate` makes it. Null where that fits, and where
/// nothing is open. Else the first of these that fits: ZeRO 1; selective recomputation; full recomputation of the
/// fewest layers of each stage, if the software can (Capabilities::recompute_layers); of all; the latter three with
/// ZeRO 1. If none is predicted to fit, full recomputation
/// with what needs less; null if that saves nothing. Its last note says which, and why.
[[nodiscard]] std::shared_ptr<const Subject> made_to_fit(
    const Setup& setup, const Subject& stated, const std::function<base::Result<Subject>(const Setup&)>& translate);

/// The row with what needs least memory of all that it leaves open: full recomputation, ZeRO 1. Null where nothing is
/// open, and where that saves nothing. A row that does not say how it ran fits if it fits in this way.
[[nodiscard]] std::shared_ptr<const Subject> needing_least(
    const Setup& setup, const Subject& stated, const std::function<base::Result<Subject>(const Setup&)>& translate);

}  // namespace orrery::sim
