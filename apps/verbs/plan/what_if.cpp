// Turns a plan file into a question.
#include "apps/verbs/plan/what_if.h"

#include <algorithm>
#include <thread>

#include "apps/interrupt.h"
#include "sim/simulate.h"

namespace orrery::apps {

sim::Question question_of(const LoadedPlan& loaded, const std::vector<cost::Calibration>& calibrations,
                          const cost::Intervals& intervals) {
  return {std::make_shared<const models::Model>(loaded.file.model),
          std::make_shared<const clusters::Cluster>(loaded.file.cluster),
          loaded.file.job,
          loaded.plan.spec(),
          loaded.stacks,
          calibrations,
          intervals,
          &Interrupt::requested(),
          static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
}

cost::Prediction replay_of(const LoadedPlan& loaded, const std::vector<cost::Calibration>& calibrations) {
  const cost::Pricing pricing(std::make_shared<const clusters::Cluster>(loaded.file.cluster), loaded.stack,
                              calibrations);
  return sim::simulate(loaded.plan, lower_for(loaded.plan, loaded.stack), pricing, {.spans = false}).prediction;
}

}  // namespace orrery::apps
