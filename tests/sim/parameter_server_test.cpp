// A parameter server, predicted: what staleness hides, what it costs in memory, and both speeds of prediction.
#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace parameter_server_test {

plan::Plan served(int workers, int staleness, std::int64_t micro_batch = 2) {
  plan::PlanSpec spec;
  spec.mesh.data = workers;
  spec.shape.batch = 16;
  spec.shape.micro_batch = micro_batch;
  spec.states.staleness = staleness;
  return samples::make(spec, samples::tiny_gpt(6, 256, 512));
}

/// Whose messages move while ranks compute.
cost::Pricing pricing_of(const plan::Plan& plan, bool overlaps = true) {
  cost::Stack stack;
  stack.name = "bare";
  stack.overlap_data = overlaps;
  auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
  cost::Calibration slow = cost::defaults(*cluster);
  for (auto& [name, parameter] : slow.parameters)
    if (name.rfind("network.", 0) == 0 && name.find("bandwidth") != std::string::npos) parameter.value = 1e9;
  return {cluster, stack, {slow}};
}

TEST(SimulateParameterServer, StalenessHidesItsMessages) {
  const plan::Plan fresh = served(4, 0), stale = served(4, 1);
  const cost::Prediction waits = simulate(fresh, pricing_of(fresh)).prediction;
  const cost::Prediction hides = simulate(stale, pricing_of(stale)).prediction;
  EXPECT_LT(hides.step_time_s, waits.step_time_s);
  EXPECT_LT(hides.exposed_communication_s, 0.5 * waits.exposed_communication_s);
  EXPECT_GT(hides.memory_peak_bytes, waits.memory_peak_bytes);
  // Without overlap there is nothing to gain.
  const cost::Prediction serial = simulate(stale, pricing_of(stale, false)).prediction;
  EXPECT_GT(serial.exposed_communication_s, 0.9 * waits.exposed_communication_s);
}

TEST(SimulateParameterServer, ClosedFormAndReplayAgree) {
  for (const int workers : {2, 4, 8})
    for (const int staleness : {0, 1, 3})
      for (const bool overlaps : {true, false}) {
        const plan::Plan plan = served(workers, staleness);
        SCOPED_TRACE(plan::describe(plan.spec()) + (overlaps ? "" : ", no overlap"));
        const cost::Pricing pricing = pricing_of(plan, overlaps);
        const cost::Estimate closed =
            cost::Estimator(std::make_shared<models::Model>(plan.model()), pricing).estimate(plan);
        const cost::Prediction replayed = simulate(plan, pricing).prediction;
        EXPECT_NEAR(closed.step_time / replayed.step_time_s, 1, 0.05);
        EXPECT_NEAR(closed.memory_peak / replayed.memory_peak_bytes, 1, 0.02);
      }
}

TEST(SimulateParameterServer, CountsWhatIsPushedAndPulled) {
  const plan::Plan plan = served(4, 1);
  const plan::Schedule schedule = plan::lower(plan);
  double bytes = 0;
  for (const plan::Bucket& b : schedule.classes.front().buckets) bytes += 4.0 * static_cast<double>(b.elements);
  double pushed = 0;
  for (const cost::CommunicationRow& row : simulate(plan, pricing_of(plan)).prediction.communication)
    if (row.operation == "all_to_all") pushed += row.bytes;
  EXPECT_EQ(pushed, bytes);
}

}  // namespace parameter_server_test
}  // namespace orrery::sim
