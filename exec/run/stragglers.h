#pragma once
/// Finds ranks that hold the others up: a rank that is busy longer, step after step, than ranks with the same work.
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace orrery::exec {

struct Straggler {
  int rank = 0;
  double ratio = 1;  ///< its busy time over the median of its peers'
};

class Stragglers {
 public:
  /// `group`: by rank; ranks with the same number have the same work. `ratio`: from which a rank is a straggler.
  explicit Stragglers(std::vector<int> group, double ratio = 1.2, std::size_t window = 25);
  /// By rank: seconds of a training step without those spent waiting for others. Returns the ranks that became
  /// stragglers with this step; a rank is returned again only after it has kept up for a while.
  [[nodiscard]] std::vector<Straggler> note(const std::vector<double>& busy_s);

 private:
  [[nodiscard]] double usual(std::size_t rank) const;
  [[nodiscard]] double of_step(const std::vector<std::size_t>& ranks, std::size_t step) const;
  [[nodiscard]] double over_peers(std::size_t rank, const std::vector<std::size_t>& peers) const;
  std::vector<int> group_;
  double ratio_;
  std::size_t window_;
  std::vector<std::deque<double>> past_;  ///< by rank, the steps of the window
  std::vector<bool> named_;
};

}  // namespace orrery::exec
