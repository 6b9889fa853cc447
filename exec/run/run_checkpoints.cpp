// Checkpoints of a run.
#include "exec/run/run_checkpoints.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace orrery::exec {
namespace {

using Clock = SavingClock::Clock;
constexpr int kMostSaving = 10;  // a checkpoint by time comes no sooner than ten times the duration of the last one

}  // namespace

bool CheckpointTimes::due(std::int64_t step, Clock::duration since, Clock::duration took) const {
  if (every > 0) return step % every == 0;
  return since >= std::max<Clock::duration>(interval, kMostSaving * took);
}

void RunCheckpoints::begin(std::int64_t step, std::int64_t sequences) {
  commit_pending();  // checkpoints are due faster than the disk can write them
  clock_.begins();
  saver_.begin(step, sequences);
  clock_.copied();
}

bool RunCheckpoints::all_written() {
  return transport_.maximum(saver_.written() ? 0.0 : 1.0) == 0;
}

void RunCheckpoints::commit_written() {
  if (saver_.pending() && all_written()) commit();
}

void RunCheckpoints::commit_pending() {
  if (saver_.pending()) commit();
}

void RunCheckpoints::wait_until_written() {
  constexpr std::chrono::milliseconds kBetween{2};
  while (saver_.pending() && !all_written()) std::this_thread::sleep_for(kBetween);
}

void RunCheckpoints::commit() {
  clock_.commits();
  const std::int64_t step = saver_.commit();
  const Saving mine = clock_.ended(saver_.written_at(), static_cast<double>(saver_.bytes()));
  took_ = Clock::now() - clock_.began();
  const std::vector<std::string> all = transport_.gather_text(pack_saving(mine));
  if (transport_.rank() != 0) return;
  const Saved saved{step, std::chrono::duration<double>(took_).count(), join_savings(all)};
  totals_.add(saved.cost);
  said_(saved);
}

}  // namespace orrery::exec
