// Replay of a schedule. Each class is an Actor that walks its program. A message is pending from its place in the
// program until its partners have arrived and its transfer has ended; a compute step first waits for the pending
// messages that it conflicts with. Because an actor's past never depends on another's future, actors can be advanced in
// any order until nobody moves; times come out the same.
#include "sim/replay.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/ensure.h"

namespace orrery::sim {

namespace {

using plan::Block;
using plan::Entry;
using plan::RankClass;
using plan::Schedule;
using plan::Step;
using plan::StepKind;
using plan::Stream;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

Picoseconds picoseconds(base::Seconds t) {
  return static_cast<Picoseconds>(std::llround(t.value * 1e12));
}
double seconds(Picoseconds t) {
  return static_cast<double>(t) * 1e-12;
}

// Messages that meet: the same key on every participant. (0, from stage, tag, micro-batch) or (1, group, ordinal, 0).
using Key = std::tuple<int, std::int64_t, std::int64_t, std::int64_t>;

struct Meeting {
  int present = 0, expected = 0;
  Picoseconds start = 0;
};

struct Pending {
  const Step* step = nullptr;
  std::int32_t micro_batch = -1;
  plan::StepRef at;
  int block = 0;
  Key key{};
  bool alone = false;      // every member is of this class
  bool attended = false;   // the compute stream waits for it, or for a later message of its stream
  bool announced = false;  // takes part in its meeting
  bool done = false;       // start and end are known
  Picoseconds ready = 0, start = 0, end = 0;
};

// What one step of one block costs and conflicts with; the same for every micro-batch.
struct Cost {
  Picoseconds duration = 0;
};

struct Actor {
  const RankClass* rank_class = nullptr;
  std::vector<std::vector<Cost>> costs;  // by block, step
  std::vector<int> stages_of_group;
  std::vector<std::int64_t> ordinals;
  std::size_t entry = 0;
  int step = 0;
  Picoseconds compute_free = 0;
  std::vector<Picoseconds> stream_free = std::vector<Picoseconds>(5, 0);
  std::deque<Pending> pending;  // program order
  ClassTotals totals;
};

// Whether a compute step must wait for a message before it in the program (rule 3 of plan/schedule.h).
bool conflicts(const Pending& message, const Step& compute, std::int32_t micro_batch, const RankClass& c) {
  if (!message.step->deaths.empty()) return true;
  const auto meets = [&](const std::vector<int>& mine, const std::vector<int>& theirs) {
    for (int b : mine)
      if ((!c.buffers[at(b)].per_micro_batch || message.micro_batch == micro_batch) &&
          std::find(theirs.begin(), theirs.end(), b) != theirs.end())
        return true;
    return false;
  };
  const Step& m = *message.step;
  return meets(m.writes, compute.reads) || meets(m.writes, compute.writes) || meets(m.writes, compute.deaths) ||
         meets(m.reads, compute.writes) || meets(m.reads, compute.deaths);
}

class Machine {
 public:
  Machine(const Schedule& schedule, const cost::Pricing& pricing, bool spans)
      : schedule_(schedule), pricing_(pricing), spans_(spans) {
    for (const RankClass& c : schedule.classes) actors_.push_back(make_actor(c));
  }

