// Accounts for a measured step: every moment of every rank goes to exactly one part.
#include "reports/measured.h"

#include <algorithm>

#include "reports/spans.h"

namespace orrery::reports {
namespace {

using plan::Phase;
using plan::Span;
using plan::Step;
using plan::StepKind;
using plan::Stream;

double& compute_part(cost::Breakdown& b, Phase phase) {
  switch (phase) {
    case Phase::input:
    case Phase::forward: return b.forward;
    case Phase::recompute: return b.recompute;
    case Phase::backward: return b.backward;
    case Phase::parameter_gather:
    case Phase::gradient_reduce:
    case Phase::optimizer:
    case Phase::reporting: return b.optimizer;
  }
  return b.overhead;
}

double& exposed_part(cost::Breakdown& b, Stream stream) {
  switch (stream) {
    case Stream::tensor:
    case Stream::context: return b.tensor_communication;
    case Stream::exchange: return b.exchange_communication;
    case Stream::data: return b.data_communication;
    case Stream::pipeline_send:
    case Stream::pipeline_recv: return b.pipeline_communication;
    case Stream::to_host:
    case Stream::from_host:
    case Stream::to_nvme:
    case Stream::from_nvme: return b.copies;
    case Stream::compute: break;
  }
  return b.overhead;
}

/// One rank's account: a cursor moves through the iteration and books each stretch that it passes once.
class Account {
 public:
  Account(cost::Breakdown& into, const plan::Schedule& schedule) : into_(into), schedule_(schedule) {}

  void book(std::vector<Span> spans, double iteration_end) {
    std::vector<Span> messages;
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.end < b.end; });
    for (const Span& span : spans)
      if (step_of(span, schedule_).kind != StepKind::compute) messages.push_back(span);
    double last = 0;
    for (const Span& span : spans) {
      last = std::max(last, span.end);
      const Step& step = step_of(span, schedule_);
      if (step.kind != StepKind::compute) continue;
      gap(messages, span.start);
      pass(span.end, compute_part(into_, step.phase));
    }
    gap(messages, last);
    pass(iteration_end, into_.bubble);
  }

 private:
  void pass(double until, double& part) {
    if (until <= now_) return;
    part += until - now_;
    now_ = until;
  }

  /// From the cursor to `until` no compute step ran: books the gap to its cause.
  void gap(const std::vector<Span>& messages, double until) {
    for (const Span& message : messages) {
      if (message.end <= now_ || message.ready >= until) continue;
      const Step& step = step_of(message, schedule_);
      pass(std::min(message.ready, until), into_.overhead);
      double& waiting = step.kind == StepKind::collective ? exposed_part(into_, step.stream) : into_.bubble;
      pass(std::min(message.start, until), waiting);
      pass(std::min(message.end, until), exposed_part(into_, step.stream));
    }
    pass(until, into_.overhead);
  }

  cost::Breakdown& into_;
  const plan::Schedule& schedule_;
  double now_ = 0;
};

using BookedPart = double cost::Breakdown::*;
constexpr BookedPart kBookedParts[] = {&cost::Breakdown::forward,
                                       &cost::Breakdown::backward,
                                       &cost::Breakdown::recompute,
                                       &cost::Breakdown::optimizer,
                                       &cost::Breakdown::tensor_communication,
                                       &cost::Breakdown::exchange_communication,
                                       &cost::Breakdown::data_communication,
                                       &cost::Breakdown::pipeline_communication,
                                       &cost::Breakdown::copies,
                                       &cost::Breakdown::bubble,
                                       &cost::Breakdown::imbalance,
                                       &cost::Breakdown::overhead};

/// What a rank has to do by itself, as the replay counts it.
double work(const cost::Breakdown& b) {
  return b.forward + b.backward + b.recompute + b.optimizer + b.tensor_communication + b.exchange_communication;
}

}  // namespace

cost::Breakdown measured_breakdown(const plan::Timeline& timeline, const plan::Schedule& schedule) {
  cost::Breakdown sum;
  const int iteration = typical_iteration(timeline);
  double end = 0;
  for (const Span& span : timeline.spans)
    if (span.iteration == iteration) end = std::max(end, span.end);
  const std::vector<int> ranks = ranks_of(timeline, schedule, /*all=*/true);
  std::vector<cost::Breakdown> each(ranks.size());
  double most = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Account(each[i], schedule).book(spans_of(timeline, schedule, ranks[i], iteration), end);
    most = std::max(most, work(each[i]));
  }
  for (cost::Breakdown& one : each) {
    one.imbalance = cost::imbalance_of(one.bubble, work(one), most);
    one.bubble -= one.imbalance;
    for (const BookedPart part : kBookedParts) sum.*part += one.*part / static_cast<double>(ranks.size());
  }
  return sum;
}

}  // namespace orrery::reports
