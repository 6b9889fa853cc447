// Abstract ranks in real memory: where buffers lie, which messages are under way, which rank waits for which.
#include "plan/schedule/rehearse.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/rendezvous.h"

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
bool overlap(const Range& a, const Range& b) {
  return a.space == b.space && a.begin < b.end && b.begin < a.end;
}

/// Offsets of the instances of a class's buffers, as the executor's arena assigns them.
class Memory {
 public:
  Memory(const RankClass& c, const Placement& placement) : class_(c), placement_(placement) {
    micro_batches_ = micro_batches_of(c);
    in_flight_ = steps_in_flight(c);
    for (const BufferId i : c.buffers.keys())
      for (int version = 0; c.buffers[i].persistent && version < c.buffers[i].versions; ++version)
        held_[{i, version}] = placement.persistent.at(i.index()) +
                              version * ((c.buffers[i].bytes() + kAlignment - 1) / kAlignment * kAlignment);
  }

  void begin_step() { cursor_ = 0; }
  /// Births must come in the placement's order of steps.
  void birth(const StepRef& where, BufferId buffer, const Instance& of) {
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
    ENSURE(false, "no place for buffer {}", class_.buffers[buffer].name);
  }
  void death(BufferId buffer, const Instance& of) { held_.erase(slot(buffer, of)); }
  [[nodiscard]] Range range(BufferId buffer, const Instance& of, bool writes) const {
    const Buffer& b = class_.buffers[buffer];
    const auto held = held_.find(slot(buffer, of));
    const std::int64_t begin = held == held_.end() ? 0 : held->second;
    return {b.space, begin, begin + b.bytes(), writes};
  }

 private:
  // A buffer, and which of its instances.
  using Slot = std::pair<BufferId, std::int64_t>;
  struct HashOfSlot {
    std::size_t operator()(const Slot& s) const {
      return std::hash<std::int64_t>()(s.second * (std::int64_t{1} << 20) + static_cast<std::int64_t>(s.first.index()));
    }
  };
  [[nodiscard]] Slot slot(BufferId buffer, const Instance& of) const {
    const Buffer& b = class_.buffers[buffer];
    return {buffer, b.per_micro_batch ? of.step % in_flight_ * micro_batches_ + of.micro_batch : of.step % b.versions};
  }

  const RankClass& class_;
  const Placement& placement_;
  std::int32_t micro_batches_ = 1;
  int in_flight_ = 1;
  std::unordered_map<Slot, std::int64_t, HashOfSlot> held_;  ///< offsets of live instances
  std::size_t cursor_ = 0;
};

struct PlacedMessage : MeetingMessage {
  std::vector<Range> ranges;
};

struct PlacedRank : MeetingRank<PlacedMessage> {
  PlacedRank(const Schedule& schedule, std::size_t of_class, const Placement& placement)
      : MeetingRank(schedule, of_class), memory(*rank_class, placement) {}
  Memory memory;
};

class Rehearsal : public Rendezvous<Rehearsal, PlacedRank> {
 public:
  /// `first`: the training step of the run with which the walk starts.
  Rehearsal(const Schedule& schedule, const std::vector<Placement>& placements, std::int64_t first)
      : Rendezvous(schedule, steps_of(schedule)), first_(first) {
    ENSURE(placements.size() == schedule.classes.size(), "{} placements of {} classes", placements.size(),
           schedule.classes.size());
    for (std::size_t i = 0; i < placements.size(); ++i) ranks_.emplace_back(schedule, i, placements[i]);
  }

  base::Diagnostics run() {
    go();
    base::Diagnostics found;
    for (const PlacedRank& rank : ranks_)
      if (!finished(rank)) found.push_back({base::Severity::error, "S21", {}, stopped(rank), {}, {}});
    return found;
  }

