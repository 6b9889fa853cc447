#pragma once
/// Activations and their gradients between pipeline stages. Private to plan/.
#include <string>

#include "plan/lower/class_builder.h"

namespace orrery::plan {

class StageMessages {
 public:
  /// All references must outlive this.
  StageMessages(const Plan& plan, StageId stage, ClassBuilder& build) : plan_(plan), stage_(stage), build_(build) {}

  /// A buffer for one rank's rows between two stages.
  [[nodiscard]] BufferId buffer(const std::string& name);
  /// With interleaved chunks, the stage after the last one is the first, one chunk further. With folded chunks, the
  /// second chunk goes back up the stages. A message carries its sender's chunk in its tag. `phase`: forward or
  /// backward.
  void send(BufferId buffer, Phase phase, int chunk);
  void receive(BufferId buffer, Phase phase, int chunk);

 private:
  [[nodiscard]] int to_neighbour(bool ahead, int chunk) const;

  const Plan& plan_;
  StageId stage_;
  ClassBuilder& build_;
};

}  // namespace orrery::plan
