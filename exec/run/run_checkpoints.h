#pragma once
/// A run's checkpoints: when one is due, how it is written while training goes on, and what all of them cost.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "exec/launch/saving.h"
#include "exec/state/checkpoint.h"

namespace orrery::exec {

/// When checkpoints come.
struct CheckpointTimes {
  std::int64_t every = 0;            ///< steps; 0: by time
  std::chrono::seconds interval{0};  ///< by time: after the step that ends it
  /// Whether one is due after `step`: after a number of steps, or `since` the last one began, of which saving, `took`
  /// the last time, may take a tenth.
  [[nodiscard]] bool due(std::int64_t step, SavingClock::Clock::duration since,
                         SavingClock::Clock::duration took) const;
};

class RunCheckpoints {
 public:
  /// One that is durable now. On rank 0 over all ranks.
  struct Saved {
    std::int64_t step = 0;
    double durable_s = 0;  ///< since it began
    SavedCheckpoint cost;
  };
  /// `said`: called on rank 0 for each. All references must outlive this.
  RunCheckpoints(const CheckpointContext& context, const std::filesystem::path& folder, int keep, CheckpointTimes times,
                 std::function<void(const Saved&)> said)
      : transport_(context.transport), saver_(context, folder, keep), times_(times), said_(std::move(said)) {}

  void describe(CheckpointNotes notes) { saver_.describe(std::move(notes)); }
  /// Whether this rank considers a checkpoint due after `step`.
  [[nodiscard]] bool due(std::int64_t step) const {
    return times_.due(step, SavingClock::Clock::now() - clock_.began(), took_);
  }
  /// Starts a checkpoint, which is written during the next steps. `sequences`: those trained so far. Collective, as are
  /// the next three.
  void begin(std::int64_t step, std::int64_t sequences);
  /// Makes what was begun durable, if all ranks have written it.
  void commit_written();
  /// Makes it durable as soon as it is written, if there is one.
  void commit_pending();
  /// Ranks keep meeting meanwhile, so that a slow disk does not look like a hanging rank.
  void wait_until_written();

  /// Seconds that training has waited since the last call.
  [[nodiscard]] double take_pause() { return clock_.take_pause(); }
  [[nodiscard]] const SavedTotals& totals() const { return totals_; }

 private:
  [[nodiscard]] bool all_written();
  void commit();

  Transport& transport_;
  CheckpointSaver saver_;
  CheckpointTimes times_;
  std::function<void(const Saved&)> said_;
  SavingClock clock_;                     ///< of the last checkpoint, or before it of the start
  SavingClock::Clock::duration took_{0};  ///< the last one
  SavedTotals totals_;                    ///< rank 0
};

}  // namespace orrery::exec
