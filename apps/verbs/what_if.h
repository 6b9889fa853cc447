#pragma once
/// What a plan would take with one thing changed: its split, or the machine under it. Each is replayed as `simulate`
/// replays, so that it stands beside the plan's own numbers.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "cost/results.h"

namespace orrery::apps {

struct Variation {
  std::string change;                          ///< "micro-batch 4", "10 GB more memory"
  std::optional<cost::Prediction> prediction;  ///< none: there is no such plan
  std::string refusal;                         ///< then why, in the words of a rule or of a search
  std::string code;                            ///< of the rule
};

/// The replay that `simulate` prints.
[[nodiscard]] cost::Prediction replay_of(const LoadedPlan& loaded, const std::vector<cost::Calibration>& calibrations);

/// The plan's split on other machines: one node more (as the search would use it), devices with 10 GB more memory,
/// NICs twice as fast. What the cluster's description cannot express is left out.
[[nodiscard]] std::vector<Variation> with_other_machines(const LoadedPlan& loaded,
                                                         const std::vector<cost::Calibration>& calibrations);

/// Splits that differ in one step from the plan's: recomputation, micro-batch, ZeRO, virtual stages, and the degrees of
/// the mesh two by two. `go_on` is asked before each.
[[nodiscard]] std::vector<Variation> neighbours(const LoadedPlan& loaded,
                                                const std::vector<cost::Calibration>& calibrations,
                                                const std::function<bool(const std::string&)>& go_on);

/// Why a variation was not taken, against the plan's own prediction: "needs 3.2 GiB more than a device has", "12 ms
/// slower", "breaks P03: …".
[[nodiscard]] std::string verdict(const Variation& one, const cost::Prediction& own);

}  // namespace orrery::apps
