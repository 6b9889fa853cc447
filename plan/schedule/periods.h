#pragma once
/// When walkers of programs that repeat come to where they have been. A walker goes through one class's program; what
/// all of them do next follows from where they stand and from what is under way. If both are again what they were some
/// turns of their loops before, they will do the same once more, and again, until one of them leaves its loop: whoever
/// walks may go there at once. Costs one state's memory and comparison a turn. Private to plan/ and sim/.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// The same as since the earlier state, `times` times more.
struct Skip {
  std::int64_t times = 0;
  std::int32_t micro_batches = 0;     ///< further, in all these times together
  std::vector<std::int64_t> entries;  ///< further, by walker, likewise
};

class Periods {
 public:
  /// One for each walker; they must outlive this. After `most_looks` in vain in a row it is never due again.
  explicit Periods(std::vector<const Entries*> programs,
                   std::int64_t most_looks = std::numeric_limits<std::int64_t>::max());

  /// Whose entry says when to look.
  [[nodiscard]] std::size_t leader() const { return leader_; }
  [[nodiscard]] bool due(std::size_t entry_of_leader) const {
    return static_cast<std::int64_t>(entry_of_leader) >= next_;
  }
  /// What a walker that stands there counts its micro-batches from.
  [[nodiscard]] std::int32_t base(std::size_t walker, std::size_t entry) const;

  enum class Seen {
    nothing,  ///< known of this state
    kept,     ///< it is what later ones will be held to: now is the time to note down sums
    again     ///< skip() says how often what has been since then comes again
  };
  /// `entries`: where each walker stands. `state`: all else that decides what comes: micro-batches counted from base(),
  /// times from now. `allowed`: nothing that is not in the state speaks against its being the one that is kept.
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
  /// Into skip_; false where it is not a whole number of turns for all, or no more of them follow.
  [[nodiscard]] bool again(const std::vector<std::size_t>& entries);

  std::vector<const Entries*> programs_;
  std::size_t leader_ = 0;
  std::int64_t next_ = 0;  ///< entry of the leader
  std::vector<std::size_t> entries_;
  std::vector<std::int64_t> state_;
  bool has_state_ = false;
  std::int64_t looks_ = 0, patience_ = 1;  ///< since the state was kept; after how many another one is
  std::int64_t in_vain_ = 0, most_looks_;
  Skip skip_;
};

}  // namespace orrery::plan
