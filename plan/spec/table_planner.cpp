// Branch and bound over tables, options and ranks. A problem that is too large for it gets a greedy placement, which is
// then improved: tables are moved, split and exchanged to lower the load of the most loaded rank.
#include "plan/spec/table_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/ensure.h"

namespace orrery::plan {
namespace {

constexpr double kSlack = 1 + 1e-12;

/// A table's option and ranks; no ranks means all of them, alike.
struct Choice {
  std::size_t option = 0;
  std::vector<int> ranks;
};

struct Ranks {
  explicit Ranks(std::size_t count) : load(count, 0), memory(count, 0), far(count, 0) {}
  std::vector<double> load, memory, far;
};

class Planner {
 public:
  explicit Planner(const TableProblem& problem) : p_(problem), order_(problem.options.size()), here_(count()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto weight = [&](std::size_t t) { return least_total(t); };
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
    choices_.resize(p_.options.size());
    left_.assign(order_.size() + 1, 0);
    for (std::size_t i = order_.size(); i-- > 0;) left_[i] = left_[i + 1] + least_total(order_[i]);
  }

  TablePlan run(std::int64_t nodes) {
    TablePlan plan;
    plan.lower_bound = lower_bound();
    // Below a target load, tables are placed by their total cost; several targets above the bound are tried.
    bool any_fits = false;
    for (const double above : {0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
      here_ = Ranks(count());
      fits_ = greedy(plan.lower_bound * (1 + above));
      improve();
      const double load = most_load();
      if (any_fits && !fits_) continue;
      if (any_fits == fits_ && load >= best_load_) continue;
      best_ = choices_;
      best_load_ = load;
      any_fits = fits_;
    }
    fits_ = any_fits;
    if (nodes > 0 && best_load_ > plan.lower_bound * kSlack && may_fit()) plan.exact = branch_and_bound(nodes);
    plan.exact |= fits_ && best_load_ <= plan.lower_bound * kSlack;
    if (plan.exact) plan.lower_bound = fits_ ? best_load_ : plan.lower_bound;
    write(plan);
    return plan;
  }

 private:
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(p_.ranks); }
  [[nodiscard]] bool everywhere(const TableOption& o) const { return o.parts == p_.ranks; }
  [[nodiscard]] double capacity() const {
    return p_.capacity > 0 ? p_.capacity : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] bool full(std::size_t rank, const TableOption& o) const {
    return here_.memory[rank] + o.memory > capacity() ||
           (p_.far_capacity > 0 && here_.far[rank] + o.far > p_.far_capacity);
  }
  [[nodiscard]] bool any_full(const TableOption& o) const {
    for (std::size_t rank = 0; rank < count(); ++rank)
      if (full(rank, o)) return true;
    return false;
  }
  [[nodiscard]] double least_total(std::size_t t) const {
    double least = std::numeric_limits<double>::infinity();
    for (const TableOption& o : p_.options[t]) least = std::min(least, o.total());
    return least;
  }
  // If the most loaded rank of a placement has T, no part costs more than T, so the tables' least totals among such
  // options sum to at most T times the ranks. The least T for which that holds is a bound.
  [[nodiscard]] double lower_bound() const {
    const auto holds = [&](double bound) {
      double sum = 0;
      for (const std::vector<TableOption>& options : p_.options) {
        double least = std::numeric_limits<double>::infinity();
        for (const TableOption& o : options)
          if (o.load <= bound) least = std::min(least, o.total());
        sum += least;
      }
      return sum <= bound * static_cast<double>(p_.ranks);
    };
    double low = left_.front() / static_cast<double>(p_.ranks), high = low;
    if (holds(low)) return low;
    while (!holds(high)) high *= 2;
    constexpr int kHalvings = 50;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (holds(middle) ? high : low) = middle;
    }
    return low;
  }
  [[nodiscard]] double most_load() const { return *std::max_element(here_.load.begin(), here_.load.end()); }

  // Whether the parts would fit if they could be cut anyhow.
  [[nodiscard]] bool may_fit() const {
    double memory = 0;
    for (const std::vector<TableOption>& options : p_.options) {
      double least = std::numeric_limits<double>::infinity();
      for (const TableOption& o : options) least = std::min(least, o.memory * o.parts);
      memory += least;
    }
    return memory <= capacity() * static_cast<double>(p_.ranks);
  }

