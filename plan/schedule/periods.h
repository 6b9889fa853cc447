#pragma once
/// Finds when walkers of repeating programs return to an earlier state. A walker goes through one class's program. What
/// all walkers do next depends only on where they stand and on what is in flight. If both are as they were some turns
/// of their loops ago, the same will happen again and again until one of them leaves its loop, so the walk may jump
/// there at once. Costs the memory and the comparison of one state per turn. Private to plan/ and sim/.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// What has happened since the earlier state will happen `times` more times.
struct Skip {
  std::int64_t times = 0;
  std::int32_t micro_batches = 0;     ///< to advance, over all these times
  std::vector<std::int64_t> entries;  ///< to advance, over all these times, by walker
};

class Periods {
 public:
  /// One program per walker; they must outlive this. After `most_looks` unsuccessful looks in a row, due() stays false.
  explicit Periods(std::vector<const Entries*> programs,
                   std::int64_t most_looks = std::numeric_limits<std::int64_t>::max());

  /// The walker whose entry decides when to look.
  [[nodiscard]] std::size_t leader() const { return leader_; }
  [[nodiscard]] bool due(std::size_t entry_of_leader) const {
    return static_cast<std::int64_t>(entry_of_leader) >= next_;
  }
  /// The micro-batch from which a walker at this entry counts its micro-batches.
  [[nodiscard]] std::int32_t base(std::size_t walker, std::size_t entry) const;

  enum class Seen {
    nothing,  ///< no repetition, and this state is not kept
    kept,     ///< later states will be compared with this one: the caller should note down its sums now
    again     ///< the kept state has come back: skip() says how often it will do so again
  };
  /// `entries`: where each walker stands. `state`: all else that decides what follows: micro-batches counted from
  /// base(), times from now. `allowed`: false if something outside the state makes it differ from the kept one.
  Seen look(const std::vector<std::size_t>& entries, std::vector<std::int64_t> state, bool allowed = true);
  [[nodiscard]] const Skip& skip() const { return skip_; }

 private:
  struct Place {
    std::size_t run = 0;
    std::int64_t turn = 0;
  };
  [[nodiscard]] Place place(std::size_t walker, std::size_t entry) const;
  void set_next(std::size_t entry_of_leader);
  [[nodiscard]] bool all_in_loops(const std::vector<std::size_t>& entries) const;
  /// Sets skip_; false where the period is not a whole number of turns for every walker, or no further ones follow.
  [[nodiscard]] bool again(const std::vector<std::size_t>& entries);

  std::vector<const Entries*> programs_;
  std::size_t leader_ = 0;
  std::int64_t next_ = 0;  ///< entry of the leader
  std::vector<std::size_t> entries_;
  std::vector<std::int64_t> state_;
  bool has_state_ = false;
  std::int64_t looks_ = 0;  ///< since a state was kept
  std::uint64_t kept_ = 0;  ///< states so far, since the last repetition
  std::int64_t in_vain_ = 0, most_looks_;
  Skip skip_;
};

}  // namespace orrery::plan
