// Proves a schedule in three parts: each block against its buffers (Lives), each micro-batch through its blocks, and
// all classes together in an untimed run with rendezvous, where every send meets its receive or a deadlock shows.
#include "plan/schedule/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "base/index.h"
#include "models/operators.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check_server.h"
#include "plan/schedule/periods.h"

namespace orrery::plan {

namespace {

using base::at;

constexpr std::size_t kMostFindings = 20;

class Report {
 public:
  void fault(const char* code, std::string message) {
    if (found.size() < kMostFindings) found.push_back({base::Severity::error, code, {}, std::move(message), {}, {}});
  }
  base::Diagnostics found;
};

std::string place_text(const RankClass& c, const Block& block, std::size_t step) {
  const Step& s = block.steps[step];
  return fmt::format("stage {}, {} step {} ({}{})", c.stage, block.name, step, s.part,
                     s.layer >= 0 ? fmt::format(" of layer {}", s.layer) : "");
}

// -- one class: views, operands, births and deaths -------------------------------------------------------------------
class Lives {
 public:
  Lives(const Schedule& schedule, const RankClass& c, Report& report)
      : schedule_(schedule), class_(c), report_(report) {}

  void run() {
    for (std::size_t v = 0; v < class_.views.size(); ++v)
      if (!inside(class_.views[v]))
        report_.fault("S01", fmt::format("stage {}: view {} leaves its buffer", class_.stage, v));
    for (const Block& block : class_.blocks)
      for (std::size_t s = 0; s < block.steps.size(); ++s) operands(block, s);
    if (!report_.found.empty()) return;
    for (const std::int32_t micro_batch : representatives()) walk(micro_batch);
  }

 private:
  bool inside(const View& v) const {
    if (v.buffer < 0 || v.buffer >= static_cast<int>(class_.buffers.size()) || v.offset < 0 || v.elements < 0)
      return false;
    const std::int64_t copies = v.own ? schedule_.spec.shards_of(v.experts) : 1;
    return v.offset + v.elements * copies <= class_.buffers[at(v.buffer)].elements;
  }

  // A step's declared reads and writes are exactly what its ops or its message touch.
  void operands(const Block& block, std::size_t index) {
    const Step& step = block.steps[index];
    std::set<int> reads, writes;
    const auto note = [&](const std::vector<int>& views, std::set<int>& into) {
      for (int v : views) {
        if (v < 0) continue;
        if (v >= static_cast<int>(class_.views.size()))
          report_.fault("S01", fmt::format("{}: view {} does not exist", place_text(class_, block, index), v));
        else
          into.insert(class_.views[at(v)].buffer);
      }
    };
    for (const models::Op& op : step.ops) {
      note(op.in, reads);
      note(op.out, writes);
      if (const std::string fault = models::operand_fault(op); !fault.empty())
        report_.fault("S24", fmt::format("{}: {}", place_text(class_, block, index), fault));
    }
    if (step.kind != StepKind::compute && step.kind != StepKind::recv) reads.insert(step.source.buffer);
    if (step.counted.any()) note({step.counted.sent, step.counted.received}, reads);
    if (step.rows.any()) note({step.rows.list}, reads);
    if (step.kind != StepKind::compute && step.kind != StepKind::send) writes.insert(step.target.buffer);
    if (reads != std::set<int>(step.reads.begin(), step.reads.end()) ||
        writes != std::set<int>(step.writes.begin(), step.writes.end()))
      report_.fault("S02", fmt::format("{}: reads and writes differ from what its operands touch",
                                       place_text(class_, block, index)));
    if (step.kind != StepKind::compute) message(block, index);
    memories(block, index);
  }

  // A step works in one memory; a copy leads from one to the other of its stream. Which rows of tables one moves, the
  // host reads on the device.
  void memories(const Block& block, std::size_t index) {
    const Step& step = block.steps[index];
    const CopyDirection copies = direction_of(step.stream);
    const Space own = step.on_host ? Space::host : Space::device;
    const auto all_in = [&](const std::vector<int>& buffers, Space space) {
      return std::all_of(buffers.begin(), buffers.end(), [&](int b) { return class_.buffers[at(b)].space == space; });
    };
    const bool moves = step.kind == StepKind::copy;
    std::vector<int> values = step.reads;
    if (moves && step.rows.any())
      values.erase(std::remove(values.begin(), values.end(), class_.views[at(step.rows.list)].buffer), values.end());
    const bool right = moves == (copies.from != copies.to) && all_in(values, moves ? copies.from : own) &&
                       all_in(step.writes, moves ? copies.to : own) &&
                       (!step.accumulate || (moves && copies.to == Space::host)) &&
                       (!step.on_host || step.kind == StepKind::compute);
    if (!right)
      report_.fault("S20", fmt::format("{}: a buffer lies in another memory than the step works in",
                                       place_text(class_, block, index)));
  }

