// Abstract ranks in real memory: where buffers lie, which messages are under way, who waits for whom.
#include "plan/schedule/rehearse.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::plan {

namespace {

using base::at;

/// Which instance of a buffer: its micro-batch and training step.
struct Instance {
  std::int32_t micro_batch = -1;
  std::int64_t step = 0;
};

struct Range {
  Space space = Space::device;
  std::int64_t begin = 0, end = 0;
  bool writes = false;
};

bool conflict(const Range& a, const Range& b) {
  return (a.writes || b.writes) && a.space == b.space && a.begin < b.end && b.begin < a.end;
}
bool conflict(const std::vector<Range>& some, const std::vector<Range>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Range& a) {
    return std::any_of(others.begin(), others.end(), [&](const Range& b) { return conflict(a, b); });
  });
}

/// (type, sender or group, tag or stream, receiver or base, number)
using Key = std::tuple<int, int, int, int, std::int64_t>;

struct Message {
  const Step* step = nullptr;
  Instance of;
  std::int64_t number = 0;  ///< in program order
  std::vector<Range> ranges;
  bool started = false;
  std::optional<Key> key;  ///< none: ends by itself
};

/// Offsets of the instances of a class's buffers, as the executor's arena assigns them.
class Memory {
 public:
  Memory(const RankClass& c, const Placement& placement) : class_(c), placement_(placement) {
    micro_batches_ = micro_batches_of(c);
    in_flight_ = steps_in_flight(c);
    for (std::size_t i = 0; i < c.buffers.size(); ++i)
      for (int version = 0; c.buffers[i].persistent && version < c.buffers[i].versions; ++version)
        held_[{static_cast<int>(i), version}] =
            placement.persistent.at(i) + version * ((c.buffers[i].bytes() + kAlignment - 1) / kAlignment * kAlignment);
  }

  [[nodiscard]] std::int32_t micro_batches() const { return micro_batches_; }
  void begin_step() { cursor_ = 0; }
  /// Births must come in the placement's order of steps.
  void birth(const StepRef& where, int buffer, const Instance& of) {
    const Births& births = placement_.births;
    while (cursor_ < births.size() && births[cursor_].at < where) ++cursor_;
    for (std::size_t i = cursor_; i < births.size(); ++i) {
      const Placed place = births[i];
      if (place.at != where) break;
      if (place.buffer != buffer) continue;
      const std::int64_t turn = place.ring == 1 ? 0 : (of.step * micro_batches_ + of.micro_batch) % place.ring;
      held_[slot(buffer, of)] = place.offset + turn * place.stride;
      return;
    }
    ENSURE(false, "no place for buffer {}", class_.buffers[at(buffer)].name);
  }
  void death(int buffer, const Instance& of) { held_.erase(slot(buffer, of)); }
  [[nodiscard]] Range range(int buffer, const Instance& of, bool writes) const {
    const Buffer& b = class_.buffers[at(buffer)];
    const auto held = held_.find(slot(buffer, of));
    const std::int64_t begin = held == held_.end() ? 0 : held->second;
    return {b.space, begin, begin + b.bytes(), writes};
  }

 private:
  // A buffer, and which of its instances.
  using Slot = std::pair<int, std::int64_t>;
  struct HashOfSlot {
    std::size_t operator()(const Slot& s) const {
      return std::hash<std::int64_t>()(s.second * (std::int64_t{1} << 20) + s.first);
    }
  };
  [[nodiscard]] Slot slot(int buffer, const Instance& of) const {
    const Buffer& b = class_.buffers[at(buffer)];
    return {buffer, b.per_micro_batch ? of.step % in_flight_ * micro_batches_ + of.micro_batch : of.step % b.versions};
  }

  const RankClass& class_;
  const Placement& placement_;
  std::int32_t micro_batches_ = 1;
  int in_flight_ = 1;
  std::unordered_map<Slot, std::int64_t, HashOfSlot> held_;  ///< offsets of live instances
  std::size_t cursor_ = 0;
};

struct Meeting {
  int started = 0, ended = 0;
};

struct Actor {
  Actor(const RankClass& rank_class, const Placement& placement) : c(&rank_class), memory(rank_class, placement) {}
  const RankClass* c;
  Memory memory;
  std::int64_t training_step = 0;
  std::size_t entry = 0, step = 0;
  bool born = false;  ///< whether the step's births are done
  std::array<std::deque<Message>, kStreams> queues;
  std::int64_t next = 0;
  int pending = 0, freeing = 0;
  std::vector<int> stages_of_group;
  std::map<std::pair<int, Stream>, std::int64_t> collectives;
};

