#pragma once
/// Tables on ranks while a placement is looked for: what each rank has so far, and which ranks have room. Private to
/// plan/; see plan/spec/table_planner.h.
#include <cstddef>
#include <vector>

#include "plan/spec/table_planner.h"

namespace orrery::plan {

/// A load is better than another only if it is lower by more than rounding may make of it.
inline constexpr double kTableSlack = 1 + 1e-12;

/// A table's option and ranks; no ranks means all of them, alike.
struct TableChoice {
  std::size_t option = 0;
  std::vector<int> ranks = {};
};

/// The least total cost of a table's options.
[[nodiscard]] double least_total(const std::vector<TableOption>& options);
/// Tables, those with the greatest such cost first.
[[nodiscard]] std::vector<std::size_t> heaviest_first(const TableProblem& problem);
/// The sum of these costs over the tables from each place of the order on.
[[nodiscard]] std::vector<double> least_totals(const TableProblem& problem, const std::vector<std::size_t>& order);
/// Every placement has a rank with at least this load.
[[nodiscard]] double least_possible_load(const TableProblem& problem);
/// Whether the parts would fit if they could be cut anyhow.
[[nodiscard]] bool may_fit(const TableProblem& problem);
/// Whether an option puts a table's rows, or those of each part of its columns, on the ranks of one node.
[[nodiscard]] bool by_node(const TableOption& option);

class TableLoads {
 public:
  /// No tables yet. `problem` must outlive this.
  explicit TableLoads(const TableProblem& problem)
      : problem_(&problem), load_(count(), 0), memory_(count(), 0), far_(count(), 0) {}

  [[nodiscard]] const TableOption& option(std::size_t table, const TableChoice& choice) const {
    return problem_->options[table][choice.option];
  }
  /// Puts a table there, or with sign -1 takes it away.
  void add(std::size_t table, const TableChoice& choice, double sign);

  [[nodiscard]] const std::vector<double>& load() const { return load_; }
  [[nodiscard]] double most_load() const;
  [[nodiscard]] double most_memory() const;
  /// Whether no rank has more than its capacity.
  [[nodiscard]] bool fits() const;
  [[nodiscard]] bool everywhere(const TableOption& o) const { return o.parts == problem_->ranks; }
  /// Whether a part of the option has no room on the rank.
  [[nodiscard]] bool full(int rank, const TableOption& o) const;
  [[nodiscard]] bool has_room(const TableOption& o, const std::vector<int>& ranks) const;
  /// Whether two ranks have the same so far.
  [[nodiscard]] bool alike(int a, int b) const;
  /// Whether the ranks still have room if a part of `mine`, on rank `a`, and one of `theirs`, on rank `b`, change
  /// places.
  [[nodiscard]] bool may_exchange(int a, const TableOption& mine, int b, const TableOption& theirs) const;
  /// The least loaded ranks that have room, as many as the option has parts; of one node where the option requires it.
  /// `room`: whether all of them have.
  [[nodiscard]] std::vector<int> lightest(const TableOption& o, bool& room) const;
  /// The load of the most loaded of these ranks after adding the option.
  [[nodiscard]] double load_with(const TableOption& o, const std::vector<int>& ranks) const;

 private:
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(problem_->ranks); }
  void add(std::size_t rank, const TableOption& o, double sign);
  [[nodiscard]] std::vector<int> lightest_nodes(const TableOption& o, bool& room) const;

  const TableProblem* problem_;
  std::vector<double> load_, memory_, far_;  ///< by rank
};

}  // namespace orrery::plan
