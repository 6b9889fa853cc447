// A greedy placement for several targets, each improved: tables are moved, split and exchanged to lower the load of the
// most loaded rank. Branch and bound (plan/spec/table_search.h) then looks for a better one within its budget.
#include "plan/spec/table_planner.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/ensure.h"
#include "plan/spec/table_loads.h"
#include "plan/spec/table_search.h"

namespace orrery::plan {
namespace {

// All tables, first placed greedily, then improved.
class GreedyPlacement {
 public:
  /// Below the load `target`, tables are placed by their total cost.
  GreedyPlacement(const TableProblem& problem, const std::vector<std::size_t>& order, double target)
      : problem_(problem), order_(order), here_(problem), choices_(problem.options.size()) {
    fits_ = place(target);
    improve();
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] FoundPlacement found() const { return {choices_, here_.most_load()}; }

 private:
  // Takes tables by falling weight. Of the options that leave all ranks below the target, the one with the least total
  // cost wins; if there is none, the one that exceeds it least.
  bool place(double target) {
    bool all_fit = true;
    for (const std::size_t t : order_) {
      TableChoice best;
      std::tuple<bool, double, double> best_key;
      for (std::size_t i = 0; i < problem_.options[t].size(); ++i) {
        const TableOption& o = problem_.options[t][i];
        bool room = false;
        std::vector<int> ranks = here_.lightest(o, room);
        const std::tuple key{!room, std::max(0.0, here_.load_with(o, ranks) - target), o.total()};
        if (i > 0 && !(key < best_key)) continue;
        best_key = key;
        best = {i, std::move(ranks)};
      }
      all_fit &= !std::get<0>(best_key);
      choices_[t] = std::move(best);
      here_.add(t, choices_[t], 1);
    }
    return all_fit;
  }

  [[nodiscard]] bool on(std::size_t t, int rank) const {
    const TableChoice& c = choices_[t];
    return c.ranks.empty() || std::find(c.ranks.begin(), c.ranks.end(), rank) != c.ranks.end();
  }

  // The most loaded rank gives something away, as long as that lowers the maximum.
  void improve() {
    constexpr int kMostTurns = 20'000;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const auto heaviest =
          static_cast<int>(std::max_element(here_.load().begin(), here_.load().end()) - here_.load().begin());
      if (!relieve(heaviest)) return;
    }
  }
  bool relieve(int rank) {
    const double before = here_.most_load();
    for (const std::size_t t : order_) {
      if (!on(t, rank)) continue;
      const TableChoice old = choices_[t];
      here_.add(t, old, -1);
      const double others = here_.most_load();
      TableChoice best = old;
      double best_load = before;
      for (std::size_t i = 0; i < problem_.options[t].size(); ++i) {
        bool room = false;
        std::vector<int> ranks = here_.lightest(problem_.options[t][i], room);
        const double load = std::max(others, here_.load_with(problem_.options[t][i], ranks));
        if ((room || !fits_) && load * kTableSlack < best_load) best_load = load, best = {i, std::move(ranks)};
      }
      choices_[t] = std::move(best);
      here_.add(t, choices_[t], 1);
      if (best_load < before) return true;
    }
    return exchange(rank);
  }
  // Exchanges two tables of one part each.
  bool exchange(int rank) {
    const double before = here_.most_load();
    for (const std::size_t a : order_) {
      if (choices_[a].ranks.size() != 1 || choices_[a].ranks[0] != rank) continue;
      const TableOption& mine = here_.option(a, choices_[a]);
      for (const std::size_t b : order_) {
        if (choices_[b].ranks.size() != 1 || choices_[b].ranks[0] == rank) continue;
        const TableOption& theirs = here_.option(b, choices_[b]);
        const int other = choices_[b].ranks[0];
        const double less = mine.load - theirs.load;
        if (less <= 0 || (here_.load()[static_cast<std::size_t>(other)] + less) * kTableSlack >= before) continue;
        if (!here_.may_exchange(rank, mine, other, theirs)) continue;
        here_.add(a, choices_[a], -1), here_.add(b, choices_[b], -1);
        std::swap(choices_[a].ranks, choices_[b].ranks);
        here_.add(a, choices_[a], 1), here_.add(b, choices_[b], 1);
        return true;
      }
    }
    return false;
  }

  const TableProblem& problem_;
  const std::vector<std::size_t>& order_;  ///< tables, heaviest first
  TableLoads here_;
  std::vector<TableChoice> choices_;
  bool fits_ = true;
};

void write_placement(const TableProblem& problem, const FoundPlacement& found, TablePlan& plan) {
  std::vector<TablePlace> places;
  TableLoads loads(problem);
  for (std::size_t t = 0; t < found.choices.size(); ++t) {
    const TableOption& o = loads.option(t, found.choices[t]);
    loads.add(t, found.choices[t], 1);
    TablePlace place;
    place.replicated = o.sharding == TableSharding::replicated;
    place.columns = o.columns;
    place.ranks = found.choices[t].ranks;
    if (!place.replicated && place.ranks.empty()) {
      place.ranks.resize(static_cast<std::size_t>(problem.ranks));
      std::iota(place.ranks.begin(), place.ranks.end(), 0);
    }
    places.push_back(std::move(place));
    plan.chosen.push_back(o);
  }
  plan.load = loads.most_load();
  plan.memory = loads.most_memory();
  plan.fits = loads.fits();
  plan.placement = TablePlacement(std::move(places));
}

}  // namespace

TablePlan plan_tables(const TableProblem& problem, std::int64_t nodes) {
  ENSURE(problem.ranks > 0 && !problem.options.empty(), "{} tables on {} ranks", problem.options.size(), problem.ranks);
  TablePlan plan;
  plan.lower_bound = least_possible_load(problem);
  const std::vector<std::size_t> order = heaviest_first(problem);
  FoundPlacement best;
  bool fits = false;
  for (const double above : {0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
    const GreedyPlacement tried(problem, order, plan.lower_bound * (1 + above));
    if (fits && !tried.fits()) continue;
    if (fits == tried.fits() && tried.found().load >= best.load) continue;
    best = tried.found();
    fits = tried.fits();
  }
  if (nodes > 0 && best.load > plan.lower_bound * kTableSlack && may_fit(problem)) {
    FoundPlacement better;
    if (fits) better.load = best.load;
    plan.exact = search_tables(problem, nodes, better);
    if (!better.choices.empty()) best = std::move(better), fits = true;
  }
  plan.exact |= fits && best.load <= plan.lower_bound * kTableSlack;
  if (plan.exact) plan.lower_bound = fits ? best.load : plan.lower_bound;
  write_placement(problem, best, plan);
  return plan;
}

}  // namespace orrery::plan
