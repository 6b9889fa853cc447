// The replay itself: actors, their messages, and their common clock.
#include "sim/replay/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/partners.h"

namespace orrery::sim {

namespace {

using base::at;

using plan::Block;
using plan::kStreams;
using plan::RankClass;
using plan::Step;
using plan::StepKind;
using plan::Visit;

constexpr std::size_t kPhases = 8;

// On the mean rank, if the ranks of a class have unequal shares of the data.
base::Seconds mean_time(const Step& step, const JobOnCluster& job) {
  Step own = step;
  for (models::Op& op : own.ops) op = cost::of_mean_rank(std::move(op), job.mean);
  return own.ops == step.ops ? job.pricing->compute_time(step) : job.pricing->compute_time(own);
}

template <class Time>
std::vector<std::vector<std::vector<Picoseconds>>> times_of(const JobOnCluster& job, const Time& time) {
  std::vector<std::vector<std::vector<Picoseconds>>> all;
  for (const RankClass& c : job.schedule->classes) {
    all.emplace_back();
    for (const Block& block : c.blocks) {
      all.back().emplace_back();
      for (const Step& step : block.steps) all.back().back().push_back(picoseconds(time(step)));
    }
  }
  return all;
}

}  // namespace

Machine::Machine(std::span<const JobOnCluster> jobs, const Traffic& traffic, const Folded& folded, const Fabric* fabric,
                 const ReplayOptions& options)
    : jobs_(jobs),
      traffic_(traffic),
      folded_(folded),
      transfers_(jobs, traffic, folded, fabric),
      spans_(options.spans),
      most_spans_(options.most_spans),
      training_step_(options.training_step) {
  compute_.resize(jobs.size());
  notes_.resize(jobs.size());
  under_way_.resize(jobs.size(), 0);
  mean_.resize(jobs.size());
  host_.resize(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    compute_[j] = times_of(jobs[j], [&](const Step& step) {
      return step.kind == StepKind::compute ? jobs[j].pricing->compute_time(step) : base::Seconds{0};
    });
    if (!jobs[j].mean.even())
      mean_[j] = times_of(jobs[j], [&](const Step& step) {
        return step.kind == StepKind::compute ? mean_time(step, jobs[j]) : base::Seconds{0};
      });
    host_[j] = times_of(jobs[j], [&](const Step& step) {
      if (step.kind == StepKind::compute) return jobs[j].pricing->host_time(step.ops);
      const plan::Schedule& schedule = *jobs[j].schedule;
      const bool within_tensor = step.kind == StepKind::collective && step.stream == plan::Stream::tensor;
      return within_tensor
                 ? jobs[j].pricing->message_host_time(schedule.groups[step.group].size(), schedule.classes.size() > 1)
                 : base::Seconds{0};
    });
  }
  actors_.reserve(folded.ranks.size());
  for (const Folded::Ranks& ranks : folded.ranks) actors_.push_back(make_actor(ranks));
  lengthen_compute();
  prepare_to_skip(options);
}

Replay Machine::run() {
  for (Actor& actor : actors_) advance(actor);
  for (std::size_t j = 0; j < jobs_.size(); ++j) join(static_cast<int>(j));
  while (const std::optional<Picoseconds> time = next()) {
    happen(*time);
    if (periods_ && periods_->due(actors_[periods_->leader()].entry)) look();
  }
  return result();
}

// -- preparation --------------------------------------------------------------------------------------------------
Actor Machine::make_actor(const Folded::Ranks& ranks) {
  const JobOnCluster& job = jobs_[at(ranks.job)];
  Actor actor;
  actor.index = static_cast<int>(actors_.size());
  actor.job = ranks.job;
  actor.rank_class = &job.schedule->classes[ranks.stage];
  actor.pricing = job.pricing;
  actor.noted = spans_ && ranks.representative == actor.rank_class->representative;
  actor.compute = &compute_[at(ranks.job)][ranks.stage.index()];
  if (!mean_[at(ranks.job)].empty()) actor.mean = &mean_[at(ranks.job)][ranks.stage.index()];
  actor.host = &host_[at(ranks.job)][ranks.stage.index()];
  actor.totals.compute.assign(kPhases, 0);
  actor.totals.exposed.assign(kStreams, 0);
  const std::vector<std::vector<std::optional<cost::Leg>>> all_legs = cost::legs_of(*actor.rank_class);
  for (const Block& block : actor.rank_class->blocks) {
    actor.totals.messages.emplace_back(block.steps.size());
    std::vector<int> kinds, communicators;
    const std::vector<std::optional<cost::Leg>>& legs = all_legs[actor.kinds.size()];
    for (const Step& step : block.steps) {
      const int c = step.kind == StepKind::compute ? -1 : communicators_of(ranks, job, step);
      communicators.push_back(c);
      kinds.push_back(c < 0 ? -1 : kind_of(step, *actor.rank_class, c, legs[kinds.size()]));
    }
    actor.kinds.push_back(std::move(kinds));
    actor.communicators.push_back(std::move(communicators));
  }
  return actor;
}

// By the multiprocessors that all-to-alls beside it take (cost::exchange_taken).
void Machine::lengthen_compute() {
  std::set<std::pair<int, plan::StageId>> done;
  for (const Actor& actor : actors_) {
    const JobOnCluster& job = jobs_[at(actor.job)];
    const plan::PlanSpec& spec = job.schedule->spec;
    if (!plan::runs_beside(spec)) continue;
    const double taken = cost::exchange_taken(*job.pricing, spec,
                                              plan::paired_share(spec, actor.rank_class->stage, spec.micro_batches()));
    if (taken == 0 || !done.insert({actor.job, actor.rank_class->stage}).second) continue;
    for (std::size_t b = 0; b < actor.kinds.size(); ++b) {
      const std::vector<Step>& steps = actor.rank_class->blocks[b].steps;
      const auto lengthen = [&](auto& times, std::size_t step, Picoseconds message) {
        times[at(actor.job)][actor.rank_class->stage.index()][b][step] +=
            std::llround(taken * static_cast<double>(message));
      };
      std::optional<std::size_t> before;  // compute
      for (std::size_t s = 0; s < steps.size(); ++s) {
        if (steps[s].kind == StepKind::compute) before = s;
        if (steps[s].kind != StepKind::collective || steps[s].stream != plan::Stream::exchange || !before) continue;
        const Transfers::Idle idle = transfers_.idle(actor.kinds[b][s]);
        lengthen(compute_, *before, idle.fullest);
        if (actor.mean != nullptr) lengthen(mean_, *before, idle.mean);
      }
    }
  }
}

// Class of the communicator in which the class's lowest rank executes this step.
int Machine::communicators_of(const Folded::Ranks& ranks, const JobOnCluster& job, const Step& step) const {
  const JobRoles& roles = traffic_.jobs[at(ranks.job)];
  int role = -1, rank = ranks.representative;
  if (step.kind == StepKind::copy) {
    role = roles.role_of_copy(step.stream, static_cast<int>(job.schedule->groups.size()));
  } else if (step.kind != StepKind::collective) {
    const bool sends = step.kind == StepKind::send;
    if (!sends) rank += step.peer * job.schedule->spec.mesh.ranks_per_stage();
    role = roles.role_of_peer(sends ? step.peer : -step.peer, static_cast<int>(job.schedule->groups.size()));
  } else {
    role = role_of(step.group);
  }
  const int communicator = roles.communicators[at(role)][at(rank)];
  ENSURE(communicator >= 0, "rank {} talks to nobody in role {}", rank, role);
  return folded_.class_of_communicator[at(communicator)];
}

// Equal messages of a class of communicators share a kind. A stack's price depends on the stream, too.
int Machine::kind_of(const Step& step, const RankClass& c, int communicators, std::optional<cost::Leg> leg) {
  constexpr int kWays = 4, kForFp8 = 3;
  const int way = leg ? 1 + static_cast<int>(*leg) : step.for_fp8 ? kForFp8 : 0;
  const int what = step.kind == StepKind::collective ? static_cast<int>(step.collective) * kWays + way
                   : step.accumulate                 ? -2
                                                     : -1;
  const auto [found, fresh] =
      known_.try_emplace({communicators, static_cast<int>(step.stream), what, step.message_bytes(c.buffers)}, 0);
  if (fresh) found->second = transfers_.add(step, c, communicators, leg);
  return found->second;
}

// -- the clock ----------------------------------------------------------------------------------------------------
std::optional<Picoseconds> Machine::next() {
  std::optional<Picoseconds> time = transfers_.next();
  if (!starts_.empty()) time = time ? std::min(*time, starts_.front().first) : starts_.front().first;
  return time;
}

void Machine::happen(Picoseconds time) {
  moved_.clear();
  for (const int m : transfers_.advance(time)) {
    Meeting& meeting = meetings_[at(m)];
    meeting.state = Meeting::State::ended;
    meeting.end = time;
    --under_way_[at(actors_[at(meeting.actors.front())].job)];
    moved_.insert(moved_.end(), meeting.actors.begin(), meeting.actors.end());
  }
  while (!starts_.empty() && starts_.front().first == time) {
    const int m = starts_.front().second;
    std::pop_heap(starts_.begin(), starts_.end(), std::greater<>());
    starts_.pop_back();
    transfers_.start(time, meetings_[at(m)].kind, m);
  }
  now_ = time;
  std::sort(moved_.begin(), moved_.end());
  moved_.erase(std::unique(moved_.begin(), moved_.end()), moved_.end());
  for (const int a : moved_) advance(actors_[at(a)]);
  for (std::size_t j = 0; j < jobs_.size(); ++j) join(static_cast<int>(j));
}

// All hosts of a job wait, and none of its messages is under way: they join the messages that others need by now.
void Machine::join(int job) {
  for (bool moved = true; moved && under_way_[at(job)] == 0;) {
    moved = false;
    for (Actor& actor : actors_) {
      if (actor.job != job || !waits(actor)) continue;
      attend(actor, true);
      moved |= advance(actor);
    }
  }
}

Replay Machine::result() {
  Replay r;
  r.makespan.assign(jobs_.size(), 0);
  for (const Actor& actor : actors_) {
    ENSURE(finished(actor), "stage {} stops at entry {}: the schedule was not checked", actor.rank_class->stage,
           actor.entry);
    r.makespan[at(actor.job)] = std::max(r.makespan[at(actor.job)], actor.totals.end);
  }
  for (Actor& actor : actors_) {
    const Folded::Ranks& ranks = folded_.ranks[at(actor.index)];
    actor.totals.waiting += r.makespan[at(actor.job)] - actor.totals.end;
    r.classes.push_back({ranks.job, ranks.stage, ranks.representative, ranks.count, std::move(actor.totals)});
  }
  r.links = traffic_.links;
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    r.carried.push_back(transfers_.carried(static_cast<int>(j)));
    std::stable_sort(notes_[j].begin(), notes_[j].end(), [](const plan::Span& a, const plan::Span& b) {
      return std::tie(a.rank, a.at) < std::tie(b.rank, b.at);
    });
  }
  r.spans = std::move(notes_);
  r.spans_left_out = left_out_;
  r.steps_walked = walked_;
  return r;
}