  bool runs_step(const PlacedRank& /*rank*/, const Visit& visit) const {
    return visit.step->runs_in(first_ + visit.training_step);
  }
  void arrive(PlacedRank& rank, const Visit& visit) {
    for (const BufferId buffer : visit.step->births) rank.memory.birth(visit.at, buffer, instance(visit));
  }
  void leave(PlacedRank& rank, const Visit& visit) {
    for (const BufferId buffer : visit.step->deaths) rank.memory.death(buffer, instance(visit));
  }
  void end_step(PlacedRank& rank) { rank.memory.begin_step(); }
  PlacedMessage message(PlacedRank& rank, const Visit& visit) {
    PlacedMessage made = Rendezvous::message(rank, visit);
    made.ranges = uses(rank, visit);
    return made;
  }
  static std::vector<Range> uses(const PlacedRank& rank, const Visit& visit) {
    return uses_of(*visit.step,
                   [&](BufferId buffer, bool writes) { return rank.memory.range(buffer, instance(visit), writes); });
  }
  static const std::vector<Range>& uses(const PlacedRank& /*rank*/, const PlacedMessage& message) {
    return message.ranges;
  }

 private:
  // Steps that fill, that are full, that drain.
  static std::int64_t steps_of(const Schedule& schedule) {
    std::int64_t most = 1;
    for (const RankClass& c : schedule.classes) most = std::max<std::int64_t>(most, steps_in_flight(c));
    return most > 1 ? 2 * most + 2 : 1;
  }
  static Instance instance(const Visit& visit) { return {visit.micro_batch, visit.training_step}; }

  // -- text of the diagnostics ----------------------------------------------------------------------------------------
  static std::string name_of_step(const PlacedRank& rank, const Visit& visit) {
    const Step& step = *visit.step;
    std::string text = step.kind == StepKind::compute ? step.part : std::string(plan::name_of(step.kind));
    if (step.kind == StepKind::collective) text = plan::name_of(step.collective);
    if (step.kind != StepKind::compute) {
      const View& view = step.kind == StepKind::send ? step.source : step.target;
      text += fmt::format(" of {}", rank.rank_class->buffers[view.buffer].name);
    } else if (step.layer) {
      text += fmt::format(" of layer {}", step.layer);
    }
    if (step.kind == StepKind::send || step.kind == StepKind::recv)
      text += fmt::format(" {} stage {}", step.kind == StepKind::send ? "to" : "from",
                          rank.rank_class->stage.number() + step.peer);
    if (visit.micro_batch >= 0) text += fmt::format(", micro-batch {}", visit.micro_batch);
    return text;
  }
  // The first message of a stream that has not ended.
  static const PlacedMessage* front(const PlacedRank& rank, Stream stream) {
    for (const PlacedMessage& message : rank.messages)
      if (!message.ended && message.step->stream == stream) return &message;
    return nullptr;
  }
  // Names a message and says why it has not ended.
  std::string why(const PlacedRank& rank, const PlacedMessage& message) const {
    const std::string text = name_of_step(rank, message);
    if (message.started) return text + ", which its partner has not come for";
    const PlacedMessage* const first = front(rank, message.step->stream);
    const PlacedMessage* const before = first != &message ? first : ahead_of(rank, message);
    if (before == nullptr) return text;
    return fmt::format("{}, which cannot start before {}{}", text, name_of_step(rank, *before),
                       before->started ? ", whose partner has not come," : "") +
           (first != &message ? " of its stream" : " gives its memory back");
  }
  std::string stopped(const PlacedRank& rank) const {
    const RankClass& c = *rank.rank_class;
    std::string text = fmt::format("rank {} (stage {}) stops", c.representative, c.stage);
    if (rank.entry < c.program.size()) {
      const Visit here = visit(rank, c.program[rank.entry]);
      text += fmt::format(" at {} step {} ({})", c.blocks[at(here.block)].name, rank.step, name_of_step(rank, here));
      if (const PlacedMessage* const message = obstacle(rank)) text += ": it waits for " + why(rank, *message);
    } else {
      text += " at the end of the training step";
    }
    for (std::size_t s = 0; s < kStreams; ++s)  // messages that its partners may wait for
      if (const PlacedMessage* const first = front(rank, static_cast<Stream>(s)); first != nullptr && !first->started)
        text += "; " + why(rank, *first);
    return text;
  }

  std::int64_t first_;
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