  void message(const Block& block, std::size_t index) {
    const Step& step = block.steps[index];
    const bool source = step.kind != StepKind::recv, target = step.kind != StepKind::send;
    if ((source && !inside(step.source)) || (target && !inside(step.target)))
      report_.fault("S01", fmt::format("{}: the message leaves its buffer", place_text(class_, block, index)));
    if (step.kind == StepKind::copy && step.source.elements != step.target.elements)
      report_.fault("S04", fmt::format("{}: a copy of {} elements into {}", place_text(class_, block, index),
                                       step.source.elements, step.target.elements));
    if (step.kind != StepKind::collective) return;
    if (step.group < 0 || step.group >= static_cast<int>(schedule_.groups.size())) {
      report_.fault("S03", fmt::format("{}: no such group", place_text(class_, block, index)));
      return;
    }
    const std::int64_t size = schedule_.groups[at(step.group)].size();
    const std::int64_t in = step.source.elements, out = step.target.elements;
    const bool fits = step.collective == CollectiveKind::all_gather       ? in * size == out
                      : step.collective == CollectiveKind::reduce_scatter ? in == out * size
                      : step.collective == CollectiveKind::all_to_all     ? in == out && in % size == 0
                                                                          : in == out;
    if (step.counted.any() && !counts_fit(step, size))
      report_.fault("S04", fmt::format("{}: counts are int32, as many for each of {} ranks, of runs within a slot",
                                       place_text(class_, block, index), size));
    if (!fits)
      report_.fault("S04", fmt::format("{}: {} of {} elements into {} over {} ranks", place_text(class_, block, index),
                                       name_of(step.collective), in, out, size));
  }

  bool counts_fit(const Step& step, std::int64_t ranks) const {
    const auto fits = [&](int index) {
      if (index < 0 || index >= static_cast<int>(class_.views.size())) return false;
      const View& v = class_.views[at(index)];
      return inside(v) && v.elements > 0 && v.elements % ranks == 0 &&
             class_.buffers[at(v.buffer)].dtype == models::DType::int32;
    };
    const Counted& c = step.counted;
    return step.collective == CollectiveKind::all_to_all && fits(c.sent) && fits(c.received) && c.unit > 0 &&
           step.source.elements / ranks % c.unit == 0 && c.expected > 0 && c.expected <= 1;
  }

  // Walks entries of this micro-batch and those without one, in program order.
  void walk(std::int32_t micro_batch) {
    std::vector<bool> alive(class_.buffers.size());
    std::vector<const Step*> born(class_.buffers.size());  // by which step
    for (std::size_t i = 0; i < alive.size(); ++i) alive[i] = class_.buffers[i].persistent;
    for (const std::int64_t place : entries_of(micro_batch, true)) {
      const Entry entry = class_.program[static_cast<std::size_t>(place)];
      const Block& block = class_.blocks[at(entry.block)];
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        const Step& step = block.steps[s];
        const auto must = [&](bool holds, const char* code, int index, const char* what) {
          if (!holds)
            report_.fault(code, fmt::format("{}: buffer {} {}", place_text(class_, block, s),
                                            class_.buffers[at(index)].name, what));
        };
        for (int b : step.births) {
          must(!alive[at(b)], "S05", b, "is born while it lives");
          alive[at(b)] = true;
          born[at(b)] = &step;
        }
        for (int b : step.reads) must(alive[at(b)], "S06", b, "is read while it does not live");
        for (int b : step.writes) must(alive[at(b)], "S06", b, "is written while it does not live");
        for (int b : step.deaths) {
          must(alive[at(b)] && !class_.buffers[at(b)].persistent, "S07", b, "dies without living, or for good");
          alive[at(b)] = false;
        }
        // A buffer that only some training steps give birth to is used only in these, and freed in all of them.
        for (const std::vector<int>* used : {&step.reads, &step.writes, &step.deaths})
          for (const int b : *used) {
            const Step* birth = born[at(b)];
            const bool within = !birth || (birth->from_step <= step.from_step && step.until_step <= birth->until_step);
            const bool same = !birth || (birth->from_step == step.from_step && birth->until_step == step.until_step);
            must(used == &step.deaths ? same : within, "S23", b,
                 "is used, or freed, in other training steps than it lives");
          }
      }
      for (std::size_t i = 0; i < alive.size(); ++i)
        if (alive[i] && !class_.buffers[i].persistent && !class_.buffers[i].per_micro_batch)
          report_.fault("S08", fmt::format("stage {}: buffer {} outlives block {}", class_.stage,
                                           class_.buffers[i].name, block.name));
    }
    for (std::size_t i = 0; i < alive.size(); ++i)
      if (alive[i] && !class_.buffers[i].persistent)
        report_.fault("S08", fmt::format("stage {}: buffer {} never dies", class_.stage, class_.buffers[i].name));
  }

