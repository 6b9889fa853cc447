#pragma once
/// What `plan` shows of a search: a heading, and one row per family of near-duplicates, replayed as `simulate` does.
#include <cstddef>
#include <vector>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "cost/prices/room.h"
#include "cost/results.h"
#include "reports/tables/plan_table.h"

namespace orrery::apps {

/// The basis of the predictions: for CPU ranks, the given calibration that was fitted to runs on such cores.
[[nodiscard]] reports::PlanHeading heading_of(const LoadedJob& job, const clusters::Cluster& cluster,
                                              const cost::Intervals& intervals,
                                              const std::vector<cost::Calibration>& calibrations = {});
/// The same of a plan and its own job.
[[nodiscard]] reports::PlanHeading heading_of(const LoadedPlan& loaded, const cost::Intervals& intervals,
                                              const std::vector<cost::Calibration>& calibrations);

/// Rows of the table of `orrery plan`, unless --top says how many.
inline constexpr int kRowsShown = 10;
/// Number of plans requested from a search: more than are shown, because only one of several near-duplicates is shown.
inline constexpr int kPlansLookedAt = 160;

struct ShownPlans {
  std::vector<std::size_t> rows;    ///< indices into SearchResult::plans, best first
  std::vector<std::size_t> row_of;  ///< for each plan the index in `rows` of its family; rows.size(): not shown
  std::size_t folded = 0;           ///< plans without a row whose family is shown
};
/// At most `top` rows: one per family, or with `all` every plan in order. Rows that the search priced only in closed
/// form are replayed, and all plans are ranked again; a plan for which there is then no `room` is dropped.
[[nodiscard]] ShownPlans shown_plans(cost::SearchResult& result, const LoadedJob& job, const cost::Prices& prices,
                                     const cost::Room& room, int top, bool all, Progress& progress);

}  // namespace orrery::apps
