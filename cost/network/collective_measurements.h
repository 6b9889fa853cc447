#pragma once
/// Collectives as measured by others and as predicted: the file format of such measurements, and the errors over its
/// rows.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/network/collectives.h"
#include "cost/parameters/calibration.h"

namespace orrery::cost {

/// One measured bandwidth. `fitted`: it was used to set a parameter of its series, so it judges nothing.
struct MeasuredCollective {
  double bytes = 0;          ///< message size as nccl-tests define it
  double bus_bandwidth = 0;  ///< bytes/s
  bool fitted = false;
};

/// Rows of one machine, operation and program.
struct CollectiveSeries {
  std::string id;
  std::string source;
  std::string cluster;  ///< catalogue name or path
  int nodes = 1;
  int per_node = 0;  ///< participating devices per node; 0: all
  Operation operation = Operation::all_reduce;
  std::string algorithm;    ///< forced (NCCL_ALGO) or reported; empty: chosen by the library
  double launch_floor = 0;  ///< s: minimum time between calls, however short they are
  double launch_each = 0;   ///< s: what the measuring program adds to each call
  std::string launch_source;
  std::map<std::string, Parameter> parameters;  ///< network.* of this machine
  std::string left_out;                         ///< why the series is not used for judging; empty: it is
  std::vector<MeasuredCollective> rows;
  base::Location at;
};

/// tests/validation/collectives/*.yaml; strict.
[[nodiscard]] base::Result<std::vector<CollectiveSeries>> parse_measured_collectives(std::string_view text,
                                                                                     std::string file);

enum class Standing { judged, fitted, small, left_out };
[[nodiscard]] const char* name_of(Standing standing);  ///< "left out"

struct PredictedCollective {
  std::string series;
  double bytes = 0, measured = 0, predicted = 0;  ///< bus bandwidths, bytes/s
  double seconds = 0;
  double error = 0;  ///< predicted / measured - 1
  std::string algorithm, protocol;
  Standing standing = Standing::judged;
};

struct CollectiveErrors {
  int judged = 0;
  double median = 0, mean = 0, p90 = 0, worst = 0;  ///< of the judged rows' |error|
};

/// Smaller messages judge nothing: what a program adds to each call outweighs the transfer.
inline constexpr double kJudgedFrom = 1e6;

/// The first devices of each of the first nodes. The caller must not ask for more nodes than `cluster` has.
[[nodiscard]] std::vector<int> members_of(const clusters::Cluster& cluster, int nodes, int per_node);

/// Applies defaults(cluster), `calibrations`, then the series' own parameters.
[[nodiscard]] std::vector<PredictedCollective> predict_series(const CollectiveSeries& series,
                                                              const clusters::Cluster& cluster,
                                                              const std::vector<Calibration>& calibrations = {});
[[nodiscard]] CollectiveErrors errors_of(const std::vector<PredictedCollective>& rows);

}  // namespace orrery::cost
