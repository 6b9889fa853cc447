// Proves a schedule in three parts: each block against its buffers (Lives), each micro-batch through its blocks, and
// all classes together in an untimed run with rendezvous, where every send meets its receive or a deadlock shows.
#include "plan/schedule/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "base/index.h"
#include "models/operators/operators.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check_server.h"
#include "plan/schedule/periods.h"
#include "plan/schedule/rendezvous.h"

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
                     s.layer ? fmt::format(" of layer {}", s.layer) : "");
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
    if (!v.buffer || v.buffer.index() >= class_.buffers.size() || v.offset < 0 || v.elements < 0) return false;
    return v.offset + v.elements * count_of(v.dealt, schedule_.spec) <= class_.buffers[v.buffer].elements;
  }

  // A step's declared reads and writes are exactly what its ops or its message touch.
  void operands(const Block& block, std::size_t index) {
    const Step& step = block.steps[index];
    std::set<BufferId> reads, writes;
    const auto note = [&](const std::vector<int>& views, std::set<BufferId>& into) {
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
    if (reads != std::set<BufferId>(step.reads.begin(), step.reads.end()) ||
        writes != std::set<BufferId>(step.writes.begin(), step.writes.end()))
      report_.fault("S02", fmt::format("{}: reads and writes differ from what its operands touch",
                                       place_text(class_, block, index)));
    if (step.kind != StepKind::compute) message(block, index);
    memories(block, index);
  }

  // A step works in one memory; a copy leads from one memory to the other, as its stream says. The host reads on the
  // device which rows of tables a copy moves.
  void memories(const Block& block, std::size_t index) {
    const Step& step = block.steps[index];
    const CopyDirection copies = direction_of(step.stream);
    const Space own = step.on_host ? Space::host : Space::device;
    const auto all_in = [&](const std::vector<BufferId>& buffers, Space space) {
      return std::all_of(buffers.begin(), buffers.end(), [&](BufferId b) { return class_.buffers[b].space == space; });
    };
    const bool moves = step.kind == StepKind::copy;
    std::vector<BufferId> values = step.reads;
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
    if (!step.group || step.group.index() >= schedule_.groups.size()) {
      report_.fault("S03", fmt::format("{}: no such group", place_text(class_, block, index)));
      return;
    }
    const std::int64_t size = schedule_.groups[step.group].size();
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
             class_.buffers[v.buffer].dtype == models::DType::int32;
    };
    const CountedRows& c = step.counted;
    return step.collective == CollectiveKind::all_to_all && fits(c.sent) && fits(c.received) && c.unit > 0 &&
           step.source.elements / ranks % c.unit == 0 && c.expected > 0 && c.expected <= 1;
  }

  // Walks entries of this micro-batch and those without one, in program order.
  void walk(std::int32_t micro_batch) {
    base::ById<BufferId, bool> alive(class_.buffers.size());
    base::ById<BufferId, const Step*> born(class_.buffers.size());  // by which step
    for (std::size_t i = 0; i < alive.size(); ++i) alive[i] = class_.buffers[i].persistent;
    for (const std::int64_t place : entries_of(micro_batch, true)) {
      const Entry entry = class_.program[static_cast<std::size_t>(place)];
      const Block& block = class_.blocks[at(entry.block)];
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        const Step& step = block.steps[s];
        const auto must = [&](bool holds, const char* code, BufferId index, const char* what) {
          if (!holds)
            report_.fault(
                code, fmt::format("{}: buffer {} {}", place_text(class_, block, s), class_.buffers[index].name, what));
        };
        for (BufferId b : step.births) {
          must(!alive[b], "S05", b, "is born while it lives");
          alive[b] = true;
          born[b] = &step;
        }
        for (BufferId b : step.reads) must(alive[b], "S06", b, "is read while it does not live");
        for (BufferId b : step.writes) must(alive[b], "S06", b, "is written while it does not live");
        for (BufferId b : step.deaths) {
          must(alive[b] && !class_.buffers[b].persistent, "S07", b, "dies without living, or for good");
          alive[b] = false;
        }
        // A buffer that only some training steps give birth to is used only in these, and freed in all of them.
        for (const std::vector<BufferId>* used : {&step.reads, &step.writes, &step.deaths})
          for (const BufferId b : *used) {
            const Step* birth = born[b];
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
      std::vector<std::int32_t>& like = of_end[schedule_.spec.stages.mirrors() && micro_batch >= enter_first ? 1 : 0];
      if (like.empty()) like = blocks;
      // Asynchronous orders run variants of passes while a pipeline fills and once it is full.
      if (blocks != like && !schedule_.spec.stages.asynchronous())
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
class WalkThrough : public Rendezvous<WalkThrough, MeetingRank<MeetingMessage>> {
 public:
  using Rank = MeetingRank<MeetingMessage>;

  WalkThrough(const Schedule& schedule, Report& report)
      : Rendezvous(schedule), report_(report), periods_(programs_of(schedule)) {
    for (std::size_t c = 0; c < schedule.classes.size(); ++c) ranks_.emplace_back(schedule, c);
  }

  void run() {
    go();
    for (const Rank& rank : ranks_)
      if (rank.entry < rank.rank_class->program.size()) stuck(rank);
    for (const auto& [key, meeting] : meetings_)
      if (meeting.present < meeting.expected)
        report_.fault("S10", fmt::format("{}: a partner never comes", where(meeting)));
  }

  void met(const Rank& rank, const Message& message, const Meeting& meeting) {
    const Step &step = *message.step, &other = *meeting.with.step;
    const std::int64_t bytes = step.message_bytes(rank.rank_class->buffers);
    const std::int64_t of_first = other.message_bytes(meeting.first->buffers);
    if (of_first != bytes || std::string_view(word_of(other)) != word_of(step))
      report_.fault("S11", fmt::format("{} of {} bytes meets {} of {} bytes on stage {}", where(meeting), of_first,
                                       word_of(step), bytes, rank.rank_class->stage));
    else if (other.from_step != step.from_step || other.until_step != step.until_step)
      report_.fault("S22", fmt::format("{} meets a partner on stage {} that runs in other training steps",
                                       where(meeting), rank.rank_class->stage));
  }

  // Skips micro-batches that repeat what earlier ones did.
  void round() {
    if (!periods_.due(ranks_[periods_.leader()].entry)) return;
    std::vector<std::size_t> entries;
    for (const Rank& rank : ranks_) entries.push_back(rank.entry);
    if (periods_.look(entries, state()) == Periods::Seen::again) leap(periods_.skip());
  }

 private:
  static std::vector<const Entries*> programs_of(const Schedule& schedule) {
    std::vector<const Entries*> out;
    for (const RankClass& c : schedule.classes) out.push_back(&c.program);
    return out;
  }
  static const char* word_of(const Step& step) {
    return step.kind == StepKind::collective ? name_of(step.collective) : "message";
  }
  static std::string where(const Meeting& meeting) {
    return fmt::format("stage {}, {} ({}) of micro-batch {}", meeting.first->stage, meeting.with.step->part,
                       name_of(meeting.with.step->kind), meeting.with.micro_batch);
  }

  // All that decides what follows. Collectives are numbered relative to the first participant's count.
  std::vector<std::int64_t> state() const {
    constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
    std::vector<std::int64_t> out;
    std::map<std::pair<GroupId, Stream>, std::int64_t> counted;
    for (const Rank& rank : ranks_) {
      const std::int32_t base = periods_.base(at(rank.index), rank.entry);
      out.push_back(rank.step);
      for (const auto& [of, count] : rank.collectives)
        out.push_back(count - counted.try_emplace(of, count).first->second);
      for (const Message& m : rank.messages) {
        if (m.ended) continue;
        const bool numbered = m.key && m.step->kind == StepKind::collective;
        out.insert(out.end(), {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(m.step)),
                               m.micro_batch < 0 ? kNone : m.micro_batch - base, m.started ? 1 : 0,
                               numbered ? std::get<4>(*m.key) - counted.at({m.step->group, m.step->stream}) : kNone});
        const auto meeting = m.started && m.key ? meetings_.find(*m.key) : meetings_.end();
        const bool met = meeting != meetings_.end();
        out.insert(out.end(), {met ? meeting->second.present : kNone, met ? meeting->second.gone : kNone});
      }
      out.push_back(kNone);
    }
    return out;
  }

  void leap(const Skip& skip) {
    const auto later = [&](MeetingKey key) {
      if (std::get<0>(key) == 0 && std::get<4>(key) >= 0) std::get<4>(key) += skip.micro_batches;
      return key;
    };
    const auto move_on = [&](Visit& visit) {
      if (visit.micro_batch >= 0) visit.micro_batch += skip.micro_batches;
    };
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].entry += static_cast<std::size_t>(skip.entries[r]);
      for (Message& m : ranks_[r].messages) {
        move_on(m);
        if (m.key) m.key = later(*m.key);
      }
    }
    std::map<MeetingKey, Meeting> meetings;
    for (const auto& [key, meeting] : meetings_) move_on((meetings[later(key)] = meeting).with);
    meetings_ = std::move(meetings);
  }

  void stuck(const Rank& rank) {
    const Entry& entry = rank.rank_class->program[rank.entry];
    report_.fault("S12",
                  fmt::format("deadlock: {} of micro-batch {} waits for ever",
                              place_text(*rank.rank_class, rank.rank_class->blocks[at(entry.block)], at(rank.step)),
                              entry.micro_batch));
  }

  Report& report_;
  Periods periods_;
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

base::Diagnostics check_class(const Schedule& schedule, const RankClass& rank_class) {
  Report report;
  if (!schedule.spec.stages.asynchronous() && !schedule.spec.states.has_server())
    Lives(schedule, rank_class, report).run();
  return report.found;
}

base::Diagnostics check(const Schedule& schedule) {
  if (is_asynchronous(schedule)) return check_run(schedule);
  Report report;
  for (const RankClass& c : schedule.classes) Lives(schedule, c, report).run();
  if (report.found.empty()) WalkThrough(schedule, report).run();
  return report.found;
}

}  // namespace orrery::plan
