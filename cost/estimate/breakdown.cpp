// Divides a step's time among its causes, as means over its stages.
#include <algorithm>

#include "cost/estimate/stage_times.h"

namespace orrery::cost {

using plan::Stream;

Breakdown breakdown_of(const std::vector<StageTimes>& stages, const PipelineResult& passes, const Agreements& agree,
                       double m, double step_time, double overhead) {
  const auto n = static_cast<double>(stages.size());
  Breakdown b;
  double work = 0, most = 0;  // mean and largest, without messages between stages
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageTimes& t = stages[s];
    const bool tied = s == 0 || s + 1 == stages.size();
    b.forward += m * (t.forward + t.input) / n;
    b.recompute += m * t.recompute / n;
    b.backward += (m * t.backward + t.writing) / n;
    b.optimizer += (t.begin + t.within + t.keep + t.norm + t.rounds + t.update - t.copies) / n;
    const auto exposed = [&](plan::Stream stream) { return passes.exposed[s][static_cast<std::size_t>(stream)]; };
    const double tensor = exposed(Stream::tensor) + exposed(Stream::context), exchange = exposed(Stream::exchange);
    b.tensor_communication += tensor / n;
    b.exchange_communication += exchange / n;
    b.data_communication += (exposed(Stream::data) + passes.reduced[s] + t.reduce + t.gather + agree.norm + agree.loss +
                             (tied ? agree.embedding : 0)) /
                            n;
    b.pipeline_communication += passes.transfer[s] / n;
    b.forward += passes.late_forward[s] / n;
    b.backward += passes.late_backward[s] / n;
    for (const Stream copies : {Stream::to_host, Stream::from_host, Stream::to_nvme, Stream::from_nvme})
      b.copies += exposed(copies) / n;
    b.copies += t.copies / n;
    const double own = m * (t.forward + t.input + t.recompute + t.backward) + t.writing + tensor + exchange + t.begin +
                       t.within + t.keep + t.norm + t.rounds + t.update;
    work += own / n;
    most = std::max(most, own);
  }
  b.overhead = overhead;
  const double used = b.forward + b.recompute + b.backward + b.optimizer + b.exposed() + b.overhead;
  // Passes are whole picoseconds: what is a billionth of the step is rounding.
  constexpr double kRounding = 1e-9;
  const double left = step_time - used, waiting = left > kRounding * step_time ? left : 0;
  b.imbalance = imbalance_of(waiting, work, most);
  b.bubble = waiting - b.imbalance;
  return b;
}

}  // namespace orrery::cost
