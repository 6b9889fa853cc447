#pragma once
/// What messages are called, in reports of what a rank does and waits for.
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "exec/engine/arena.h"
#include "exec/engine/recorder.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

class MessageNames {
 public:
  /// Both references must outlive this.
  MessageNames(const plan::Schedule& schedule, const plan::RankClass& rank_class, int rank)
      : schedule_(schedule), class_(rank_class), rank_(rank) {}

  /// A message's kind, its peers and its contents, without the training step.
  [[nodiscard]] std::string what(const plan::Step& step) const;
  /// A short description of a message that the device is to send, in a training step.
  [[nodiscard]] std::string summary(const plan::Step& step, std::int32_t iteration, std::int32_t micro_batch) const;
  /// All of it: rank, training step, and place in the program.
  [[nodiscard]] std::string describe(const plan::Step& step, std::int32_t iteration, const plan::StepRef& at,
                                     std::int32_t micro_batch) const;
  /// Tells the recorder what its numbers of messages mean; returns these numbers by block and step.
  [[nodiscard]] std::map<std::pair<std::int32_t, std::int32_t>, int> number(Recorder& recorder) const;

 private:
  [[nodiscard]] int peer_of(const plan::Step& step) const {
    return rank_ + step.peer * schedule_.spec.mesh.ranks_per_stage();
  }

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  int rank_;
};

}  // namespace orrery::exec
