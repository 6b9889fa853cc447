#pragma once
/// What `plan` shows of a search: a heading, and of near-duplicates one row each, replayed as `simulate` replays.
#include <cstddef>
#include <vector>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "cost/results.h"
#include "reports/plan_table.h"

namespace orrery::apps {

/// What predictions rest on: of CPU ranks the calibration, of those given, that was fitted to runs on such cores.
[[nodiscard]] reports::PlanHeading heading_of(const LoadedJob& job, const clusters::Cluster& cluster,
                                              const cost::Intervals& intervals,
                                              const std::vector<cost::Calibration>& calibrations = {});

/// Plans that a search returns for them: more than are shown, as of near-duplicates one is.
inline constexpr int kPlansLookedAt = 160;

struct ShownPlans {
  std::vector<std::size_t> rows;    ///< places in SearchResult::plans, best first
  std::vector<std::size_t> row_of;  ///< of each plan the place, in `rows`, of its family; rows.size(): not shown
  std::size_t folded = 0;           ///< plans that are not rows, of families that are shown
};
/// At most `top` rows: one of each family, or with `all` the plans as they come. Rows that the search priced by the
/// closed form alone are replayed, and all plans ranked again; one that then needs more than `capacity` bytes of a
/// device is dropped.
[[nodiscard]] ShownPlans shown_plans(cost::SearchResult& result, const LoadedJob& job, const cost::Prices& prices,
                                     double capacity, int top, bool all, Progress& progress);

}  // namespace orrery::apps