  // Positions of a micro-batch's entries in the program, in order; `none`: also those without a micro-batch.
  std::vector<std::int64_t> entries_of(std::int32_t micro_batch, bool none) const {
    std::vector<std::int64_t> out;
    for (const Entries::Run& run : class_.program.runs())
      for (std::int64_t i = 0; i < run.length; ++i) {
        const std::int64_t index = run.first + i;
        const std::int32_t first = class_.program[static_cast<std::size_t>(index)].micro_batch;
        if (first < 0) {
          for (std::int64_t turn = 0; none && turn < run.count; ++turn) out.push_back(index + turn * run.length);
        } else if (first == micro_batch) {
          out.push_back(index);
        } else if (const std::int64_t ahead = micro_batch - first;
                   run.count > 1 && ahead > 0 && ahead % run.advance == 0 && ahead / run.advance < run.count) {
          out.push_back(index + ahead / run.advance * run.length);
        }
      }
    std::sort(out.begin(), out.end());
    return out;
  }

  // Micro-batches that may behave unlike those before them: where an entry of the program occurs for the first time, or
  // no longer. Between two such places a micro-batch behaves like the one that is a loop's advance before it.
  std::set<std::int32_t> unlike() const {
    std::set<std::int32_t> turning;
    std::int64_t at_a_time = 1;
    const std::int32_t all = micro_batches_of(class_);
    class_.program.each_kind([&](const Entry& entry, std::int64_t times, std::int32_t advance) {
      if (entry.micro_batch < 0) return;
      turning.insert(entry.micro_batch);
      turning.insert(Progression<Entry>::advanced(entry, advance, times - 1).micro_batch + 1);
      if (times > 1) at_a_time = std::min<std::int64_t>(all, std::lcm(at_a_time, std::int64_t{advance}));
    });
    std::set<std::int32_t> out;
    for (const std::int32_t first : turning)
      for (auto i = static_cast<std::int32_t>(at_a_time); i-- > 0;)
        if (first + i < all) out.insert(first + i);
    return out;
  }

  // Every micro-batch runs the same blocks, but in different orders where messages are posted at different times.
  // Returns one micro-batch for each order.
  std::vector<std::int32_t> representatives() {
    const auto plain = [&](std::int32_t block) {
      const std::int32_t of = class_.blocks[at(block)].variant_of;
      return of < 0 ? block : of;
    };
    std::vector<std::int32_t> out;
    std::set<std::vector<std::int32_t>> orders;
    // Micro-batches that enter a mirrored pipeline at its first end run through its first chunks, others through the
    // second.
    std::vector<std::int32_t> of_end[2];
    const std::int32_t enter_first = micro_batches_of(class_) / 2;
    for (const std::int32_t micro_batch : unlike()) {
      std::vector<std::int32_t> blocks;
      for (const std::int64_t index : entries_of(micro_batch, false))
        blocks.push_back(class_.program[static_cast<std::size_t>(index)].block);
      if (blocks.empty()) continue;
      if (orders.insert(blocks).second) out.push_back(micro_batch);
      for (std::int32_t& block : blocks) block = plain(block);
      std::sort(blocks.begin(), blocks.end());
      std::vector<std::int32_t>& like = of_end[schedule_.spec.mirrors() && micro_batch >= enter_first ? 1 : 0];
      if (like.empty()) like = blocks;
      // Asynchronous orders run variants of passes while a pipeline fills and once it is full.
      if (blocks != like && !schedule_.spec.asynchronous())
        report_.fault("S09", fmt::format("stage {}: micro-batch {} runs other blocks than micro-batch {}", class_.stage,
                                         micro_batch, &like == of_end ? 0 : enter_first));
    }
    return out;
  }

