#pragma once
/// Branch and bound over tables, options and ranks. Private to plan/; see plan/spec/table_planner.h.
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/spec/table_loads.h"

namespace orrery::plan {

/// A placement of all tables, and the load of its most loaded rank.
struct FoundPlacement {
  std::vector<TableChoice> choices = {};  ///< by table
  double load = std::numeric_limits<double>::infinity();
};

/// Looks for a placement that fits and has a lower load than `best`, to which it writes each one found. `nodes`: budget
/// of tables placed. True if it ended within the budget, with any placement that fits.
[[nodiscard]] bool search_tables(const TableProblem& problem, std::int64_t nodes, FoundPlacement& best);

}  // namespace orrery::plan