  void add(std::size_t t, const Choice& choice, double sign) {
    const TableOption& o = p_.options[t][choice.option];
    if (choice.ranks.empty()) {
      for (std::size_t r = 0; r < count(); ++r) add(r, o, sign);
      return;
    }
    for (const int r : choice.ranks) add(static_cast<std::size_t>(r), o, sign);
  }
  void add(std::size_t rank, const TableOption& o, double sign) {
    here_.load[rank] += sign * o.load;
    here_.memory[rank] += sign * o.memory;
    here_.far[rank] += sign * o.far;
  }

  // The least loaded ranks that have room, as many as the option has parts; of one node where the option requires it.
  [[nodiscard]] std::vector<int> lightest(const TableOption& o, bool& room) const {
    room = true;
    if (everywhere(o)) {
      room = !any_full(o);
      return {};
    }
    std::vector<int> ranks(count());
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto full = [&](int r) { return this->full(static_cast<std::size_t>(r), o); };
    if (o.sharding == TableSharding::node_row || o.sharding == TableSharding::grid) return lightest_nodes(o, room);
    const auto parts = static_cast<std::ptrdiff_t>(o.parts);
    std::partial_sort(ranks.begin(), ranks.begin() + parts, ranks.end(), [&](int a, int b) {
      const auto key = [&](int r) { return std::tuple(full(r), here_.load[static_cast<std::size_t>(r)], r); };
      return key(a) < key(b);
    });
    ranks.resize(static_cast<std::size_t>(o.parts));
    for (const int r : ranks) room &= !full(r);
    return ranks;
  }
  [[nodiscard]] std::vector<int> lightest_nodes(const TableOption& o, bool& room) const {
    const int nodes = p_.ranks / p_.ranks_per_node, rows = o.parts / o.columns;
    std::vector<std::tuple<bool, double, int>> weights;
    for (int node = 0; node < nodes; ++node) {
      double most = 0;
      bool full = false;
      for (int i = 0; i < rows; ++i) {
        const auto r = static_cast<std::size_t>(node * p_.ranks_per_node + i);
        most = std::max(most, here_.load[r]);
        full |= this->full(r, o);
      }
      weights.emplace_back(full, most, node);
    }
    std::sort(weights.begin(), weights.end());
    std::vector<int> ranks;
    for (int c = 0; c < o.columns; ++c) {
      const auto& [full, most, node] = weights[static_cast<std::size_t>(c)];
      room &= !full;
      for (int i = 0; i < rows; ++i) ranks.push_back(node * p_.ranks_per_node + i);
    }
    return ranks;
  }

  // The load of the most loaded rank of a choice after adding the option.
  [[nodiscard]] double load_with(const TableOption& o, const std::vector<int>& ranks) const {
    double most = 0;
    if (ranks.empty())
      most = most_load();
    else
      for (const int r : ranks) most = std::max(most, here_.load[static_cast<std::size_t>(r)]);
    return most + o.load;
  }

  // Takes tables by falling weight. Of the options that leave all ranks below the target, the one with the least total
  // cost wins; if there is none, the one that exceeds it least.
  bool greedy(double target) {
    bool all_fit = true;
    for (const std::size_t t : order_) {
      Choice best;
      std::tuple<bool, double, double> best_key;
      for (std::size_t i = 0; i < p_.options[t].size(); ++i) {
        const TableOption& o = p_.options[t][i];
        bool room = false;
        std::vector<int> ranks = lightest(o, room);
        const std::tuple key{!room, std::max(0.0, load_with(o, ranks) - target), o.total()};
        if (i > 0 && !(key < best_key)) continue;
        best_key = key;
        best = {i, std::move(ranks)};
      }
      all_fit &= !std::get<0>(best_key);
      choices_[t] = std::move(best);
      add(t, choices_[t], 1);
    }
    return all_fit;
  }

  [[nodiscard]] bool on(std::size_t t, int rank) const {
    const Choice& c = choices_[t];
    return c.ranks.empty() || std::find(c.ranks.begin(), c.ranks.end(), rank) != c.ranks.end();
  }