  const Schedule& schedule_;
  const RankClass& class_;
  Report& report_;
};

// -- all classes together --------------------------------------------------------------------------------------------
class WalkThrough {
 public:
  WalkThrough(const Schedule& schedule, Report& report) : schedule_(schedule), report_(report) {
    for (const RankClass& c : schedule.classes) {
      Actor actor;
      actor.rank_class = &c;
      for (const Group& group : schedule.groups) {
        std::set<int> stages;
        const int per_stage = schedule.spec.ranks_per_stage();
        for (int member : group.members(c.representative)) stages.insert(member / per_stage);
        actor.stages_of_group.push_back(static_cast<int>(stages.size()));
      }
      actor.collectives.assign(schedule.groups.size(), 0);
      actors_.push_back(std::move(actor));
    }
  }

  void run() {
    std::vector<const Entries*> programs;
    for (const Actor& actor : actors_) programs.push_back(&actor.rank_class->program);
    Periods periods(programs);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t a = 0; a < actors_.size(); ++a) moved |= advance(static_cast<int>(a));
      if (moved && periods.due(actors_[periods.leader()].entry)) look(periods);
    }
    for (const Actor& actor : actors_)
      if (actor.entry < actor.rank_class->program.size() || !quiet(actor)) stuck(actor);
    for (const auto& [key, meeting] : meetings_)
      if (meeting.present < meeting.expected)
        report_.fault("S10", fmt::format("{}: a partner never comes", where(meeting)));
  }

 private:
  struct Meeting {
    int present = 0, expected = 0;
    std::int64_t bytes = 0;
    const RankClass* first = nullptr;  ///< who came first, and with which step of which micro-batch
    const Step* step = nullptr;
    std::int32_t micro_batch = -1;
    int gone = 0;  ///< how many have seen that all are there
  };
  using Key = std::tuple<int, std::int64_t, std::int64_t, std::int64_t>;  // (type, a, b, c)
  struct Pending {
    const Step* step = nullptr;
    std::int32_t micro_batch = -1;
    bool announced = false;
    Key key{};
  };
  struct Actor {
    const RankClass* rank_class = nullptr;
    std::size_t entry = 0, step = 0;
    std::map<Stream, std::deque<Pending>> queues;
    std::vector<int> stages_of_group;
    std::vector<std::int64_t> collectives;
  };

  static bool quiet(const Actor& actor) {
    return std::all_of(actor.queues.begin(), actor.queues.end(), [](const auto& q) { return q.second.empty(); });
  }

  static bool touches(const Step& communication, std::int32_t communication_batch, const Step& compute,
                      std::int32_t batch, const RankClass& c) {
    if (!communication.deaths.empty()) return true;
    const auto same = [&](int buffer) {
      return !c.buffers[at(buffer)].per_micro_batch || communication_batch == batch;
    };
    const auto meets = [&](const std::vector<int>& mine, const std::vector<int>& theirs) {
      return std::any_of(mine.begin(), mine.end(),
                         [&](int b) { return same(b) && std::find(theirs.begin(), theirs.end(), b) != theirs.end(); });
    };
    return meets(communication.writes, compute.reads) || meets(communication.writes, compute.writes) ||
           meets(communication.reads, compute.writes) || meets(communication.reads, compute.deaths) ||
           meets(communication.writes, compute.deaths);
  }

  // Runs as far as possible without a partner; true if anything moved.
  bool advance(int index) {
    Actor& actor = actors_[at(index)];
    bool moved = settle(actor);
    while (actor.entry < actor.rank_class->program.size()) {
      const Entry entry = actor.rank_class->program[actor.entry];
      const Block& block = actor.rank_class->blocks[at(entry.block)];
      if (actor.step == block.steps.size()) {
        ++actor.entry;
        actor.step = 0;
        continue;
      }
      const Step& step = block.steps[actor.step];
      if (step.kind == StepKind::compute) {
        settle(actor);
        const bool blocked = std::any_of(actor.queues.begin(), actor.queues.end(), [&](const auto& queue) {
          return std::any_of(queue.second.begin(), queue.second.end(), [&](const Pending& p) {
            return touches(*p.step, p.micro_batch, step, entry.micro_batch, *actor.rank_class);
          });
        });
        if (blocked) return moved;
      } else {
        actor.queues[step.stream].push_back({&step, entry.micro_batch, false, key(index, step, entry.micro_batch)});
      }
      ++actor.step;
      moved = true;
    }
    return settle(actor) || moved;
  }

  Key key(int index, const Step& step, std::int32_t micro_batch) {
    Actor& actor = actors_[at(index)];
    if (step.kind == StepKind::copy) return {};
    if (step.kind != StepKind::collective) {
      const int other = index + step.peer;
      const std::int64_t from = step.kind == StepKind::send ? index : other;
      return {0, from, step.tag, micro_batch};
    }
    const std::int64_t ordinal = actor.collectives[at(step.group)]++;
    return {1, step.group, ordinal, schedule_.groups[at(step.group)].base(actor.rank_class->representative)};
  }

  // Announces the front of each stream and removes messages that have met their partners.
  bool settle(Actor& actor) {
    bool moved = false;
    for (auto& [stream, queue] : actor.queues) {
      while (!queue.empty()) {
        Pending& front = queue.front();
        const bool alone = front.step->kind == StepKind::copy || (front.step->kind == StepKind::collective &&
                                                                  actor.stages_of_group[at(front.step->group)] <= 1);
        if (alone) {  // all members are of this class and arrive together
          queue.pop_front();
          moved = true;
          continue;
        }
        const auto meeting = meetings_.try_emplace(front.key).first;
        if (!front.announced) announce(actor, front, meeting->second);
        if (meeting->second.present < meeting->second.expected) break;
        if (++meeting->second.gone == meeting->second.expected) meetings_.erase(meeting);
        queue.pop_front();
        moved = true;
      }
    }
    return moved;
  }

  void announce(const Actor& actor, Pending& pending, Meeting& meeting) {
    const Step& step = *pending.step;
    const std::int64_t bytes = step.message_bytes(actor.rank_class->buffers);
    pending.announced = true;
    if (meeting.present++ == 0) {
      meeting.expected = step.kind == StepKind::collective ? actor.stages_of_group[at(step.group)] : 2;
      meeting.bytes = bytes;
      meeting.first = actor.rank_class;
      meeting.step = &step;
      meeting.micro_batch = pending.micro_batch;
    } else if (meeting.bytes != bytes || std::string_view(word_of(*meeting.step)) != word_of(step)) {
      report_.fault("S11", fmt::format("{} of {} bytes meets {} of {} bytes on stage {}", where(meeting), meeting.bytes,
                                       word_of(step), bytes, actor.rank_class->stage));
    } else if (meeting.step->from_step != step.from_step || meeting.step->until_step != step.until_step) {
      report_.fault("S22", fmt::format("{} meets a partner on stage {} that runs in other training steps",
                                       where(meeting), actor.rank_class->stage));
    }
  }
  static const char* word_of(const Step& step) {
    return step.kind == StepKind::collective ? name_of(step.collective) : "message";
  }
  static std::string where(const Meeting& meeting) {
    return fmt::format("stage {}, {} ({}) of micro-batch {}", meeting.first->stage, meeting.step->part,
                       name_of(meeting.step->kind), meeting.micro_batch);
  }

  // -- skipped: micro-batches that repeat what earlier ones did
  void look(Periods& periods) {
    std::vector<std::size_t> entries;
    for (const Actor& actor : actors_) entries.push_back(actor.entry);
    if (periods.look(entries, state(periods)) == Periods::Seen::again) leap(periods.skip());
  }

  // Collectives are numbered relative to the first participant's count.
  std::vector<std::int64_t> state(const Periods& periods) const {
    constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
    std::vector<std::int64_t> out, counted(schedule_.groups.size(), 0);
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      const Actor& actor = actors_[a];
      const std::int32_t base = periods.base(a, actor.entry);
      out.push_back(static_cast<std::int64_t>(actor.step));
      for (std::size_t g = 0; g < counted.size(); ++g) {
        if (actor.stages_of_group[g] <= 1 || actor.collectives[g] == 0) continue;
        if (counted[g] == 0) counted[g] = actor.collectives[g];
        out.push_back(actor.collectives[g] - counted[g]);
      }
      for (const auto& [stream, queue] : actor.queues) {
        out.push_back(static_cast<std::int64_t>(queue.size()));
        for (const Pending& p : queue) {
          const bool numbered = p.step->kind == StepKind::collective && actor.stages_of_group[at(p.step->group)] > 1;
          out.insert(out.end(), {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(p.step)),
                                 p.micro_batch < 0 ? kNone : p.micro_batch - base, p.announced ? 1 : 0,
                                 numbered ? std::get<2>(p.key) - counted[at(p.step->group)] : kNone});
          const auto meeting = meetings_.find(p.key);
          const bool met = p.announced && meeting != meetings_.end();
          out.insert(out.end(), {met ? meeting->second.present : kNone, met ? meeting->second.gone : kNone});
        }
      }
    }
    return out;
  }

  void leap(const Skip& skip) {
    const auto later = [&](Key key) {
      if (std::get<0>(key) == 0 && std::get<3>(key) >= 0) std::get<3>(key) += skip.micro_batches;
      return key;
    };
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      actors_[a].entry += static_cast<std::size_t>(skip.entries[a]);
      for (auto& [stream, queue] : actors_[a].queues)
        for (Pending& p : queue) {
          if (p.micro_batch >= 0) p.micro_batch += skip.micro_batches;
          p.key = later(p.key);
        }
    }
    std::map<Key, Meeting> meetings;
    for (const auto& [key, meeting] : meetings_) {
      Meeting& moved = meetings[later(key)] = meeting;
      if (moved.micro_batch >= 0) moved.micro_batch += skip.micro_batches;
    }
    meetings_ = std::move(meetings);
  }

  void stuck(const Actor& actor) {
    if (actor.entry >= actor.rank_class->program.size()) return;
    const Entry& entry = actor.rank_class->program[actor.entry];
    const Block& block = actor.rank_class->blocks[at(entry.block)];
    report_.fault("S12", fmt::format("deadlock: {} of micro-batch {} waits for ever",
                                     place_text(*actor.rank_class, block, std::min(actor.step, block.steps.size() - 1)),
                                     entry.micro_batch));
  }

  const Schedule& schedule_;
  Report& report_;
  std::vector<Actor> actors_;
  std::map<Key, Meeting> meetings_;
};

