#pragma once
/// Places embedding tables on ranks: by memory, by what their lookups move in a rank's memory and by what they send, so
/// that the rank with most has as little as can be. What a rank does is counted in bytes of its device's memory: what
/// travels counts as so many bytes more as links are slower than it. Exact where branch and bound comes to an end
/// within its budget, else greedy with local search; then a lower bound says how far it may be off.
#include <cstdint>
#include <vector>

#include "clusters/cluster.h"
#include "models/recommender.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// One way to split a table: so many equal parts, each on another rank.
struct TableOption {
  TableSharding sharding = TableSharding::whole;
  int parts = 1;       ///< ranks that have one; all of them: row, and replicated
  int columns = 1;     ///< of the parts
  double load = 0;     ///< bytes that a part costs its rank in a step: lookups + weight * network
  double memory = 0;   ///< bytes of a part with its optimizer state on the device
  double far = 0;      ///< its bytes in the host's memory
  double lookups = 0;  ///< bytes that a part's lookups and updates move
  double network = 0;  ///< bytes that a part sends and receives
  [[nodiscard]] double total() const { return load * parts; }
};

/// What the planner weighs. Plain data, so that tests can make any.
struct TableProblem {
  int ranks = 1, ranks_per_node = 1;
  double capacity = 0;                            ///< bytes of a rank for tables; 0: any
  double far_capacity = 0;                        ///< of the host's memory for them; 0: any
  std::vector<std::vector<TableOption>> options;  ///< by table; not empty
};

struct TablePlan {
  TablePlacement placement;
  std::vector<TableOption> chosen;  ///< by table
  double load = 0;                  ///< of the rank with most
  double lower_bound = 0;           ///< no placement has a rank with most below it
  double memory = 0;                ///< of the rank with most
  bool fits = true;                 ///< within the capacity; false: none was found that does
  bool exact = false;
  [[nodiscard]] double gap() const { return lower_bound > 0 ? load / lower_bound - 1 : 0; }
};

/// The options that a sharding leaves each table; of `automatic` all that can be better.
[[nodiscard]] TableProblem table_problem(const models::Recommender& model, const clusters::Cluster& cluster,
                                         const PlanSpec& spec);
/// `nodes`: of branch and bound; 0: none is tried.
[[nodiscard]] TablePlan plan_tables(const TableProblem& problem, std::int64_t nodes = 200'000);

/// Of the host's memory, what is kept for tables: the rest is the system's, the data's, and of NVMe's on the way.
inline constexpr double kForTablesOnHost = 0.95;
[[nodiscard]] double host_memory_of_rank(const clusters::Cluster& cluster);  ///< bytes; 0: the cluster does not say
/// Bytes of a device for tables: what MLPs, activations and messages leave.
[[nodiscard]] double device_memory_for_tables(const models::Recommender& model, const clusters::Cluster& cluster);

/// The placement of a plan that has none written down.
[[nodiscard]] TablePlacement place_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                          const PlanSpec& spec);

/// A line of the placement's table: what one table costs on each of its ranks.
struct TableReport {
  std::int64_t table = 0, rows = 0;
  TablePlace place;
  TableOption option;
};
[[nodiscard]] std::vector<TableReport> describe_tables(const models::Recommender& model,
                                                       const clusters::Cluster& cluster, const PlanSpec& spec);

}  // namespace orrery::plan