// -- one actor ----------------------------------------------------------------------------------------------------
bool Machine::runs_step(const Actor& /*actor*/, const Visit& visit) const {
  return visit.step->runs_in(training_step_);
}

void Machine::arrive(Actor& /*actor*/, const Visit& /*visit*/) {
  ++walked_;
}

Pending Machine::message(Actor& actor, const Visit& visit) {
  Pending p;
  static_cast<Visit&>(p) = visit;
  p.ready = actor.compute_free;
  const int communicators = actor.communicators[at(visit.block)][at(visit.at.step)];
  if (visit.step->kind == StepKind::collective || visit.step->kind == StepKind::copy) {
    p.key = {communicators, actor.ordinals[communicators]++, -1};
  } else {
    p.key = {communicators, visit.step->tag, visit.micro_batch};
  }
  actor.issued += (*actor.host)[at(visit.block)][at(visit.at.step)];
  return p;
}

// A sender need not attend a transfer; any other message that cannot overlap begins with the first wait.
bool Machine::may_start(const Actor& actor, const Pending& p) {
  return p.attended || p.step->kind == StepKind::send || actor.pricing->overlaps(p.step->stream);
}

// From now on the compute stream waits for the awaited messages: those that cannot overlap start here, together with
// the earlier messages on their streams. A waiting host also receives what is sent to it, but starts no collective that
// nobody needs yet, since it continues computing once the needed ones have ended. A message is also needed if one that
// starts here waits for it: a stage with only an embedding sends the result of its tensor group's sum. `joins`: so is a
// message for which another rank already waits.
void Machine::attend(Actor& actor, bool joins) {
  if (std::none_of(actor.messages.begin(), actor.messages.end(),
                   [&](const Pending& p) { return p.awaited && (!p.ended || p.end > actor.compute_free); }))
    return;  // what is awaited has long come
  std::array<bool, kStreams> followed{};
  std::vector<const Pending*> begun;
  const auto needed = [&](const Pending& p) {
    return p.awaited || (joins && gathering_.contains(p.key)) ||
           std::any_of(begun.begin(), begun.end(),
                       [&](const Pending* b) { return message_waits(uses(actor, *b), uses(actor, p)); });
  };
  for (auto p = actor.messages.rbegin(); p != actor.messages.rend(); ++p) {
    const auto stream = static_cast<std::size_t>(p->step->stream);
    const bool alone = p->step->kind == StepKind::collective || p->step->kind == StepKind::copy;
    if (p->ended || (!followed[stream] && alone && !needed(*p))) continue;
    followed[stream] = true;
    p->attended = true;
    if (p->started) continue;
    begun.push_back(&*p);
    if (p->step->kind != StepKind::send && !actor.pricing->overlaps(p->step->stream))
      p->ready = std::max({p->ready, actor.compute_free, now_});
  }
}

