// Finds cycles in a sequence of states with one state in memory, as Brent 1980, "An improved Monte Carlo factorization
// algorithm", section 2, but soon after they begin, wherever that is: how long a state is kept follows the sequence 1,
// 1, 2, 1, 1, 2, 4 … of Luby, Sinclair and Zuckerman 1993, "Optimal speedup of Las Vegas algorithms". Powers of two
// would compare with a state from before the pipeline was full until as much time again has passed.
#include "plan/schedule/periods.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/ensure.h"

namespace orrery::plan {

namespace {
constexpr std::int64_t kWorthLooking = 16;  // turns of a loop; shorter ones are as quick to walk
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// Looks for which the state that was kept as number `kept`, from 1, stays: long enough to be worth keeping.
std::int64_t patience(std::uint64_t kept) {
  constexpr std::uint64_t kLeast = 4;
  while (!std::has_single_bit(kept + 1)) kept -= std::bit_floor(kept) - 1;
  return static_cast<std::int64_t>(kLeast * (kept + 1) / 2);
}
}  // namespace

Periods::Periods(std::vector<const Entries*> programs, std::int64_t most_looks)
    : programs_(std::move(programs)), next_(kNever), most_looks_(most_looks) {
  std::int64_t most = kWorthLooking - 1;
  for (std::size_t w = 0; w < programs_.size(); ++w)
    for (const Entries::Run& run : programs_[w]->runs())
      if (run.count > most) {
        most = run.count;
        leader_ = w;
        next_ = 0;
      }
  if (next_ == 0) set_next(0);
}

Periods::Place Periods::place(std::size_t walker, std::size_t entry) const {
  const Entries& program = *programs_[walker];
  const std::size_t r = program.run_of(entry);
  const Entries::Run& run = program.runs()[r];
  return {r, (static_cast<std::int64_t>(entry) - run.first) / run.length};
}

std::int32_t Periods::base(std::size_t walker, std::size_t entry) const {
  if (entry >= programs_[walker]->size()) return 0;
  const Place at = place(walker, entry);
  return static_cast<std::int32_t>(at.turn * programs_[walker]->runs()[at.run].advance);
}

// The next turn of a long loop, or the second turn of the next such loop.
void Periods::set_next(std::size_t entry_of_leader) {
  const std::vector<Entries::Run>& runs = programs_[leader_]->runs();
  const auto entry = static_cast<std::int64_t>(entry_of_leader);
  next_ = kNever;
  for (const Entries::Run& run : runs) {
    if (run.count < kWorthLooking) continue;
    const std::int64_t turn = entry < run.first ? 0 : (entry - run.first) / run.length + 1;
    if (turn + 1 >= run.count) continue;
    next_ = run.first + turn * run.length;
    return;
  }
}

bool Periods::all_in_loops(const std::vector<std::size_t>& entries) const {
  for (std::size_t w = 0; w < entries.size(); ++w)
    if (entries[w] >= programs_[w]->size() || programs_[w]->runs()[place(w, entries[w]).run].count == 1) return false;
  return true;
}

bool Periods::again(const std::vector<std::size_t>& entries) {
  skip_ = {kNever, 0, {}};
  for (std::size_t w = 0; w < entries.size(); ++w) {
    const Place before = place(w, entries_[w]), now = place(w, entries[w]);
    const Entries::Run& run = programs_[w]->runs()[now.run];
    const auto further = static_cast<std::int64_t>(entries[w]) - static_cast<std::int64_t>(entries_[w]);
    const auto micro_batches = static_cast<std::int32_t>((now.turn - before.turn) * run.advance);
    if (before.run != now.run || further <= 0 || further % run.length != 0) return false;
    if (w > 0 && micro_batches != skip_.micro_batches) return false;
    skip_.micro_batches = micro_batches;
    skip_.entries.push_back(further);
    // The entry at which a walker stands is already looked at, so after the skip it must still be in the loop.
    skip_.times = std::min(skip_.times, (run.end() - 1 - static_cast<std::int64_t>(entries[w])) / further);
  }
  if (skip_.times < 1) return false;
  skip_.micro_batches *= static_cast<std::int32_t>(skip_.times);
  for (std::int64_t& further : skip_.entries) further *= skip_.times;
  return true;
}

Periods::Seen Periods::look(const std::vector<std::size_t>& entries, std::vector<std::int64_t> state, bool allowed) {
  ENSURE(entries.size() == programs_.size(), "{} walkers of {} programs", entries.size(), programs_.size());
  set_next(entries[leader_]);
  if (++in_vain_ > most_looks_) next_ = kNever;
  if (!all_in_loops(entries)) {
    has_state_ = false;
    return Seen::nothing;
  }
  if (has_state_ && allowed && state == state_ && again(entries)) {
    has_state_ = false;
    looks_ = 0;
    kept_ = 0;
    in_vain_ = 0;
    set_next(entries[leader_] + static_cast<std::size_t>(skip_.entries[leader_]));
    return Seen::again;
  }
  if (has_state_ && ++looks_ < patience(kept_)) return Seen::nothing;
  ++kept_;
  entries_ = entries;
  state_ = std::move(state);
  has_state_ = true;
  looks_ = 0;
  return Seen::kept;
}

}  // namespace orrery::plan
