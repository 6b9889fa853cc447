#pragma once
/// The end of a step whose states or parameters live outside the device: its lowered block (plan::lower_ends), on the
/// clocks of one rank and in its memories. Which copies then wait for which messages and operators, and what is where
/// meanwhile, follows from the buffers that the steps use, so no outline says it. Private to cost/.
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "cost/estimate/block_lives.h"
#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_groups.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds of a part of a step's end.
struct EndPart {
  double all = 0;
  std::array<double, plan::kStreams> exposed = {};  ///< of these: waits for messages, by stream
  [[nodiscard]] double copies() const;              ///< of these: waits for copies
};
/// Until the squares of the rank's own gradients are summed; and from there to the end, with the messages by which the
/// stages agree.
struct LoweredEnd {
  EndPart squared, updated;
};

/// Bytes outside the device, and what lives on it in this end alone.
struct EndMemory {
  double host = 0, nvme = 0;  ///< for the whole run
  double staging = 0;         ///< of the host: what is on its way to or from files or the device
  double alive = 0;           ///< of the device: the most at a time
  std::vector<plan::ScratchBuffer> device = {};
};

struct EndProgram {
  std::vector<PassStep> steps;
  std::size_t squared = 0;  ///< how many of them do not wait for what the stages agree on
  std::size_t reach = 0;
  EndMemory memory = {};
};
[[nodiscard]] EndProgram lowered_end(const plan::Plan& plan, plan::StageId stage, const Pricing& pricing,
                                     const StageGroups& groups);

/// Ends of one stage, or of several whose messages share links.
class EndsRun {
 public:
  /// `begins`: seconds, by stage. `rates`: null where no stream slows another one down.
  EndsRun(std::vector<const EndProgram*> programs, const RankClock::Overlaps& overlaps,
          std::shared_ptr<StreamRates> rates, const std::vector<double>& begins);
  /// By stage. To be called in this order; `from`: when all stages have come to agree.
  [[nodiscard]] std::vector<EndPart> squared();
  [[nodiscard]] std::vector<EndPart> updated(double from);

 private:
  void run(bool to_the_end);

  std::vector<const EndProgram*> programs_;
  std::shared_ptr<SharedStreams> streams_;
  std::vector<RankClock> clocks_;
  std::vector<std::size_t> done_;  ///< steps
  std::vector<Ticks> begins_;
};

}  // namespace orrery::cost
