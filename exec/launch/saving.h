#pragma once
/// The cost of saving checkpoints: on a rank, over all ranks, and over a run.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::exec {

/// One checkpoint on one rank. Seconds and bytes.
struct Saving {
  double copy = 0;    ///< to the host: training waits
  double write = 0;   ///< by the writer's thread, while training goes on
  double wait = 0;    ///< training waits for that thread: for the last checkpoint, or if the next is due too soon
  double commit = 0;  ///< manifest, rename, removal of the oldest: training waits
  double bytes = 0;   ///< of the rank's file
  [[nodiscard]] double pause() const { return copy + wait + commit; }
};
[[nodiscard]] std::string pack_saving(const Saving& saving);

/// Times the phases of a checkpoint on one rank, and makes its Saving.
class SavingClock {
 public:
  using Clock = std::chrono::steady_clock;
  void begins() { began_ = Clock::now(); }
  void copied();
  void commits() { committing_ = Clock::now(); }
  /// The checkpoint is durable. `written`: when the writer's thread ended.
  [[nodiscard]] Saving ended(Clock::time_point written, double bytes);
  [[nodiscard]] Clock::time_point began() const { return began_; }
  /// Seconds that training has waited since the last call.
  [[nodiscard]] double take_pause();

 private:
  Clock::time_point began_ = Clock::now(), copied_ = began_, committing_ = began_;
  double pause_ = 0;
};

/// Over all ranks: the slowest rank's value of each time.
struct SavedCheckpoint {
  Saving slowest;
  double bytes = 0;  ///< of all files; slowest.bytes: of the largest file
};
/// `packed`: the ranks' pack_saving.
[[nodiscard]] SavedCheckpoint join_savings(const std::vector<std::string>& packed);

/// Sums over a run's checkpoints, as in completed.json. Bytes are sums too; largest_rank_bytes sums the largest file of
/// each checkpoint.
struct SavedTotals {
  std::int64_t count = 0;
  double pause_s = 0, copy_s = 0, wait_s = 0, commit_s = 0, write_s = 0;
  double bytes = 0, largest_rank_bytes = 0;
  void add(const SavedCheckpoint& one);
};

/// "checkpoint saved at step 20: 1.5 GB, training held up for 0.31 s, durable after 2.4 s".
[[nodiscard]] std::string saved_message(double step, double bytes, double pause_s, double durable_s);

}  // namespace orrery::exec
