#pragma once
/// Places embedding tables on ranks so that the most loaded rank has as little load as possible, within its memory.
/// Load is the bytes that lookups move in a device's memory plus the bytes sent, weighted by how much slower the links
/// are than the memory. The result is exact where branch and bound ends within its budget; otherwise it comes from a
/// greedy choice with local search, and a lower bound says how far from the optimum it may be.
#include <cstdint>
#include <vector>

#include "clusters/cluster.h"
#include "models/recommender.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// One way to split a table: into equal parts, each on another rank.
struct TableOption {
  TableSharding sharding = TableSharding::whole;
  int parts = 1;       ///< number of parts, one per rank; for row and replicated: all ranks
  int columns = 1;     ///< parts into which the columns are split
  double load = 0;     ///< bytes that a part costs its rank in a step: lookups, and `network` and `within` weighted
  double memory = 0;   ///< bytes of a part with its optimizer state on the device
  double far = 0;      ///< its bytes in the host's memory
  double lookups = 0;  ///< bytes that a part's lookups and updates move
  double network = 0;  ///< bytes that a part sends and receives on links between nodes; with one node, on its links
  double within = 0;   ///< bytes in addition on the links within a node
  [[nodiscard]] double total() const { return load * parts; }
};

/// The planner's input. Plain data, so that tests can make any.
struct TableProblem {
  int ranks = 1, ranks_per_node = 1;
  double capacity = 0;                            ///< bytes of a rank for tables; 0: unlimited
  double far_capacity = 0;                        ///< bytes of the host's memory for them; 0: unlimited
  std::vector<std::vector<TableOption>> options;  ///< by table; not empty
};

struct TablePlan {
  TablePlacement placement;
  std::vector<TableOption> chosen;  ///< by table
  double load = 0;                  ///< of the most loaded rank
  double lower_bound = 0;           ///< every placement has a rank with at least this load
  double memory = 0;                ///< of the rank with most
  bool fits = true;                 ///< within the capacity; false: no placement that fits was found
  bool exact = false;
  [[nodiscard]] double gap() const { return lower_bound > 0 ? load / lower_bound - 1 : 0; }
};

/// The options that a sharding allows each table; for `automatic`, all that may be best.
[[nodiscard]] TableProblem table_problem(const models::Recommender& model, const clusters::Cluster& cluster,
                                         const PlanSpec& spec);
/// `nodes`: budget of branch and bound; 0 skips it.
[[nodiscard]] TablePlan plan_tables(const TableProblem& problem, std::int64_t nodes = 200'000);

/// The share of the host's memory for tables. The rest is for the system, the data, and rows of NVMe on their way.
inline constexpr double kForTablesOnHost = 0.95;
[[nodiscard]] double host_memory_of_rank(const clusters::Cluster& cluster);  ///< bytes; 0: the cluster does not say
/// Bytes of a device for tables: what MLPs, activations and messages leave.
[[nodiscard]] double device_memory_for_tables(const models::Recommender& model, const clusters::Cluster& cluster);

/// The placement for a plan that does not give one.
[[nodiscard]] TablePlacement place_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                          const PlanSpec& spec);

/// A row of the table that shows a placement: what one table costs each of its ranks.
struct TableReport {
  std::int64_t table = 0, rows = 0;
  TablePlace place;
  TableOption option;
};
[[nodiscard]] std::vector<TableReport> describe_tables(const models::Recommender& model,
                                                       const clusters::Cluster& cluster, const PlanSpec& spec);

}  // namespace orrery::plan
