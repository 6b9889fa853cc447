// Times of checkpoints.
#include "exec/launch/saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/ensure.h"
#include "base/units.h"

namespace orrery::exec {
namespace {

double seconds(SavingClock::Clock::duration time) {
  return std::max(0.0, std::chrono::duration<double>(time).count());
}

}  // namespace

std::string pack_saving(const Saving& saving) {
  static_assert(std::is_trivially_copyable_v<Saving>);
  return {reinterpret_cast<const char*>(&saving), sizeof saving};
}

void SavingClock::copied() {
  copied_ = Clock::now();
  pause_ += seconds(copied_ - began_);
}

Saving SavingClock::ended(Clock::time_point written, double bytes) {
  const Clock::time_point now = Clock::now();
  Saving out;
  out.copy = seconds(copied_ - began_);
  out.write = seconds(written - copied_);
  out.wait = seconds(std::min(written, now) - committing_);
  out.commit = seconds(now - std::max(written, committing_));
  out.bytes = bytes;
  pause_ += out.wait + out.commit;
  return out;
}

double SavingClock::take_pause() {
  return std::exchange(pause_, 0.0);
}

SavedCheckpoint join_savings(const std::vector<std::string>& packed) {
  SavedCheckpoint out;
  for (const std::string& bytes : packed) {
    Saving one;
    ENSURE(bytes.size() == sizeof one, "a checkpoint's times in {} bytes", bytes.size());
    std::memcpy(&one, bytes.data(), sizeof one);
    for (double Saving::*part : {&Saving::copy, &Saving::write, &Saving::wait, &Saving::commit, &Saving::bytes})
      out.slowest.*part = std::max(out.slowest.*part, one.*part);
    out.bytes += one.bytes;
  }
  return out;
}

void SavedTotals::add(const SavedCheckpoint& one) {
  ++count;
  copy_s += one.slowest.copy;
  wait_s += one.slowest.wait;
  commit_s += one.slowest.commit;
  write_s += one.slowest.write;
  pause_s += one.slowest.pause();
  bytes += one.bytes;
  largest_rank_bytes += one.slowest.bytes;
}

std::string saved_message(double step, double bytes, double pause_s, double durable_s) {
  const std::string what = fmt::format("checkpoint saved at step {:.0f}", step);
  if (bytes <= 0) return what;
  return fmt::format("{}: {}, training held up for {}, durable after {}", what, base::human(base::Bytes{bytes}),
                     base::human(base::Seconds{pause_s}), base::human(base::Seconds{durable_s}));
}

}  // namespace orrery::exec