void Machine::compute(Actor& actor, const Visit& visit) {
  Picoseconds start = actor.compute_free;
  for (const Pending& p : actor.messages) {
    if (!p.awaited) continue;
    start = std::max(start, p.end);
    // On the host, frameworks wait for what another stage sends; everything else is only issued.
    if (p.step->stream != plan::Stream::pipeline_recv) continue;
    actor.issuing_counts |= actor.issued > p.end;
    actor.issued = std::max(actor.issued, p.end);
  }
  account_wait(actor, actor.compute_free, start);
  actor.issued += (*actor.host)[at(visit.block)][at(visit.at.step)];
  const Picoseconds alone = (*actor.compute)[at(visit.block)][at(visit.at.step)];
  const Picoseconds duration = std::max(alone, actor.issued - start);
  actor.issuing_counts |= duration > alone;
  const Picoseconds mean_alone = actor.mean ? (*actor.mean)[at(visit.block)][at(visit.at.step)] : alone;
  const Picoseconds mean = std::min(duration, std::max(mean_alone, actor.issued - start));
  actor.totals.compute[static_cast<std::size_t>(visit.step->phase)] += mean;
  actor.totals.fuller_compute += duration - mean;
  note(actor, visit.at, visit.micro_batch, actor.compute_free, start, start + duration);
  actor.compute_free = start + duration;
  actor.totals.end = std::max(actor.totals.end, actor.compute_free);
}

