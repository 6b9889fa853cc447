#pragma once
/// A walk over a schedule without a clock, for the checker and the rehearsal: a message ends once its partners have
/// started theirs, a send with its receive, a collective when all stages of its group have come. Copies, and
/// collectives among ranks of one class, end by themselves. Private to plan/.
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/schedule/walk.h"

namespace orrery::plan {

/// A key that is the same for all participants: (0, sender, tag, receiver, micro-batch counted over the run) or (1,
/// group, stream, lowest member, number of meetings before it). A group's streams advance independently, as the
/// executor's communicators do.
using MeetingKey = std::tuple<int, int, int, int, std::int64_t>;

struct Meeting {
  int present = 0, expected = 0;
  int gone = 0;                      ///< number of participants that have seen that all are there
  const RankClass* first = nullptr;  ///< class of the first participant, and its message
  Visit with;
};

struct MeetingMessage : WalkedMessage {
  std::optional<MeetingKey> key;  ///< none: the message ends by itself
};

template <class Message>
struct MeetingRank : WalkingRank<Message> {
  MeetingRank(const Schedule& schedule, std::size_t of_class) {
    this->rank_class = &schedule.classes[of_class];
    this->index = static_cast<int>(of_class);
    micro_batches = micro_batches_of(*this->rank_class);
    for (const Group& group : schedule.groups) {
      std::set<int> stages;
      for (const int member : group.members(this->rank_class->representative))
        stages.insert(member / schedule.spec.mesh.ranks_per_stage());
      stages_of_group.push_back(static_cast<int>(stages.size()));
    }
  }
  std::int32_t micro_batches = 1;
  base::ById<GroupId, int> stages_of_group;
  std::map<std::pair<GroupId, Stream>, std::int64_t> collectives;  ///< so far, by group
};

/// `Self` has, beside what Walker asks for:
///  - `void met(const Rank&, const Message&, const Meeting&)`: a message has started for which others may be waiting;
///  - `void round()`: every rank has gone as far as it could.
template <class Self, class Rank>
class Rendezvous : public Walker<Self, Rank> {
 public:
  using Message = typename Rank::Message;

  Message message(Rank& rank, const Visit& visit) {
    Message made;
    static_cast<Visit&>(made) = visit;
    made.key = key(rank, visit);
    return made;
  }
  void start(Rank& rank, Message& message) {
    if (!message.key) return;
    Meeting& meeting = meetings_[*message.key];
    if (meeting.present++ == 0) {
      const bool collective = message.step->kind == StepKind::collective;
      meeting.expected = collective ? rank.stages_of_group[message.step->group] : 2;
      meeting.first = rank.rank_class;
      meeting.with = message;
    }
    self().met(rank, message, meeting);
  }
  bool ends(Rank& /*rank*/, const Message& message) {
    if (!message.key) return true;
    const auto meeting = meetings_.find(*message.key);
    if (meeting->second.present < meeting->second.expected) return false;
    if (++meeting->second.gone == meeting->second.expected) meetings_.erase(meeting);
    return true;
  }
  void met(const Rank& /*rank*/, const Message& /*message*/, const Meeting& /*meeting*/) {}
  void round() {}

 protected:
  explicit Rendezvous(const Schedule& schedule, std::int64_t training_steps = 1)
      : Walker<Self, Rank>(training_steps), schedule_(schedule) {}

  /// Goes on until no rank can move.
  void go() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) moved |= this->advance(rank);
      if (moved) self().round();
    }
  }

  const Schedule& schedule_;
  std::vector<Rank> ranks_;  ///< by class
  std::map<MeetingKey, Meeting> meetings_;

 private:
  [[nodiscard]] Self& self() { return static_cast<Self&>(*this); }

  std::optional<MeetingKey> key(Rank& rank, const Visit& visit) const {
    const Step& step = *visit.step;
    if (step.kind == StepKind::copy) return std::nullopt;
    if (step.kind != StepKind::collective) {
      const int other = rank.index + step.peer;
      const bool sends = step.kind == StepKind::send;
      return MeetingKey{0, sends ? rank.index : other, step.tag, sends ? other : rank.index,
                        visit.training_step * rank.micro_batches + visit.micro_batch};
    }
    if (rank.stages_of_group[step.group] <= 1) return std::nullopt;
    return MeetingKey{1, static_cast<int>(step.group.index()), static_cast<int>(step.stream),
                      schedule_.groups[step.group].base(rank.rank_class->representative),
                      rank.collectives[{step.group, step.stream}]++};
  }
};

}  // namespace orrery::plan