class Rehearsal {
 public:
  /// `first`: the training step of the run with which the walk starts.
  Rehearsal(const Schedule& schedule, const std::vector<Placement>& placements, std::int64_t first)
      : schedule_(schedule), first_(first) {
    ENSURE(placements.size() == schedule.classes.size(), "{} placements of {} classes", placements.size(),
           schedule.classes.size());
    std::int64_t most = 1;
    for (std::size_t i = 0; i < placements.size(); ++i) {
      const RankClass& c = schedule.classes[i];
      Actor& actor = actors_.emplace_back(c, placements[i]);
      for (const Group& group : schedule.groups) {
        std::set<int> stages;
        for (const int member : group.members(c.representative))
          stages.insert(member / schedule.spec.ranks_per_stage());
        actor.stages_of_group.push_back(static_cast<int>(stages.size()));
      }
      most = std::max<std::int64_t>(most, steps_in_flight(c));
    }
    steps_ = most > 1 ? 2 * most + 2 : 1;  // steps that fill, that are full, that drain
  }

  base::Diagnostics run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t a = 0; a < actors_.size(); ++a) moved |= advance(static_cast<int>(a));
    }
    base::Diagnostics found;
    for (Actor& actor : actors_)
      if (actor.training_step < steps_) found.push_back({base::Severity::error, "S21", {}, stopped(actor), {}, {}});
    return found;
  }

 private:
  [[nodiscard]] static const Block& block_of(const Actor& actor) {
    return actor.c->blocks[at(actor.c->program[actor.entry].block)];
  }
  [[nodiscard]] static Instance instance(const Actor& actor) {
    const Entry& entry = actor.c->program[actor.entry];
    return {entry.micro_batch, actor.training_step + entry.ahead};
  }

  // Runs as far as possible without another rank; true if anything moved.
  bool advance(int index) {
    Actor& actor = actors_[at(index)];
    bool moved = settle(index);
    while (actor.training_step < steps_) {
      if (actor.entry == actor.c->program.size()) {
        if (actor.pending > 0) return moved;
        ++actor.training_step;
        actor.entry = 0;
        actor.memory.begin_step();
        moved = true;
        continue;
      }
      const Entry& entry = actor.c->program[actor.entry];
      const bool left_out = (entry.opening && actor.training_step > 0) || actor.training_step + entry.ahead >= steps_;
      if (left_out || actor.step == block_of(actor).steps.size()) {
        ++actor.entry;
        actor.step = 0;
        continue;
      }
      const Step& step = block_of(actor).steps[actor.step];
      if (!step.runs_in(first_ + actor.training_step + entry.ahead)) {
        ++actor.step;
        continue;
      }
      give_birth(actor, step);
      if (step.kind == StepKind::compute) {
        if (actor.pending > 0 && obstacle(actor, step) != nullptr) {
          if (!settle(index) || obstacle(actor, step) != nullptr) return moved;
        }
      } else {
        submit(index, step);
        settle(index);
      }
      for (const int buffer : step.deaths) actor.memory.death(buffer, instance(actor));
      ++actor.step;
      actor.born = false;
      moved = true;
    }
    return moved;
  }

  static void give_birth(Actor& actor, const Step& step) {
    if (actor.born) return;
    const StepRef where{static_cast<std::int32_t>(actor.entry), static_cast<std::int32_t>(actor.step)};
    for (const int buffer : step.births) actor.memory.birth(where, buffer, instance(actor));
    actor.born = true;
  }

  static std::vector<Range> touched(const Actor& actor, const Step& step) {
    std::vector<Range> out;
    const Instance of = instance(actor);
    for (const int buffer : step.reads) out.push_back(actor.memory.range(buffer, of, false));
    for (const int buffer : step.writes) out.push_back(actor.memory.range(buffer, of, true));
    for (const int buffer : step.births) out.push_back(actor.memory.range(buffer, of, true));
    if (step.kind == StepKind::compute)
      for (const int buffer : step.deaths) out.push_back(actor.memory.range(buffer, of, true));
    return out;
  }

  // The message that a compute step waits for; none: it may run.
  static const Message* obstacle(const Actor& actor, const Step& step) {
    const std::vector<Range> mine = touched(actor, step);
    for (const auto& queue : actor.queues)
      for (const Message& message : queue)
        if (!message.step->deaths.empty() || conflict(mine, message.ranges)) return &message;
    return nullptr;
  }
  // The message that a message waits for before it starts, besides those of its own stream.
  static const Message* ahead_of(const Actor& actor, const Message& message) {
    for (const auto& queue : actor.queues)
      for (const Message& other : queue)
        if (other.number < message.number && conflict(message.ranges, other.ranges)) return &other;
    return nullptr;
  }

  void submit(int index, const Step& step) {
    Actor& actor = actors_[at(index)];
    Message message;
    message.step = &step;
    message.of = instance(actor);
    message.number = actor.next++;
    message.ranges = touched(actor, step);
    message.key = key(index, step, message.of);
    actor.queues[static_cast<std::size_t>(step.stream)].push_back(std::move(message));
    ++actor.pending;
  }

  std::optional<Key> key(int index, const Step& step, const Instance& of) {
    Actor& actor = actors_[at(index)];
    if (step.kind == StepKind::copy) return std::nullopt;
    if (step.kind != StepKind::collective) {
      const int other = index + step.peer;
      const bool sends = step.kind == StepKind::send;
      return Key{0, sends ? index : other, step.tag, sends ? other : index,
                 of.step * actor.memory.micro_batches() + of.micro_batch};
    }
    if (actor.stages_of_group[at(step.group)] <= 1) return std::nullopt;  // its members arrive together
    return Key{1, step.group, static_cast<int>(step.stream),
               schedule_.groups[at(step.group)].base(actor.c->representative),
               actor.collectives[{step.group, step.stream}]++};
  }

  // Starts messages that may start and removes those that have ended.
  bool settle(int index) {
    Actor& actor = actors_[at(index)];
    if (actor.pending == 0) return false;
    bool moved = false;
    for (bool again = true; again;) {
      again = false;
      for (auto& queue : actor.queues)
        while (!queue.empty()) {
          Message& front = queue.front();
          if (!front.started) {
            if (ahead_of(actor, front) != nullptr) break;
            front.started = true;
            if (front.key) ++meetings_[*front.key].started;
            again = true;
          }
          if (front.key && !meets(*front.key, expected(actor, front))) break;
          queue.pop_front();
          --actor.pending;
          again = true;
        }
      moved |= again;
    }
    return moved;
  }
  // Whether all participants are there; the last one to see it forgets the meeting.
  bool meets(const Key& key, int expected) {
    const auto meeting = meetings_.find(key);
    if (meeting->second.started < expected) return false;
    if (++meeting->second.ended == expected) meetings_.erase(meeting);
    return true;
  }
  static int expected(const Actor& actor, const Message& message) {
    return message.step->kind == StepKind::collective ? actor.stages_of_group[at(message.step->group)] : 2;
  }

  // -- text of the diagnostics ----------------------------------------------------------------------------------------
  static std::string name_of_step(const Actor& actor, const Step& step, const Instance& of) {
    std::string text = step.kind == StepKind::compute ? step.part : std::string(plan::name_of(step.kind));
    if (step.kind == StepKind::collective) text = plan::name_of(step.collective);
    if (step.kind != StepKind::compute) {
      const View& view = step.kind == StepKind::send ? step.source : step.target;
      text += fmt::format(" of {}", actor.c->buffers[at(view.buffer)].name);
    } else if (step.layer >= 0) {
      text += fmt::format(" of layer {}", step.layer);
    }
    if (step.kind == StepKind::send || step.kind == StepKind::recv)
      text += fmt::format(" {} stage {}", step.kind == StepKind::send ? "to" : "from", actor.c->stage + step.peer);
    if (of.micro_batch >= 0) text += fmt::format(", micro-batch {}", of.micro_batch);
    return text;
  }
  // Names a message and says why it has not ended.
  static std::string why(const Actor& actor, const Message& message) {
    std::string text = name_of_step(actor, *message.step, message.of);
    if (message.started) return text + ", which its partner has not come for";
    const auto& queue = actor.queues[static_cast<std::size_t>(message.step->stream)];
    const Message* before = &queue.front() != &message ? &queue.front() : ahead_of(actor, message);
    if (before == nullptr) return text;
    return fmt::format("{}, which cannot start before {}{}", text, name_of_step(actor, *before->step, before->of),
                       before->started ? ", whose partner has not come," : "") +
           (&queue.front() != &message ? " of its stream" : " gives its memory back");
  }
  static std::string stopped(const Actor& actor) {
    std::string text = fmt::format("rank {} (stage {}) stops", actor.c->representative, actor.c->stage);
    if (actor.entry < actor.c->program.size()) {
      const Block& block = block_of(actor);
      const Step& step = block.steps[std::min(actor.step, block.steps.size() - 1)];
      text += fmt::format(" at {} step {} ({})", block.name, actor.step, name_of_step(actor, step, instance(actor)));
      if (const Message* message = obstacle(actor, step)) text += ": it waits for " + why(actor, *message);
    } else {
      text += " at the end of the training step";
    }
    for (const auto& queue : actor.queues)  // messages that its partners may wait for
      if (!queue.empty() && !queue.front().started) text += "; " + why(actor, queue.front());
    return text;
  }

  const Schedule& schedule_;
  std::int64_t first_;
  std::vector<Actor> actors_;
  std::map<Key, Meeting> meetings_;
  std::int64_t steps_ = 1;
};

}  // namespace

base::Diagnostics rehearse(const Schedule& schedule, const std::vector<Placement>& placements) {
  base::Diagnostics found = Rehearsal(schedule, placements, 0).run();
  if (const std::int64_t late = schedule.steady_from(); late > 0 && found.empty())
    found = Rehearsal(schedule, placements, late).run();
  return found;
}

base::Diagnostics rehearse(const Schedule& schedule) {
  std::vector<Placement> placements;
  for (const RankClass& c : schedule.classes) placements.push_back(place(c));
  return rehearse(schedule, placements);
}

}  // namespace orrery::plan
