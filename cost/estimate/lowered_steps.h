#pragma once
/// One rank's lowered steps as steps of its clock. What a step waits for follows from the buffers that it uses, by the
/// rules of plan/schedule/waits.h. Private to cost/estimate/.
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/estimate/pass_writer.h"
#include "cost/estimate/stage_groups.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/waits.h"

namespace orrery::cost {

/// Prices that the schedule's messages do not carry.
struct MessagesOfLayers {
  std::vector<double> exchanges = {};  ///< seconds of layers' all-to-alls, in the order of the steps
  double host = 0;                     ///< seconds to issue a message of the tensor group
};

class LoweredSteps {
 public:
  /// The schedule's only class. All arguments must outlive this.
  LoweredSteps(const plan::Schedule& schedule, const Pricing& pricing, const StageGroups& groups)
      : LoweredSteps(schedule, pricing, groups, {}, {}) {}
  /// `inputs`: buffers that messages of other stages fill.
  LoweredSteps(const plan::Schedule& schedule, const Pricing& pricing, const StageGroups& groups,
               MessagesOfLayers messages, std::vector<plan::BufferId> inputs)
      : schedule_(schedule),
        class_(schedule.classes.front()),
        pricing_(pricing),
        groups_(groups),
        of_layers_(std::move(messages)),
        inputs_(std::move(inputs)) {}

  /// `step`: compute, a collective or a copy. Messages between stages concern more than one rank.
  void write(const plan::Step& step);
  [[nodiscard]] PassWriter& out() { return out_; }
  /// The first step that reads an input, or the number of steps if none does.
  [[nodiscard]] std::size_t input() const { return input_.value_or(out_.size()); }
  /// Whether all exchanges have been written.
  [[nodiscard]] bool exchanged_all() const { return next_ == of_layers_.exchanges.size(); }

 private:
  struct Message {
    const plan::Step* step = nullptr;
    int number = 0;  ///< on its stream
  };
  [[nodiscard]] plan::BufferUses uses(const plan::Step& step) const { return {&class_, &step, -1}; }
  void compute(const plan::Step& step);
  void begin(const plan::Step& step);
  /// Whether the step reads an input; notes the first one that does.
  bool reads_input(const plan::Step& step);
  [[nodiscard]] const std::vector<int>& members(plan::GroupId group);
  [[nodiscard]] double seconds(const plan::Step& step);
  [[nodiscard]] Lane lane(const plan::Step& step);

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  const Pricing& pricing_;
  const StageGroups& groups_;
  MessagesOfLayers of_layers_;
  std::size_t next_ = 0;  ///< of the exchanges
  std::vector<plan::BufferId> inputs_;
  std::optional<std::size_t> input_;
  PassWriter out_{0};
  std::array<std::deque<Message>, plan::kStreams> in_flight_;
  std::map<plan::GroupId, std::vector<int>> members_;
};

}  // namespace orrery::cost