  // The most loaded rank gives something away, as long as that lowers the maximum.
  void improve() {
    constexpr int kMostTurns = 20'000;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const auto heaviest =
          static_cast<int>(std::max_element(here_.load.begin(), here_.load.end()) - here_.load.begin());
      if (!relieve(heaviest)) return;
    }
  }
  bool relieve(int rank) {
    const double before = most_load();
    for (const std::size_t t : order_) {
      if (!on(t, rank)) continue;
      const Choice old = choices_[t];
      add(t, old, -1);
      const double others = most_load();
      Choice best = old;
      double best_load = before;
      for (std::size_t i = 0; i < p_.options[t].size(); ++i) {
        bool room = false;
        std::vector<int> ranks = lightest(p_.options[t][i], room);
        const double load = std::max(others, load_with(p_.options[t][i], ranks));
        if ((room || !fits_) && load * kSlack < best_load) best_load = load, best = {i, std::move(ranks)};
      }
      choices_[t] = std::move(best);
      add(t, choices_[t], 1);
      if (best_load < before) return true;
    }
    return exchange(rank);
  }
  // Exchanges two tables of one part each.
  bool exchange(int rank) {
    const double before = most_load();
    const auto r = static_cast<std::size_t>(rank);
    for (const std::size_t a : order_) {
      if (choices_[a].ranks.size() != 1 || choices_[a].ranks[0] != rank) continue;
      const TableOption& mine = p_.options[a][choices_[a].option];
      for (const std::size_t b : order_) {
        if (choices_[b].ranks.size() != 1 || choices_[b].ranks[0] == rank) continue;
        const TableOption& theirs = p_.options[b][choices_[b].option];
        const auto other = static_cast<std::size_t>(choices_[b].ranks[0]);
        const double less = mine.load - theirs.load, memory = mine.memory - theirs.memory;
        const double far = mine.far - theirs.far;
        if (less <= 0 || (here_.load[other] + less) * kSlack >= before) continue;
        if (here_.memory[other] + memory > capacity() || here_.memory[r] - memory > capacity()) continue;
        if (p_.far_capacity > 0 && (here_.far[other] + far > p_.far_capacity || here_.far[r] - far > p_.far_capacity))
          continue;
        add(a, choices_[a], -1), add(b, choices_[b], -1);
        std::swap(choices_[a].ranks, choices_[b].ranks);
        add(a, choices_[a], 1), add(b, choices_[b], 1);
        return true;
      }
    }
    return false;
  }

  // -- branch and bound: true if it ended within the budget --------------------------------------------------------
  // Tables times parts may be far more than calls fit on a stack, so what is open is kept in vectors.

  /// One of a choice's parts, or its rows on one node: which rank or node it is on, and from which on others are tried.
  struct Pick {
    int first = 0, next = 0;
    bool placed = false;
  };
  /// A table whose options are being tried, in their order, while the heavier tables stay where they are.
  struct Level {
    std::size_t table = 0;
    Choice choice;
    std::vector<Pick> picks;
    bool begun = false;  ///< the option
    Ranks before;        ///< with the heavier tables alone; adding and subtracting would let sums drift
  };
  enum class Found { set, none, out_of_budget };

