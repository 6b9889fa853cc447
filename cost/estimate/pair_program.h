#pragma once
/// Two passes beside each other (plan::Move::beside) as steps of one clock. Private to cost/estimate/.
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cost/estimate/rank_clock.h"

namespace orrery::cost {

/// A forward pass and a backward pass whose parts take turns, as plan/lower/beside.h has them: a part ends before
/// compute that waits for a message of its own pass.
struct PairProgram {
  /// A step before which something has to have come.
  struct Stop {
    std::size_t step = 0;
    bool backward = false;  ///< of which pass
    bool frees = false;     ///< what that pass has sent has arrived; else its input has
    auto operator<=>(const Stop&) const = default;
  };
  PassProgram all;  ///< its steps alone
  std::vector<Stop> stops;
};
[[nodiscard]] PairProgram pair_of(const PassProgram& forward, const PassProgram& backward);

/// How far back steps of a stage's passes refer, at most. `pairs`: of two passes beside each other, too.
[[nodiscard]] std::size_t reach_of(const std::vector<std::shared_ptr<const ChunkPrograms>>& chunks, bool pairs);

/// Pairs by their passes, which must stay where they are.
class PairMemo {
 public:
  [[nodiscard]] const PairProgram& of(const PassProgram& forward, const PassProgram& backward) {
    const auto [known, fresh] = known_.try_emplace({&forward, &backward});
    if (fresh) known->second = pair_of(forward, backward);
    return known->second;
  }

 private:
  std::map<std::pair<const PassProgram*, const PassProgram*>, PairProgram> known_;
};

}  // namespace orrery::cost
