// Skips repeating parts of a replay. All that determines what comes next is recorded relative to the clock and to each
// actor's micro-batch; if that equals an earlier turn of the programs' loops, the machine repeats itself until a loop
// ends. So its clock and its sums jump there at once, to the same picosecond.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/index.h"
#include "sim/replay/machine.h"

namespace orrery::sim {

namespace {

using base::at;

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();

// A lower bound on when the stream of a future message can be what the message waits for.
Picoseconds earliest(const Actor& actor) {
  Picoseconds low = actor.compute_free;
  for (const Pending& p : actor.messages)
    if (!p.started) low = std::min(low, p.ready);
  return low;
}

void repeat(Picoseconds& sum, Picoseconds before, std::int64_t times) {
  sum += (sum - before) * times;
}
void repeat(std::vector<Picoseconds>& sums, const std::vector<Picoseconds>& before, std::int64_t times) {
  for (std::size_t i = 0; i < sums.size(); ++i) repeat(sums[i], before[i], times);
}
void repeat(RankTotals& totals, const RankTotals& before, std::int64_t times) {
  repeat(totals.compute, before.compute, times);
  repeat(totals.exposed, before.exposed, times);
  repeat(totals.contention, before.contention, times);
  repeat(totals.fuller_compute, before.fuller_compute, times);
  repeat(totals.fuller_messages, before.fuller_messages, times);
  repeat(totals.waiting, before.waiting, times);
  for (std::size_t b = 0; b < totals.messages.size(); ++b)
    for (std::size_t s = 0; s < totals.messages[b].size(); ++s) {
      RankTotals::Message& message = totals.messages[b][s];
      const RankTotals::Message& earlier = before.messages[b][s];
      repeat(message.count, earlier.count, times);
      repeat(message.time, earlier.time, times);
      repeat(message.exposed, earlier.exposed, times);
      repeat(message.contention, earlier.contention, times);
    }
}

}  // namespace

// Two jobs rarely return to a common state. Recording a span for every step requires walking them.
void Machine::prepare_to_skip(const ReplayOptions& options) {
  if (options.every_micro_batch || jobs_.size() != 1) return;
  if (spans_ && jobs_.front().schedule->steps() <= most_spans_) return;
  std::vector<const plan::Entries*> programs;
  for (const Actor& actor : actors_) programs.push_back(&actor.rank_class->program);
  periods_.emplace(std::move(programs));
}

void Machine::look() {
  (void)transfers_.next();  // updates rates to the flows in flight
  std::vector<std::size_t> entries;
  for (const Actor& actor : actors_) entries.push_back(actor.entry);
  switch (periods_->look(entries, state(), host_allows())) {
    case plan::Periods::Seen::nothing: return;
    case plan::Periods::Seen::kept:
      kept_ = sums();
      for (Actor& actor : actors_) actor.issuing_counts = false;
      return;
    case plan::Periods::Seen::again: leap(periods_->skip()); return;
  }
}

Sums Machine::sums() const {
  Sums s;
  s.now = now_;
  s.spans = noted_ + left_out_;
  s.started = transfers_.started();
  for (const Actor& actor : actors_) {
    s.totals.push_back(actor.totals);
    s.issued.push_back(actor.issued);
  }
  return s;
}

// A host that runs further and further ahead of its device never repeats a state, but does not affect the result.
bool Machine::host_allows() const {
  for (std::size_t a = 0; a < kept_.issued.size(); ++a) {
    const Picoseconds by = actors_[a].issued - kept_.issued[a], period = now_ - kept_.now;
    if (by != period && (actors_[a].issuing_counts || by > period)) return false;
  }
  return true;
}

std::vector<std::int64_t> Machine::state() const {
  std::vector<std::int64_t> out;
  std::map<int, std::int64_t> names;  // of meetings, in order of first occurrence
  std::map<int, std::int64_t> ordinals;
  for (const Actor& actor : actors_) {
    for (const auto& [communicators, ordinal] : actor.ordinals) {
      const std::int64_t first = ordinals.try_emplace(communicators, ordinal).first->second;
      out.push_back(communicators);
      out.push_back(ordinal - first);
    }
    add_actor(actor, ordinals, out, names);
  }
  std::vector<std::pair<Picoseconds, std::int64_t>> starts;
  for (const auto& [time, meeting] : starts_) starts.emplace_back(time - now_, names.at(meeting));
  std::sort(starts.begin(), starts.end());
  for (const auto& [time, name] : starts) out.insert(out.end(), {time, name});
  transfers_.state(
      now_, [&](int meeting) { return names.at(meeting); }, out);
  return out;
}

void Machine::add_actor(const Actor& actor, const std::map<int, std::int64_t>& ordinals, std::vector<std::int64_t>& out,
                        std::map<int, std::int64_t>& names) const {
  const std::int32_t base = periods_->base(at(actor.index), actor.entry);
  const Picoseconds low = earliest(actor);
  out.insert(out.end(), {actor.step, actor.compute_free - now_, actor.totals.end - now_,
                         static_cast<std::int64_t>(actor.messages.size())});
  for (const Picoseconds free : actor.stream_free) out.push_back(std::max(free, low) - now_);
  for (const Pending& p : actor.messages) {
    const auto [communicators, number, micro_batch] = p.key;
    const bool counted = p.step->kind == plan::StepKind::collective || p.step->kind == plan::StepKind::copy;
    out.insert(out.end(), {p.block, p.at.step, p.micro_batch < 0 ? kNone : p.micro_batch - base,
                           counted ? number - ordinals.at(communicators) : kNone, p.attended ? 1 : 0, p.ended ? 1 : 0,
                           p.started ? kNone : p.ready - now_});
    if (!p.started) continue;
    const auto [name, fresh] = names.try_emplace(p.meeting, static_cast<std::int64_t>(names.size()));
    out.push_back(name->second);
    if (!fresh) continue;
    const Meeting& meeting = meetings_[at(p.meeting)];
    out.insert(out.end(), {static_cast<std::int64_t>(meeting.state), meeting.kind, meeting.expected, meeting.holders,
                           static_cast<std::int64_t>(meeting.actors.size()), meeting.start - now_,
                           meeting.state == Meeting::State::ended ? meeting.end - now_ : kNone});
  }
}

// Ordinals stay unchanged: all participants of a meeting advance equally.
void Machine::leap(const plan::Skip& skip) {
  const Picoseconds by = (now_ - kept_.now) * skip.times;
  for (std::size_t a = 0; a < actors_.size(); ++a) {
    Actor& actor = actors_[a];
    const Picoseconds low = earliest(actor);
    for (Picoseconds& free : actor.stream_free)
      if (free > low) free += by;
    for (Pending& p : actor.messages) {
      if (p.micro_batch >= 0) p.micro_batch += skip.micro_batches;
      if (std::get<2>(p.key) >= 0) std::get<2>(p.key) += skip.micro_batches;
      p.at.entry += static_cast<std::int32_t>(skip.entries[a]);
      p.ready += by;
      p.start += by;
      p.end += by;
    }
    actor.entry += static_cast<std::size_t>(skip.entries[a]);
    actor.compute_free += by;
    repeat(actor.issued, kept_.issued[a], skip.times);
    repeat(actor.totals, kept_.totals[a], skip.times);
    actor.totals.end += by;
  }
  for (Meeting& meeting : meetings_) meeting.start += by, meeting.end += by;
  std::map<Key, int> gathering;
  for (const auto& [key, meeting] : gathering_) {
    const auto [communicators, number, micro_batch] = key;
    gathering[{communicators, number, micro_batch < 0 ? micro_batch : micro_batch + skip.micro_batches}] = meeting;
  }
  gathering_ = std::move(gathering);
  for (auto& [time, meeting] : starts_) time += by;
  transfers_.leap(by, kept_.started, skip.times);
  left_out_ += (noted_ + left_out_ - kept_.spans) * skip.times;
  now_ += by;
}

}  // namespace orrery::sim
