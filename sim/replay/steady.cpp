// The difference of two replays.
#include "sim/replay/steady.h"

#include <algorithm>

#include "base/ensure.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::sim {

namespace {

// The share of one of `steps` additional steps, rounded to the nearest picosecond.
std::int64_t share(std::int64_t longer, std::int64_t shorter, std::int64_t steps) {
  const std::int64_t added = longer - shorter;
  return (added + (added < 0 ? -steps : steps) / 2) / steps;
}

void take(std::vector<Picoseconds>& longer, const std::vector<Picoseconds>& shorter, std::int64_t steps) {
  for (std::size_t i = 0; i < longer.size(); ++i) longer[i] = share(longer[i], shorter[i], steps);
}

void take(RankTotals& longer, const RankTotals& shorter, std::int64_t steps) {
  take(longer.compute, shorter.compute, steps);
  take(longer.exposed, shorter.exposed, steps);
  longer.contention = share(longer.contention, shorter.contention, steps);
  longer.fuller_compute = share(longer.fuller_compute, shorter.fuller_compute, steps);
  longer.fuller_messages = share(longer.fuller_messages, shorter.fuller_messages, steps);
  longer.waiting = std::max<Picoseconds>(0, share(longer.waiting, shorter.waiting, steps));
  longer.end = share(longer.end, shorter.end, steps);
  for (std::size_t b = 0; b < longer.messages.size(); ++b)
    for (std::size_t s = 0; s < longer.messages[b].size(); ++s) {
      RankTotals::Message& m = longer.messages[b][s];
      const RankTotals::Message& before = shorter.messages[b][s];
      // A mean: if a pass has two variants, each runs in some of the steps.
      m.count = share(m.count, before.count, steps);
      m.time = share(m.time, before.time, steps);
      m.exposed = share(m.exposed, before.exposed, steps);
      m.contention = share(m.contention, before.contention, steps);
    }
}

// Keeps the spans of training step `step`, with their places in the class's own program.
void keep_step(std::vector<plan::Span>& spans, const plan::Schedule& schedule, const plan::Unrolled& run,
               std::int32_t step) {
  const auto class_of = [&](int rank) { return plan::StageId(rank / schedule.spec.mesh.ranks_per_stage()); };
  const auto origin = [&](const plan::Span& span) {
    return run.origins[class_of(span.rank).index()][static_cast<std::size_t>(span.at.entry)];
  };
  std::erase_if(spans, [&](const plan::Span& span) { return origin(span).step != step; });
  double begin = spans.empty() ? 0 : spans.front().start;
  for (const plan::Span& span : spans) begin = std::min(begin, span.start);
  for (plan::Span& span : spans) {
    span.at.entry = origin(span).entry;
    span.micro_batch =
        schedule.classes[class_of(span.rank)].program[static_cast<std::size_t>(span.at.entry)].micro_batch;
    span.ready = std::max(0.0, span.ready - begin);
    span.start -= begin;
    span.end -= begin;
  }
}

}  // namespace

Replay steady_step(const JobOnCluster& job, const clusters::Cluster& cluster, const Fabric* fabric,
                   const ReplayOptions& options) {
  const plan::Schedule& schedule = *job.schedule;
  int in_flight = 1;
  for (const plan::RankClass& c : schedule.classes) in_flight = std::max(in_flight, plan::steps_in_flight(c));
  const std::int64_t filled = 2 * static_cast<std::int64_t>(in_flight) + 2;
  const std::int64_t added = in_flight;
  const auto run_of = [&](const plan::Unrolled& run, bool spans) {
    JobOnCluster unrolled = job;
    unrolled.schedule = &run.schedule;
    ReplayOptions how = options;
    how.spans = spans;
    return replay(std::span(&unrolled, 1), cluster, fabric, how);
  };
  const plan::Unrolled few = plan::unrolled(schedule, filled, false);
  const plan::Unrolled many = plan::unrolled(schedule, filled + added, false);
  const Replay shorter = run_of(few, false);
  Replay longer = run_of(many, options.spans);
  ENSURE(longer.classes.size() == shorter.classes.size(), "{} classes of ranks, and {}", longer.classes.size(),
         shorter.classes.size());
  for (std::size_t c = 0; c < longer.classes.size(); ++c)
    take(longer.classes[c].totals, shorter.classes[c].totals, added);
  take(longer.makespan, shorter.makespan, added);
  for (std::size_t j = 0; j < longer.carried.size(); ++j)
    for (std::size_t l = 0; l < longer.carried[j].size(); ++l)
      longer.carried[j][l] = (longer.carried[j][l] - shorter.carried[j][l]) / static_cast<double>(added);
  for (std::vector<plan::Span>& spans : longer.spans)
    keep_step(spans, schedule, many, static_cast<std::int32_t>(filled));
  return longer;
}

}  // namespace orrery::sim
