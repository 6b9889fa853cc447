// Searches the plans of a job for a report.
#include "apps/verbs/report/report_search.h"

#include <algorithm>
#include <thread>

#include "apps/interrupt.h"
#include "apps/verbs/plan/plan_advice.h"
#include "apps/verbs/plan/plan_rows.h"
#include "cost/prices/room.h"
#include "sim/search/search.h"

namespace orrery::apps {

void add_search(reports::ReportData& data, const LoadedJob& job, const Beliefs& beliefs,
                const cost::Intervals& intervals) {
  const cost::Prices prices(job.cluster, job.stacks, beliefs.after, intervals);
  sim::SearchOptions options;
  options.top = kPlansShown;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = &Interrupt::requested();
  data.search = sim::search(job.model, job.cluster, job.job, prices, options);
  data.search_heading = heading_of(job, *job.cluster, intervals, beliefs.after);
}

cost::SearchResult plan_job(const LoadedJob& job, const Beliefs& beliefs, const cost::Intervals& intervals,
                            Progress& progress) {
  const cost::Prices prices(job.cluster, job.stacks, beliefs.after, intervals);
  sim::SearchOptions options;
  options.top = kPlansLookedAt;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = &Interrupt::requested();
  progress.line("planning " + job.model->name + " on " + job.cluster->name);
  cost::SearchResult result = sim::search(job.model, job.cluster, job.job, prices, options);
  const cost::Room room(*job.cluster, *job.model, prices, 1, result.fits_probability);
  const ShownPlans shown = shown_plans(result, job, prices, room, kRowsShown, false, progress);
  if (result.plans.empty() && !result.interrupted)
    static_cast<void>(add_devices_that_do(result, job, beliefs.after, intervals, 1, progress));
  if (!result.plans.empty())  // the first row is the best plan, wherever it stands
    std::rotate(result.plans.begin(), result.plans.begin() + static_cast<std::ptrdiff_t>(shown.rows.front()),
                result.plans.begin() + static_cast<std::ptrdiff_t>(shown.rows.front()) + 1);
  if (result.plans.size() > static_cast<std::size_t>(kPlansShown))
    result.plans.resize(static_cast<std::size_t>(kPlansShown));
  progress.clear();
  return result;
}

}  // namespace orrery::apps