void Machine::end_step(Actor& actor) {
  Picoseconds end = actor.compute_free;
  for (const Pending& p : actor.messages) end = std::max(end, p.end);
  account_wait(actor, actor.compute_free, end);
  actor.compute_free = end;
}

// Messages that ended before the compute stream's present time can no longer delay it. A message from another stage is
// kept until its first use, where the host waits for it; the host may come to it before the device does.
bool Machine::past(const Actor& actor, const Pending& p) {
  return p.end <= actor.compute_free && (p.awaited || p.step->stream != plan::Stream::pipeline_recv);
}
void Machine::forget(const Pending& p) {
  if (--meetings_[at(p.meeting)].holders == 0) free_.push_back(p.meeting);
}

// A message is ready once the messages that it waits for, and the one before it on its stream, have ended.
void Machine::start(Actor& actor, Pending& p) {
  p.ready = std::max(p.ready, actor.stream_free[static_cast<std::size_t>(p.step->stream)]);
  for (const Pending& earlier : actor.messages) {
    if (&earlier == &p) break;
    if (earlier.end > p.ready && message_waits(uses(actor, p), uses(actor, earlier))) p.ready = earlier.end;
  }
  meet(actor, p);
}

void Machine::meet(Actor& actor, Pending& p) {
  const auto [found, fresh] = gathering_.try_emplace(p.key, -1);
  if (fresh) found->second = new_meeting(actor, p);
  p.meeting = found->second;
  Meeting& meeting = meetings_[at(p.meeting)];
  meeting.start = std::max(meeting.start, p.ready);
  meeting.actors.push_back(actor.index);
  if (static_cast<int>(meeting.actors.size()) < meeting.expected) return;
  meeting.state = Meeting::State::complete;
  ++under_way_[at(actor.job)];
  ENSURE(meeting.start >= now_, "a message of {} ps is announced at {} ps", meeting.start, now_);
  gathering_.erase(found);
  starts_.emplace_back(meeting.start, p.meeting);
  std::push_heap(starts_.begin(), starts_.end(), std::greater<>());
}

