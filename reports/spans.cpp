/// Selects, orders and sums the spans of a timeline.
#include "reports/spans.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/ensure.h"
#include "plan/schedule/place.h"

namespace orrery::reports {
namespace {

bool in_program(const plan::RankClass& c, plan::StepRef at) {
  if (at.entry < 0 || at.entry >= std::ssize(c.program)) return false;
  const auto block = c.program[static_cast<std::size_t>(at.entry)].block;
  return at.step >= 0 && at.step < std::ssize(c.blocks[static_cast<std::size_t>(block)].steps);
}

int rank_count(const plan::Schedule& schedule) {
  int count = 0;
  for (const plan::RankClass& c : schedule.classes) count += c.count;
  return count;
}

std::int64_t arena_bytes(const plan::Buffer& buffer) {
  return (buffer.bytes() + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment;
}

}  // namespace

const char* name_of(SpanKind activity) {
  switch (activity) {
    case SpanKind::forward: return "forward";
    case SpanKind::backward: return "backward";
    case SpanKind::recompute: return "recompute";
    case SpanKind::optimizer: return "optimizer";
    case SpanKind::communication: return "communication";
    case SpanKind::waiting: return "waiting";
    case SpanKind::other: return "other";
  }
  return "other";
}

SpanKind span_kind_of(const plan::Step& step) {
  if (step.kind != plan::StepKind::compute) return SpanKind::communication;
  switch (step.phase) {
    case plan::Phase::forward: return SpanKind::forward;
    case plan::Phase::backward: return SpanKind::backward;
    case plan::Phase::recompute: return SpanKind::recompute;
    case plan::Phase::optimizer: return SpanKind::optimizer;
    case plan::Phase::input:
    case plan::Phase::parameter_gather:
    case plan::Phase::gradient_reduce:
    case plan::Phase::reporting: return SpanKind::other;
  }
  return SpanKind::other;
}

bool belongs(const plan::Timeline& timeline, const plan::Schedule& schedule) {
  const int ranks = rank_count(schedule);
  const auto within = [](std::int32_t index, const auto& list) {
    return index >= 0 && static_cast<std::size_t>(index) < list.size();
  };
  for (const plan::OperatorTime& o : timeline.operators) {
    if (!within(o.rank_class, schedule.classes)) return false;
    const auto& blocks = schedule.classes[static_cast<std::size_t>(o.rank_class)].blocks;
    if (!within(o.block, blocks)) return false;
    const auto& steps = blocks[static_cast<std::size_t>(o.block)].steps;
    if (!within(o.step, steps) || !within(o.op, steps[static_cast<std::size_t>(o.step)].ops)) return false;
  }
  return std::all_of(timeline.spans.begin(), timeline.spans.end(), [&](const plan::Span& s) {
    return s.rank >= 0 && s.rank < ranks && in_program(schedule.class_of(s.rank), s.at);
  });
}

const plan::Step& step_of(const plan::Span& span, const plan::Schedule& schedule) {
  const plan::RankClass& c = schedule.class_of(span.rank);
  ENSURE(in_program(c, span.at), "span of rank {} at entry {} step {} is not in its program", span.rank, span.at.entry,
         span.at.step);
  const auto block = c.program[static_cast<std::size_t>(span.at.entry)].block;
  return c.blocks[static_cast<std::size_t>(block)].steps[static_cast<std::size_t>(span.at.step)];
}

int typical_iteration(const plan::Timeline& timeline) {
  std::map<int, double> lengths;
  for (const plan::Span& s : timeline.spans) {
    double& length = lengths[s.iteration];
    length = std::max(length, s.end);
  }
  if (lengths.empty()) return 0;
  std::vector<double> sorted;
  for (const auto& [iteration, length] : lengths) sorted.push_back(length);
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  for (const auto& [iteration, length] : lengths)
    if (length == median) return iteration;
  return lengths.begin()->first;
}

std::vector<int> ranks_of(const plan::Timeline& timeline, const plan::Schedule& schedule, bool all) {
  std::set<int> ranks;
  for (const plan::Span& s : timeline.spans) ranks.insert(s.rank);
  if (all) return {ranks.begin(), ranks.end()};
  std::vector<int> lowest;
  const plan::RankClass* last = nullptr;
  for (const int rank : ranks) {
    const plan::RankClass* c = &schedule.class_of(rank);
    if (c != last) lowest.push_back(rank);
    last = c;
  }
  return lowest;
}

std::vector<plan::Span> spans_of(const plan::Timeline& timeline, const plan::Schedule& schedule, int rank,
                                 int iteration) {
  std::vector<plan::Span> spans;
  for (const plan::Span& s : timeline.spans)
    if (s.rank == rank && s.iteration == iteration) spans.push_back(s);
  const auto stream = [&](const plan::Span& s) { return step_of(s, schedule).stream; };
  std::sort(spans.begin(), spans.end(), [&](const plan::Span& a, const plan::Span& b) {
    return std::tuple(stream(a), a.start, a.at) < std::tuple(stream(b), b.start, b.at);
  });
  for (std::size_t i = 0; i < spans.size(); ++i) {
    plan::Span& s = spans[i];
    if (i > 0 && stream(spans[i - 1]) == stream(s)) s.ready = std::max(s.ready, spans[i - 1].end);
    s.start = std::max(s.start, s.ready);
    s.end = std::max(s.end, s.start);
  }
  return spans;
}

std::vector<MemoryPoint> memory_of(const std::vector<plan::Span>& spans, const plan::Schedule& schedule) {
  if (spans.empty()) return {};
  const plan::RankClass& c = schedule.class_of(spans.front().rank);
  std::map<plan::Purpose, std::int64_t> alive;
  for (const plan::Buffer& b : c.buffers)
    if (b.persistent) alive[b.purpose] += arena_bytes(b);
  // At equal times deaths come first: the schedule hands memory out again only after it is freed.
  std::multimap<std::pair<double, bool>, plan::BufferId> changes;  // (time, is birth) -> buffer
  for (const plan::Span& s : spans) {
    const plan::Step& step = step_of(s, schedule);
    const double born = step.kind == plan::StepKind::compute ? s.start : s.ready;
    for (const plan::BufferId buffer : step.births) changes.emplace(std::pair(born, true), buffer);
    for (const plan::BufferId buffer : step.deaths) changes.emplace(std::pair(s.end, false), buffer);
  }
  std::vector<MemoryPoint> points{{0, alive}};
  for (const auto& [when, buffer] : changes) {
    const plan::Buffer& b = c.buffers[buffer];
    if (b.persistent) continue;
    alive[b.purpose] += when.second ? arena_bytes(b) : -arena_bytes(b);
    if (points.back().time != when.first) points.push_back({when.first, {}});
    points.back().bytes = alive;
  }
  return points;
}

int peer_of(int rank, const plan::Step& step, const plan::PlanSpec& spec) {
  const int ranks = spec.mesh.ranks();
  return (rank + step.peer * (ranks / spec.mesh.pipeline) + ranks) % ranks;
}

}  // namespace orrery::reports
