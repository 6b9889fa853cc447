/// Messages of a parameter server, and the operators next to them in the program.
#include "cost/estimate/parameter_server.h"

#include <algorithm>

namespace orrery::cost {

using plan::CollectiveKind;

namespace {

constexpr double kScalar = 4;  // bytes

std::vector<int> members(int stride, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(i * stride);
  return ranks;
}

}  // namespace

ServedMessages served_messages(const std::vector<ServedBucket>& buckets, double forward, double coefficients) {
  double all_pushed = coefficients, updates = 0;
  for (const ServedBucket& b : buckets) {
    all_pushed += static_cast<double>(b.count) * b.push;
    updates += static_cast<double>(b.count) * b.update;
  }
  double pushed = coefficients, updated = forward, pulled = all_pushed;
  for (const ServedBucket& b : buckets)
    for (std::int64_t i = 0; i < b.count; ++i) {
      pushed += b.push;
      updated = std::max(updated, pushed) + b.update;
      pulled = std::max(pulled, updated) + b.pull;
    }
  return {updated - forward - updates, std::max(0.0, pulled - updated)};
}

void serve(StageTimes& stage, const std::vector<ServedBucket>& buckets, const plan::PlanSpec& spec,
           const Pricing& pricing) {
  const double coefficients = pricing
                                  .collective_time(CollectiveKind::all_gather, base::Bytes{kScalar * spec.mesh.data},
                                                   members(spec.mesh.tensor, spec.mesh.data))
                                  .value;
  if (!pricing.overlaps(plan::Stream::data)) {
    stage.reduce += coefficients;
    return;
  }
  const double forward = spec.states.staleness > 0 ? stage.forward_pass : 0;
  const ServedMessages messages = served_messages(buckets, forward, coefficients);
  stage.reduce = messages.push;
  stage.gather = messages.pull;
}

double served_step(const plan::Plan& plan, const Pricing& pricing, StageTimes& stage, Agreements& agree) {
  const plan::PlanSpec& spec = plan.spec();
  agree.norm = 0;
  if (spec.mesh.tensor > 1)
    agree.norm =
        pricing.collective_time(CollectiveKind::all_reduce, base::Bytes{kScalar}, members(1, spec.mesh.tensor)).value;
  const auto m = static_cast<double>(plan.micro_batches());
  const double forward = stage.forward_pass, backward = stage.backward_pass;
  double pull = stage.gather + agree.loss;
  if (spec.states.staleness > 0 && pricing.overlaps(plan::Stream::data))
    pull = std::max(0.0, pull - (stage.begin + m * backward + (m - 1) * forward));
  stage.gather = pull;
  agree.loss = 0;
  return stage.begin + m * (forward + backward) + stage.keep + stage.norm + agree.norm + stage.rounds + stage.update +
         stage.reduce + pull;
}

}  // namespace orrery::cost
