// What ranks have of tables, bounds that hold for every placement, and the choice of the least loaded ranks.
#include "plan/spec/table_loads.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace orrery::plan {

namespace {

// Bytes of a rank for tables.
double capacity_of(const TableProblem& problem) {
  return problem.capacity > 0 ? problem.capacity : std::numeric_limits<double>::infinity();
}

double most_of(const std::vector<double>& by_rank) {
  return *std::max_element(by_rank.begin(), by_rank.end());
}

}  // namespace

double least_total(const std::vector<TableOption>& options) {
  double least = std::numeric_limits<double>::infinity();
  for (const TableOption& o : options) least = std::min(least, o.total());
  return least;
}

// If the most loaded rank of a placement has T, no part costs more than T, so the tables' least totals among such
// options sum to at most T times the ranks. The least T for which that holds is a bound.
double least_possible_load(const TableProblem& problem) {
  const double sum_of_least = least_totals(problem, heaviest_first(problem)).front();
  const auto holds = [&](double bound) {
    double sum = 0;
    for (const std::vector<TableOption>& options : problem.options) {
      double least = std::numeric_limits<double>::infinity();
      for (const TableOption& o : options)
        if (o.load <= bound) least = std::min(least, o.total());
      sum += least;
    }
    return sum <= bound * static_cast<double>(problem.ranks);
  };
  double low = sum_of_least / static_cast<double>(problem.ranks), high = low;
  if (holds(low)) return low;
  while (!holds(high)) high *= 2;
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return low;
}

std::vector<std::size_t> heaviest_first(const TableProblem& problem) {
  std::vector<std::size_t> order(problem.options.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto weight = [&](std::size_t t) { return least_total(problem.options[t]); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  return order;
}

std::vector<double> least_totals(const TableProblem& problem, const std::vector<std::size_t>& order) {
  std::vector<double> left(order.size() + 1, 0);
  for (std::size_t i = order.size(); i-- > 0;) left[i] = left[i + 1] + least_total(problem.options[order[i]]);
  return left;
}

bool may_fit(const TableProblem& problem) {
  double memory = 0;
  for (const std::vector<TableOption>& options : problem.options) {
    double least = std::numeric_limits<double>::infinity();
    for (const TableOption& o : options) least = std::min(least, o.memory * o.parts);
    memory += least;
  }
  return memory <= capacity_of(problem) * static_cast<double>(problem.ranks);
}

bool by_node(const TableOption& option) {
  return option.sharding == TableSharding::node_row || option.sharding == TableSharding::grid;
}

void TableLoads::add(std::size_t table, const TableChoice& choice, double sign) {
  const TableOption& o = option(table, choice);
  if (choice.ranks.empty()) {
    for (std::size_t r = 0; r < count(); ++r) add(r, o, sign);
    return;
  }
  for (const int r : choice.ranks) add(static_cast<std::size_t>(r), o, sign);
}

void TableLoads::add(std::size_t rank, const TableOption& o, double sign) {
  load_[rank] += sign * o.load;
  memory_[rank] += sign * o.memory;
  far_[rank] += sign * o.far;
}

double TableLoads::most_load() const {
  return most_of(load_);
}

double TableLoads::most_memory() const {
  return most_of(memory_);
}

bool TableLoads::fits() const {
  return most_memory() <= capacity_of(*problem_) &&
         (problem_->far_capacity <= 0 || most_of(far_) <= problem_->far_capacity);
}

bool TableLoads::full(int rank, const TableOption& o) const {
  const auto r = static_cast<std::size_t>(rank);
  return memory_[r] + o.memory > capacity_of(*problem_) ||
         (problem_->far_capacity > 0 && far_[r] + o.far > problem_->far_capacity);
}

bool TableLoads::has_room(const TableOption& o, const std::vector<int>& ranks) const {
  const auto full = [&](int r) { return this->full(r, o); };
  if (!ranks.empty()) return std::none_of(ranks.begin(), ranks.end(), full);
  for (int r = 0; r < problem_->ranks; ++r)
    if (full(r)) return false;
  return true;
}

bool TableLoads::alike(int a, int b) const {
  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
  return load_[x] == load_[y] && memory_[x] == memory_[y] && far_[x] == far_[y];
}

bool TableLoads::may_exchange(int a, const TableOption& mine, int b, const TableOption& theirs) const {
  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
  const double memory = mine.memory - theirs.memory, far = mine.far - theirs.far;
  const double capacity = capacity_of(*problem_), far_capacity = problem_->far_capacity;
  if (memory_[y] + memory > capacity || memory_[x] - memory > capacity) return false;
  return far_capacity <= 0 || (far_[y] + far <= far_capacity && far_[x] - far <= far_capacity);
}

std::vector<int> TableLoads::lightest(const TableOption& o, bool& room) const {
  room = true;
  if (everywhere(o)) {
    room = has_room(o, {});
    return {};
  }
  std::vector<int> ranks(count());
  std::iota(ranks.begin(), ranks.end(), 0);
  if (by_node(o)) return lightest_nodes(o, room);
  const auto parts = static_cast<std::ptrdiff_t>(o.parts);
  std::partial_sort(ranks.begin(), ranks.begin() + parts, ranks.end(), [&](int a, int b) {
    const auto key = [&](int r) { return std::tuple(full(r, o), load_[static_cast<std::size_t>(r)], r); };
    return key(a) < key(b);
  });
  ranks.resize(static_cast<std::size_t>(o.parts));
  for (const int r : ranks) room &= !full(r, o);
  return ranks;
}

std::vector<int> TableLoads::lightest_nodes(const TableOption& o, bool& room) const {
  const int nodes = problem_->ranks / problem_->ranks_per_node, rows = o.parts / o.columns;
  std::vector<std::tuple<bool, double, int>> weights;
  for (int node = 0; node < nodes; ++node) {
    double most = 0;
    bool full = false;
    for (int i = 0; i < rows; ++i) {
      const int r = node * problem_->ranks_per_node + i;
      most = std::max(most, load_[static_cast<std::size_t>(r)]);
      full |= this->full(r, o);
    }
    weights.emplace_back(full, most, node);
  }
  std::sort(weights.begin(), weights.end());
  std::vector<int> ranks;
  for (int c = 0; c < o.columns; ++c) {
    const auto& [full, most, node] = weights[static_cast<std::size_t>(c)];
    room &= !full;
    for (int i = 0; i < rows; ++i) ranks.push_back(node * problem_->ranks_per_node + i);
  }
  return ranks;
}

double TableLoads::load_with(const TableOption& o, const std::vector<int>& ranks) const {
  double most = 0;
  if (ranks.empty())
    most = most_load();
  else
    for (const int r : ranks) most = std::max(most, load_[static_cast<std::size_t>(r)]);
  return most + o.load;
}

}  // namespace orrery::plan