  Replay run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t a = 0; a < actors_.size(); ++a) moved |= advance(static_cast<int>(a));
    }
    Replay result;
    for (Actor& actor : actors_) {
      ENSURE(actor.entry == actor.rank_class->program.size() && actor.pending.empty(),
             "stage {} stops at entry {}: the schedule was not checked", actor.rank_class->stage, actor.entry);
      result.makespan = std::max(result.makespan, actor.totals.end);
    }
    for (Actor& actor : actors_) {
      actor.totals.bubble += result.makespan - actor.totals.end;
      result.classes.push_back(std::move(actor.totals));
    }
    std::stable_sort(notes_.begin(), notes_.end(), [](const plan::Span& a, const plan::Span& b) {
      return std::tie(a.rank, a.at) < std::tie(b.rank, b.at);
    });
    result.spans = std::move(notes_);
    return result;
  }

 private:
  Actor make_actor(const RankClass& c) {
    Actor actor;
    actor.rank_class = &c;
    const int per_stage = schedule_.spec.data * schedule_.spec.tensor;
    std::vector<std::vector<int>> members;
    for (const plan::Group& group : schedule_.groups) {
      members.push_back(group.members(c.representative));
      std::set<int> stages;
      for (int rank : members.back()) stages.insert(rank / per_stage);
      actor.stages_of_group.push_back(static_cast<int>(stages.size()));
    }
    actor.ordinals.assign(schedule_.groups.size(), 0);
    actor.totals.compute.assign(8, 0);
    actor.totals.exposed.assign(5, 0);
    for (const Block& block : c.blocks) {
      actor.totals.messages.emplace_back(block.steps.size());
      std::vector<Cost> costs;
      for (const Step& step : block.steps) costs.push_back({picoseconds(duration(c, step, members))});
      actor.costs.push_back(std::move(costs));
    }
    return actor;
  }

  base::Seconds duration(const RankClass& c, const Step& step, const std::vector<std::vector<int>>& members) const {
    const int neighbour = c.representative + step.peer * schedule_.spec.data * schedule_.spec.tensor;
    switch (step.kind) {
      case StepKind::compute: return pricing_.compute_time(step);
      case StepKind::collective: return pricing_.collective_time(step, c.buffers, members[at(step.group)]);
      case StepKind::send: return pricing_.send_time(step, c.buffers, c.representative, neighbour);
      case StepKind::recv: return pricing_.send_time(step, c.buffers, neighbour, c.representative);
    }
    return {};
  }

  // Runs an actor until it needs a partner that has not come; true when anything moved.
  bool advance(int index) {
    Actor& actor = actors_[at(index)];
    bool moved = settle(actor);
    const std::vector<Entry>& program = actor.rank_class->program;
    while (actor.entry < program.size()) {
      const Entry& entry = program[actor.entry];
      const Block& block = actor.rank_class->blocks[at(entry.block)];
      if (at(actor.step) == block.steps.size()) {
        ++actor.entry;
        actor.step = 0;
        continue;
      }
      const Step& step = block.steps[at(actor.step)];
      if (step.kind == StepKind::compute) {
        if (!compute(actor, entry, step)) return moved;
      } else {
        issue(index, entry, step);
      }
      ++actor.step;
      moved = true;
    }
    return drain(actor) || moved;
  }

  void issue(int index, const Entry& entry, const Step& step) {
    Actor& actor = actors_[at(index)];
    Pending p;
    p.step = &step;
    p.micro_batch = entry.micro_batch;
    p.at = {static_cast<std::int32_t>(actor.entry), actor.step};
    p.block = entry.block;
    p.ready = actor.compute_free;
    if (step.kind == StepKind::collective) {
      p.alone = actor.stages_of_group[at(step.group)] <= 1;
      p.key = {1, step.group, actor.ordinals[at(step.group)]++, 0};
    } else {
      const int from = step.kind == StepKind::send ? actor.rank_class->stage : actor.rank_class->stage + step.peer;
      p.key = {0, from, step.tag, entry.micro_batch};
    }
    actor.pending.push_back(p);
    // A sender need not attend a transfer; everything else that cannot overlap begins with the first wait.
    if (step.kind == StepKind::send || pricing_.overlaps(step.stream)) settle(actor);
  }

  bool compute(Actor& actor, const Entry& entry, const Step& step) {
    Picoseconds start = actor.compute_free;
    attend(actor, [&](const Pending& p) { return conflicts(p, step, entry.micro_batch, *actor.rank_class); });
    settle(actor);
    for (const Pending& p : actor.pending) {
      if (!conflicts(p, step, entry.micro_batch, *actor.rank_class)) continue;
      if (!p.done) return false;
      start = std::max(start, p.end);
    }
    account_wait(actor, actor.compute_free, start);
    const Picoseconds duration = actor.costs[at(entry.block)][at(actor.step)].duration;
    actor.totals.compute[static_cast<std::size_t>(step.phase)] += duration;
    note(actor, {static_cast<std::int32_t>(actor.entry), actor.step}, entry.micro_batch, actor.compute_free, start,
         start + duration);
    actor.compute_free = start + duration;
    actor.totals.end = std::max(actor.totals.end, actor.compute_free);
    forget(actor);
    return true;
  }

  // The compute stream waits from now on for the messages that `needed` picks: those that cannot overlap take part from
  // here, and so do the messages before them on their streams. A host that waits also takes what is sent to it; but it
  // starts no collective that nobody needs yet, for it computes again as soon as the needed ones have ended.
  template <class Needed>
  void attend(Actor& actor, const Needed& needed) {
    if (std::none_of(actor.pending.begin(), actor.pending.end(), needed)) return;
    std::vector<bool> followed(5, false);
    for (auto p = actor.pending.rbegin(); p != actor.pending.rend(); ++p) {
      const auto stream = static_cast<std::size_t>(p->step->stream);
      if (!followed[stream] && !needed(*p) && p->step->kind == StepKind::collective) continue;
      followed[stream] = true;
      p->attended = true;
      if (!p->announced && p->step->kind != StepKind::send && !pricing_.overlaps(p->step->stream))
        p->ready = std::max(p->ready, actor.compute_free);
    }
  }

  // Announces what may take part, and gives start and end to what has met its partners. In stream order.
  bool settle(Actor& actor) {
    bool moved = false;
    std::vector<bool> stalled(5, false);
    for (Pending& p : actor.pending) {
      const auto stream = static_cast<std::size_t>(p.step->stream);
      if (p.done || stalled[stream]) continue;
      if (!p.announced) {
        const bool may = p.attended || p.step->kind == StepKind::send || pricing_.overlaps(p.step->stream);
        const std::optional<Picoseconds> inputs = inputs_ready(actor, p);
        if (!may || !inputs) {
          stalled[stream] = true;
          continue;
        }
        p.ready = std::max({p.ready, actor.stream_free[stream], *inputs});
        p.announced = true;
        moved = true;
        if (!p.alone) meet(actor, p);
      }
      if (!resolve(actor, p))
        stalled[stream] = true;
      else
        moved = true;
    }
    return moved;
  }

  // When everything that earlier messages of other streams write and this one reads has arrived; nothing if unknown.
  static std::optional<Picoseconds> inputs_ready(const Actor& actor, const Pending& p) {
    Picoseconds when = 0;
    for (const Pending& earlier : actor.pending) {
      if (&earlier == &p) break;
      bool feeds = false;
      for (int b : earlier.step->writes)
        feeds |= std::find(p.step->reads.begin(), p.step->reads.end(), b) != p.step->reads.end() &&
                 (!actor.rank_class->buffers[at(b)].per_micro_batch || earlier.micro_batch == p.micro_batch);
      if (!feeds) continue;
      if (!earlier.done) return std::nullopt;
      when = std::max(when, earlier.end);
    }
    return when;
  }

  void meet(const Actor& actor, const Pending& p) {
    Meeting& meeting = meetings_[p.key];
    meeting.expected = p.step->kind == StepKind::collective ? actor.stages_of_group[at(p.step->group)] : 2;
    meeting.start = std::max(meeting.start, p.ready);
    ++meeting.present;
  }

  bool resolve(Actor& actor, Pending& p) {
    p.start = p.ready;
    if (!p.alone) {
      const Meeting& meeting = meetings_[p.key];
      if (meeting.present < meeting.expected) return false;
      p.start = meeting.start;
    }
    p.end = p.start + actor.costs[at(p.block)][at(p.at.step)].duration;
    p.done = true;
    actor.stream_free[static_cast<std::size_t>(p.step->stream)] = p.end;
    actor.totals.end = std::max(actor.totals.end, p.end);
    ClassTotals::Message& total = actor.totals.messages[at(p.block)][at(p.at.step)];
    ++total.count;
    total.time += p.end - p.start;
    note(actor, p.at, p.micro_batch, p.ready, p.start, p.end);
    return true;
  }

  // Of a wait from `from` to `to`: what transfers cover is exposed communication, the rest is bubble.
  void account_wait(Actor& actor, Picoseconds from, Picoseconds to) {
    Picoseconds uncovered_from = from;
    std::vector<const Pending*> done;
    for (const Pending& p : actor.pending)
      if (p.done && p.end > from && p.start < to) done.push_back(&p);
    std::stable_sort(done.begin(), done.end(), [](const Pending* a, const Pending* b) { return a->start < b->start; });
    for (const Pending* p : done) {
      const Picoseconds begin = std::max(uncovered_from, p->start);
      const Picoseconds end = std::min(to, p->end);
      if (end <= begin) continue;
      actor.totals.bubble += begin - uncovered_from;
      actor.totals.exposed[static_cast<std::size_t>(p->step->stream)] += end - begin;
      actor.totals.messages[at(p->block)][at(p->at.step)].exposed += end - begin;
      uncovered_from = end;
    }
    actor.totals.bubble += std::max<Picoseconds>(0, to - uncovered_from);
  }

  // Messages that ended before the compute stream's present can no longer delay it.
  static void forget(Actor& actor) {
    std::erase_if(actor.pending, [&](const Pending& p) { return p.done && p.end <= actor.compute_free; });
  }

  // After the last step: what is still under way is waited for.
  bool drain(Actor& actor) {
    if (actor.pending.empty()) return false;
    attend(actor, [](const Pending&) { return true; });
    settle(actor);
    for (const Pending& p : actor.pending)
      if (!p.done) return false;
    Picoseconds end = actor.compute_free;
    for (const Pending& p : actor.pending) end = std::max(end, p.end);
    account_wait(actor, actor.compute_free, end);
    actor.compute_free = end;
    actor.pending.clear();
    return true;
  }

  void note(const Actor& actor, plan::StepRef where, std::int32_t micro_batch, Picoseconds ready, Picoseconds start,
            Picoseconds end) {
    if (!spans_) return;
    notes_.push_back(
        {actor.rank_class->representative, 0, where, micro_batch, seconds(ready), seconds(start), seconds(end)});
  }

  const Schedule& schedule_;
  const cost::Pricing& pricing_;
  bool spans_;
  std::vector<Actor> actors_;
  std::map<Key, Meeting> meetings_;
  std::vector<plan::Span> notes_;
};

}  // namespace

Replay replay(const Schedule& schedule, const cost::Pricing& pricing, bool spans) {
  return Machine(schedule, pricing, spans).run();
}

}  // namespace orrery::sim