// Training steps that do not close: checks a whole run, which fills, stays full and drains, and whether each
// mini-batch reads the same weights backward as forward.
base::Diagnostics check_run(const Schedule& schedule) {
  std::int64_t most = 1;
  for (const RankClass& c : schedule.classes) most = std::max<std::int64_t>(most, steps_in_flight(c));
  const std::int64_t steps = 2 * most + 2;
  const Schedule run = unrolled(schedule, steps, true).schedule;
  Report report;
  for (const RankClass& c : run.classes) Lives(run, c, report).run();
  if (!report.found.empty()) return report.found;
  WalkThrough(run, report).run();
  const std::vector<std::vector<int>> ages = staleness(schedule, steps);
  for (std::size_t c = 0; c < ages.size(); ++c)
    for (std::size_t t = 0; t < ages[c].size(); ++t)
      if (const int due = std::min(static_cast<int>(t), weight_delay(schedule.spec, schedule.classes[c].stage));
          ages[c][t] != due)
        report.fault("S13", fmt::format("stage {}: step {} reads {}, not weights that are {} updates old",
                                        schedule.classes[c].stage, t,
                                        ages[c][t] < 0 ? std::string("several versions of its weights")
                                                       : fmt::format("weights that are {} updates old", ages[c][t]),
                                        due));
  check_server(schedule, report.found);
  return report.found;
}

}  // namespace

base::Diagnostics check(const Schedule& schedule) {
  if (is_asynchronous(schedule)) return check_run(schedule);
  Report report;
  for (const RankClass& c : schedule.classes) Lives(schedule, c, report).run();
  if (report.found.empty()) WalkThrough(schedule, report).run();
  return report.found;
}

}  // namespace orrery::plan