int Machine::new_meeting(const Actor& actor, const Pending& p) {
  if (free_.empty()) {
    free_.push_back(static_cast<int>(meetings_.size()));
    meetings_.emplace_back();
  }
  const int index = free_.back();
  free_.pop_back();
  Meeting& meeting = meetings_[at(index)];
  meeting.state = Meeting::State::gathering;
  meeting.kind = actor.kinds[at(p.block)][at(p.at.step)];
  meeting.expected = meeting.holders = folded_.communicators[at(std::get<0>(p.key))].participants;
  meeting.start = meeting.end = 0;
  meeting.actors.clear();
  return index;
}

bool Machine::ends(Actor& actor, Pending& p) {
  const Meeting& meeting = meetings_[at(p.meeting)];
  if (meeting.state != Meeting::State::ended) return false;
  p.start = meeting.start;
  p.end = meeting.end;
  actor.stream_free[static_cast<std::size_t>(p.step->stream)] = p.end;
  actor.totals.end = std::max(actor.totals.end, p.end);
  RankTotals::Message& total = actor.totals.messages[at(p.block)][at(p.at.step)];
  ++total.count;
  total.time += p.end - p.start;
  note(actor, p.at, p.micro_batch, p.ready, p.start, p.end);
  return true;
}

// Divides a wait from `from` to `to` (the present): the time that transfers cover is exposed communication, in the rest
// the rank waits for others. For a transfer still in flight, the part until now.
void Machine::account_wait(Actor& actor, Picoseconds from, Picoseconds to) {
  if (to <= from) return;
  struct Cover {
    Picoseconds start, end;
    const Pending* by;
  };
  std::vector<Cover> covers;
  for (const Pending& p : actor.messages) {
    if (!p.started) continue;
    const Meeting& meeting = meetings_[at(p.meeting)];
    if (meeting.state == Meeting::State::gathering) continue;
    const Picoseconds end = meeting.state == Meeting::State::ended ? meeting.end : to;
    if (end > from && meeting.start < to) covers.push_back({meeting.start, end, &p});
  }
  std::stable_sort(covers.begin(), covers.end(), [](const Cover& a, const Cover& b) { return a.start < b.start; });
  Picoseconds uncovered_from = from;
  for (const Cover& cover : covers) {
    const Picoseconds begin = std::max(uncovered_from, cover.start);
    const Picoseconds end = std::min(to, cover.end);
    if (end <= begin) continue;
    actor.totals.waiting += begin - uncovered_from;
    expose(actor, *cover.by, begin, end);
    uncovered_from = end;
  }
  actor.totals.waiting += std::max<Picoseconds>(0, to - uncovered_from);
}

// A wait for a transfer has three parts, in this order: the mean rank's, on an idle network; what the fullest rank adds
// to it; and what other traffic adds.
void Machine::expose(Actor& actor, const Pending& message, Picoseconds from, Picoseconds to) {
  const Meeting& meeting = meetings_[at(message.meeting)];
  const Transfers::Idle idle = transfers_.idle(meeting.kind);
  const Picoseconds mean = std::clamp(meeting.start + idle.mean, from, to);
  const Picoseconds alone = std::clamp(meeting.start + idle.fullest, from, to);
  RankTotals::Message& total = actor.totals.messages[at(message.block)][at(message.at.step)];
  actor.totals.exposed[static_cast<std::size_t>(message.step->stream)] += mean - from;
  actor.totals.fuller_messages += alone - mean;
  actor.totals.contention += to - alone;
  total.exposed += to - from;
  total.contention += to - alone;
}

void Machine::note(const Actor& actor, plan::StepRef where, std::int32_t micro_batch, Picoseconds ready,
                   Picoseconds start, Picoseconds end) {
  if (!actor.noted) return;
  if (noted_ >= most_spans_) {
    ++left_out_;
    return;
  }
  ++noted_;
  notes_[at(actor.job)].push_back(
      {actor.rank_class->representative, 0, where, micro_batch, seconds(ready), seconds(start), seconds(end)});
}

}  // namespace orrery::sim
