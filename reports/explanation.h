#pragma once
/// Explanations for people and for scripts: variations of a plan, sensitivities, operators, and how the time at the
/// device's peak becomes the step's.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/explanation.h"
#include "reports/tables/plan_table.h"

namespace orrery::reports {

/// Why a variation was not chosen, compared with the plan's own prediction: "needs 3.2 GiB more than a device has", "12
/// ms slower", "breaks P03: …".
[[nodiscard]] std::string verdict(const cost::Variation& one, const cost::Prediction& own);
/// Each with its interval, and with its evidence where that is not the plan's own. `width`: of the terminal, 0:
/// unlimited.
[[nodiscard]] Table variations_table(const std::string& title, const std::vector<cost::Variation>& variations,
                                     const cost::Prediction& own, const PlanHeading& heading, std::size_t width);
[[nodiscard]] nlohmann::json variations_json(const std::vector<cost::Variation>& variations,
                                             const cost::Prediction& own, const PlanHeading& heading);

[[nodiscard]] Table sensitivities_table(const std::vector<cost::Sensitivity>& all, const cost::Prediction& own);
[[nodiscard]] nlohmann::json sensitivities_json(const std::vector<cost::Sensitivity>& all);

[[nodiscard]] Table operators_table(const cost::Operators& operators);
[[nodiscard]] nlohmann::json operators_json(const cost::Operators& operators);

/// One part of the waterfall; seconds of the mean rank, negative where it saves time.
struct WaterfallPart {
  std::string name;
  double seconds = 0;
};
/// From the time that the model's FLOPs would take at the device's peak to the step: what masks save, the time of each
/// kind of operator above its FLOPs at the peak, issuing and jitter, recomputation, the optimizer, exposed
/// communication by kind, copies, bubbles, overhead. The parts add up to the sum of the breakdown, which is the step.
/// Empty if no peak or no FLOPs are known.
[[nodiscard]] std::vector<WaterfallPart> waterfall_of(const cost::Prediction& prediction,
                                                      const cost::Operators& operators);
[[nodiscard]] Table waterfall_table(const std::vector<WaterfallPart>& parts);
[[nodiscard]] nlohmann::json waterfall_json(const std::vector<WaterfallPart>& parts);

}  // namespace orrery::reports