  bool branch_and_bound(std::int64_t nodes) {
    budget_ = nodes;
    choices_left_ = kChoices * nodes;
    here_ = Ranks(count());
    if (!fits_) best_load_ = std::numeric_limits<double>::infinity();
    return search() && std::isfinite(best_load_);
  }
  bool search() {
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
  [[nodiscard]] Level level(std::size_t depth) const { return {order_[depth], {}, {}, false, here_}; }

  // Whether tables from `depth` on may still be placed better than in the best placement; notes a better one.
  bool open(std::size_t depth) {
    const double most = most_load();
    const double sum = std::accumulate(here_.load.begin(), here_.load.end(), 0.0) + left_[depth];
    if (std::max(most, sum / static_cast<double>(p_.ranks)) * kSlack >= best_load_) return false;
    if (depth < order_.size()) return true;
    best_load_ = most;
    best_ = choices_;
    fits_ = true;
    return false;
  }
  bool take(std::size_t t, const Choice& choice) {
    const TableOption& o = p_.options[t][choice.option];
    bool room = true;
    if (choice.ranks.empty()) room = !any_full(o);
    for (const int r : choice.ranks) room &= !full(static_cast<std::size_t>(r), o);
    if (!room) return false;
    choices_[t] = choice;
    add(t, choice, 1);
    return true;
  }

  // The next option and set of ranks of a table.
  Found next_set(Level& at) {
    for (; at.choice.option < p_.options[at.table].size(); ++at.choice.option, at.begun = false) {
      const TableOption& o = p_.options[at.table][at.choice.option];
      if (everywhere(o)) {
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
    const bool by_node = o.sharding == TableSharding::node_row || o.sharding == TableSharding::grid;
    const int width = by_node ? o.parts / o.columns : 1;
    std::vector<int>& ranks = at.choice.ranks;
    while (!at.picks.empty()) {
      Pick& pick = at.picks.back();
      if (std::exchange(pick.placed, false)) ranks.resize(ranks.size() - static_cast<std::size_t>(width));
      if (!by_node) skip(pick, o);
      if (pick.next >= (by_node ? p_.ranks / p_.ranks_per_node : p_.ranks)) {
        at.picks.pop_back();
        continue;
      }
      const int chosen = pick.next++;
      pick.placed = true;
      for (int i = 0; i < width; ++i) ranks.push_back(by_node ? chosen * p_.ranks_per_node + i : chosen);
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
      const auto alike = [&](std::size_t a, std::size_t b) {
        return here_.load[a] == here_.load[b] && here_.memory[a] == here_.memory[b] && here_.far[a] == here_.far[b];
      };
      for (int q = r; q-- > pick.first;)
        if (alike(static_cast<std::size_t>(q), static_cast<std::size_t>(r))) return true;
      return false;
    };
    while (pick.next < p_.ranks && (full(static_cast<std::size_t>(pick.next), o) || (alike_ && as_before(pick.next))))
      ++pick.next;
  }

  void write(TablePlan& plan) {
    std::vector<TablePlace> places;
    here_ = Ranks(count());
    for (std::size_t t = 0; t < best_.size(); ++t) {
      const TableOption& o = p_.options[t][best_[t].option];
      add(t, best_[t], 1);
      TablePlace place;
      place.replicated = o.sharding == TableSharding::replicated;
      place.columns = o.columns;
      place.ranks = best_[t].ranks;
      if (!place.replicated && place.ranks.empty()) {
        place.ranks.resize(count());
        std::iota(place.ranks.begin(), place.ranks.end(), 0);
      }
      places.push_back(std::move(place));
      plan.chosen.push_back(o);
    }
    plan.load = most_load();
    plan.memory = *std::max_element(here_.memory.begin(), here_.memory.end());
    plan.fits = plan.memory <= capacity() &&
                (p_.far_capacity <= 0 || *std::max_element(here_.far.begin(), here_.far.end()) <= p_.far_capacity);
    plan.placement = TablePlacement(std::move(places));
  }

  const TableProblem& p_;
  std::vector<std::size_t> order_;  ///< tables, heaviest first
  std::vector<double> left_;        ///< least load of the tables from each place of the order on
  Ranks here_;
  std::vector<Choice> choices_, best_;
  double best_load_ = std::numeric_limits<double>::infinity();
  bool fits_ = true;
  /// Ranks of equal load and memory are interchangeable, unless options tell nodes apart.
  bool alike_ = std::none_of(p_.options.begin(), p_.options.end(), [](const std::vector<TableOption>& options) {
    return std::any_of(options.begin(), options.end(), [](const TableOption& o) {
      return o.sharding == TableSharding::node_row || o.sharding == TableSharding::grid;
    });
  });
  std::int64_t budget_ = 0;
  /// Partial sets of ranks, of which there may be any number between two tables.
  static constexpr std::int64_t kChoices = 16;
  std::int64_t choices_left_ = 0;
};

}  // namespace

TablePlan plan_tables(const TableProblem& problem, std::int64_t nodes) {
  ENSURE(problem.ranks > 0 && !problem.options.empty(), "{} tables on {} ranks", problem.options.size(), problem.ranks);
  return Planner(problem).run(nodes);
}

}  // namespace orrery::plan
