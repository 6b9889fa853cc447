// Branch and bound over tables, options and ranks: the heaviest tables first.
#include "plan/spec/table_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace orrery::plan {

namespace {

// Tables times parts may be far more than calls fit on a stack, so what is open is kept in vectors.
class TableSearch {
 public:
  TableSearch(const TableProblem& problem, std::int64_t nodes, FoundPlacement& best)
      : problem_(problem),
        order_(heaviest_first(problem)),
        left_(least_totals(problem, order_)),
        here_(problem),
        choices_(problem.options.size()),
        best_(best),
        alike_(std::none_of(problem.options.begin(), problem.options.end(),
                            [](const auto& options) { return std::any_of(options.begin(), options.end(), by_node); })),
        budget_(nodes),
        choices_left_(kChoices * nodes) {}

  // True if it ended within the budget.
  bool run() {
    std::vector<Level> levels;
    if (--budget_ < 0) return false;
    if (open(0)) levels.push_back(level(0));
    while (!levels.empty()) {
      Level& top = levels.back();
      here_ = top.before;
      const Found found = next_set(top);
      if (found == Found::out_of_budget) return false;
      if (found == Found::none) {
        levels.pop_back();
        continue;
      }
      if (!take(top.table, top.choice)) continue;
      if (--budget_ < 0) return false;
      if (open(levels.size())) levels.push_back(level(levels.size()));
    }
    return true;
  }

 private:
  /// One of a choice's parts, or its rows on one node: which rank or node it is on, and from which on others are tried.
  struct Pick {
    int first = 0, next = 0;
    bool placed = false;
  };
  /// A table whose options are being tried, in their order, while the heavier tables stay where they are.
  struct Level {
    std::size_t table = 0;
    TableChoice choice;
    std::vector<Pick> picks;
    bool begun = false;  ///< the option
    TableLoads before;   ///< with the heavier tables alone; adding and subtracting would let sums drift
  };
  enum class Found { set, none, out_of_budget };

  [[nodiscard]] Level level(std::size_t depth) const { return {order_[depth], {}, {}, false, here_}; }

  // Whether tables from `depth` on may still be placed better than in the best placement; notes a better one.
  bool open(std::size_t depth) {
    const double most = here_.most_load();
    const double sum = std::accumulate(here_.load().begin(), here_.load().end(), 0.0) + left_[depth];
    if (std::max(most, sum / static_cast<double>(problem_.ranks)) * kTableSlack >= best_.load) return false;
    if (depth < order_.size()) return true;
    best_ = {choices_, most};
    return false;
  }
  bool take(std::size_t t, const TableChoice& choice) {
    const TableOption& o = problem_.options[t][choice.option];
    const bool room = here_.has_room(o, choice.ranks);
    if (!room) return false;
    choices_[t] = choice;
    here_.add(t, choice, 1);
    return true;
  }

  // The next option and set of ranks of a table.
  Found next_set(Level& at) {
    for (; at.choice.option < problem_.options[at.table].size(); ++at.choice.option, at.begun = false) {
      const TableOption& o = problem_.options[at.table][at.choice.option];
      if (here_.everywhere(o)) {
        if (std::exchange(at.begun, true)) continue;
        return Found::set;
      }
      if (!std::exchange(at.begun, true) && !pick_from(at, 0)) return Found::out_of_budget;
      const Found found = next_set(at, o);
      if (found != Found::none) return found;
    }
    return Found::none;
  }
  Found next_set(Level& at, const TableOption& o) {
    const bool nodes = by_node(o);
    const int width = nodes ? o.parts / o.columns : 1;
    std::vector<int>& ranks = at.choice.ranks;
    while (!at.picks.empty()) {
      Pick& pick = at.picks.back();
      if (std::exchange(pick.placed, false)) ranks.resize(ranks.size() - static_cast<std::size_t>(width));
      if (!nodes) skip(pick, o);
      if (pick.next >= (nodes ? problem_.ranks / problem_.ranks_per_node : problem_.ranks)) {
        at.picks.pop_back();
        continue;
      }
      const int chosen = pick.next++;
      pick.placed = true;
      for (int i = 0; i < width; ++i) ranks.push_back(nodes ? chosen * problem_.ranks_per_node + i : chosen);
      if (static_cast<int>(ranks.size()) == o.parts) return Found::set;
      if (!pick_from(at, chosen + 1)) return Found::out_of_budget;
    }
    return Found::none;
  }
  bool pick_from(Level& at, int first) {
    at.picks.push_back({first, first, false});
    return --choices_left_ >= 0;
  }
  // Passes ranks without room, since no set with them is taken, and of ranks that are alike so far all but the first.
  void skip(Pick& pick, const TableOption& o) const {
    const auto as_before = [&](int r) {
      for (int q = r; q-- > pick.first;)
        if (here_.alike(q, r)) return true;
      return false;
    };
    while (pick.next < problem_.ranks && (here_.full(pick.next, o) || (alike_ && as_before(pick.next)))) ++pick.next;
  }

  const TableProblem& problem_;
  std::vector<std::size_t> order_;  ///< tables, heaviest first
  std::vector<double> left_;        ///< least load of the tables from each place of the order on
  TableLoads here_;
  std::vector<TableChoice> choices_;
  FoundPlacement& best_;
  /// Ranks of equal load and memory are interchangeable, unless options tell nodes apart.
  bool alike_;
  std::int64_t budget_ = 0;
  /// Partial sets of ranks, of which there may be any number between two tables.
  static constexpr std::int64_t kChoices = 16;
  std::int64_t choices_left_ = 0;
};

}  // namespace

bool search_tables(const TableProblem& problem, std::int64_t nodes, FoundPlacement& best) {
  return TableSearch(problem, nodes, best).run() && std::isfinite(best.load);
}

}  // namespace orrery::plan
