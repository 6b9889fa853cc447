#pragma once
/// Results of the verbs as plain records, so that reports/ can show them without knowing sim/. All times in seconds,
/// sizes in bytes; names follow docs/json.md.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::cost {

/// How the mean rank spends a step's time; the parts sum to the step time (docs/glossary.md).
struct Breakdown {
  double forward = 0, backward = 0, recompute = 0, optimizer = 0;                       ///< compute
  double tensor_communication = 0, data_communication = 0, pipeline_communication = 0;  ///< exposed
  double exchange_communication = 0;  ///< exposed: all-to-alls of tokens to experts, or of embeddings
  double copies = 0;                  ///< offload, exposed
  double bubble = 0;                  ///< waiting for another stage that has no more to do
  double overhead = 0;                ///< the software's cost per step outside the schedule
  double contention = 0;              ///< exposed: the time that messages and copies take beyond an idle network's
  double imbalance = 0;               ///< waiting for ranks that have more to do
  /// Exposed communication and copies of every kind.
  [[nodiscard]] double exposed() const {
    return tensor_communication + exchange_communication + data_communication + pipeline_communication + copies +
           contention;
  }
};

/// What a step takes from the grid, joules.
struct Energy {
  double devices = 0;
  double hosts = 0;     ///< all parts of the nodes except their devices
  double network = 0;   ///< switches and optics between nodes
  double facility = 0;  ///< cooling and losses of the site: its PUE
  [[nodiscard]] double total() const { return devices + hosts + network + facility; }
};

/// The part of a rank's waiting for others that is due to the extra work of the rank with most. Times in one step.
[[nodiscard]] constexpr double imbalance_of(double waiting, double own_work, double most_work) {
  const double more = most_work > own_work ? most_work - own_work : 0;
  return more < waiting ? more : waiting;
}

/// One row for each dimension of process groups and operation.
struct CommunicationRow {
  std::string dimension;   ///< "tensor", "data", "pipeline", "embedding", "world"
  std::string operation;   ///< "all_reduce", "all_gather", "reduce_scatter", "send"
  std::int64_t count = 0;  ///< per rank and step
  double bytes = 0;        ///< total message bytes per rank and step
  double time_s = 0;       ///< transfer time per rank and step
  double exposed_s = 0;
  double bus_bandwidth = 0;  ///< bytes/s, nccl-tests' definition
  double contention_s = 0;   ///< the part of exposed_s that an idle network would save
};

struct LinkRow {
  std::string name;                                   ///< link class
  double bytes = 0;                                   ///< per step, over all links of the class
  double mean_utilisation = 0, peak_utilisation = 0;  ///< share of capacity over the step: class mean, busiest link
};

/// Memory of a stage by purpose, at its peak.
struct MemoryRow {
  plan::StageId stage = plan::kFirstStage;
  double total = 0;                          ///< of the device: arena + software overhead
  double host = 0, nvme = 0;                 ///< per rank, where the plan offloads
  std::map<std::string, double> by_purpose;  ///< "parameters", "gradients", …, "software"
};

/// A table of a recommendation model: where it is placed, and what a rank that holds a part of it spends in a step.
struct TableRow {
  std::string table;  ///< "emb_l.3.weight"
  std::int64_t rows = 0;
  std::string sharding, place;                ///< "row"; "row 0-7"
  double compute_s = 0, communication_s = 0;  ///< lookups and updates; sends and receives
  double bytes = 0;                           ///< of one part, with its optimizer state
  std::string tier = "device";                ///< the memory that holds these bytes: also "host", "nvme"
  // For a part of a table outside the device: bytes of its cache; the share of lookups that find their row there; and
  // the bytes that a step fetches (as many are written back). For a table on the device: 0, 1 and 0.
  double cache_bytes = 0, hit_rate = 1, fetched_bytes = 0;
};

/// A prediction for one plan, by closed form or by replay.
struct Prediction {
  plan::PlanSpec spec;
  double step_time_s = 0;
  double memory_peak_bytes = 0;  ///< worst rank
  double memory_capacity_bytes = 0;
  double mfu = 0;
  double bubble_fraction = 0;
  double exposed_communication_s = 0;
  double tokens_per_s = 0;
  double cost_per_step_usd = 0;
  double energy_per_step_j = 0;  ///< energy.total()
  Energy energy;
  double simulation_seconds = 0;  ///< for lowering, checking and replay; 0 for the closed form
  Breakdown breakdown;
  std::vector<MemoryRow> memory;  ///< by stage
  std::vector<CommunicationRow> communication;
  std::vector<LinkRow> links;
  std::vector<TableRow> tables;  ///< of a recommendation model
  /// By how much the bytes that the busiest rank moves for its tables exceed the lower bound over all placements
  /// (relative).
  std::optional<double> placement_gap;
  std::string on_torus;  ///< where a torus's devices run the ranks (plan::placement_text); empty elsewhere
};

struct SearchResult {
  std::vector<Prediction> plans;  ///< best first
  std::int64_t candidates = 0;    ///< points of the space
  std::int64_t feasible = 0;
  std::int64_t evaluated = 0;  ///< by closed form
  std::int64_t simulated = 0;  ///< by replay
  double seconds = 0;
  double fits_probability = 0;  ///< each plan fits with at least this; 0: its predicted memory fits, no more is known
  /// How far the best plan may be from the best of the space, relative: its replayed time over the closed form's time
  /// of the best plan that was not replayed, minus 1. Absent if nothing was replayed, or the search was interrupted.
  std::optional<double> optimality_gap;
  bool interrupted = false;                      ///< some candidates were not looked at
  std::map<std::string, std::int64_t> rejected;  ///< reason -> count
  std::vector<std::string> nearest;              ///< if nothing is feasible: what to relax
  std::string obstacle;                          ///< if the bounds leave no plan to look at: the reason, in numbers
};

/// One fitted parameter and the error before and after.
struct FittedParameter {
  std::string name;
  double before = 0, after = 0;
  std::string unit;
  std::string source;
};

struct Residual {
  std::string run;   ///< the run's plan in words
  std::string what;  ///< "matmul", "all_reduce", "step" …
  double measured_s = 0, predicted_before_s = 0, predicted_after_s = 0;
  bool held_out = false;
};

struct FitResult {
  std::vector<FittedParameter> parameters;
  double error_before = 0, error_after = 0;  ///< mean absolute relative, over the spans
  /// The same, with each span weighted by its time: an error of half a microsecond matters less than one of a second.
  double time_weighted_error_before = 0, time_weighted_error_after = 0;
  double held_out_error_after = 0;
  std::vector<Residual> residuals;
  std::vector<Residual> operators;  ///< of runs that timed them; `what` begins with the operator's name
  std::vector<std::string> notes;   ///< runs left out, and why
};

/// A measured run beside its prediction.
struct MeasuredRun {
  plan::PlanSpec spec;
  std::string directory;
  double step_time_s = 0;       ///< median
  double step_time_spread = 0;  ///< (max - min) / median over repeated runs
  double memory_peak_bytes = 0;
  double tokens_per_s = 0;
  bool used_in_fit = false;
  bool oversubscribed = false;
  double predicted_before_s = 0, predicted_after_s = 0, predicted_memory_bytes = 0;
  bool samples = false;  ///< of a recommendation model: `tokens_per_s` counts samples
};

}  // namespace orrery::cost
