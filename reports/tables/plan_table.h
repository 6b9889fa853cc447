#pragma once
/// Ranked plans as a table in the field's usual letters, with a heading: what is trained, on what, by what software,
/// and what the predictions rest on.
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "cost/parameters/intervals.h"
#include "cost/results.h"
#include "reports/tables/table.h"

namespace orrery::reports {

/// A split in the field's letters, for a narrow column: "DP32 TP4 PP8 VP2 MBS1 ZeRO1". Degrees of one are left out,
/// and what else a plan decides.
[[nodiscard]] std::string split_in_letters(const plan::PlanSpec& spec);

/// What the predictions of one stack rest on.
struct Evidence {
  std::string stack;
  std::string word, text;                               ///< a word from docs/json.md, and the same as a sentence
  std::optional<cost::Spread> one_node, several_nodes;  ///< of published runs; none on CPU ranks
};

/// What a search was asked for, and facts that predictions do not contain.
struct PlanHeading {
  std::string model;
  double parameters = 0, parameters_active = 0;
  double parameters_trained = 0;  ///< all, or adapters
  std::string cluster, device;
  clusters::DeviceKind kind = clusters::DeviceKind::gpu;
  int devices = 0, nodes = 0, devices_per_node = 0;
  double memory_bytes = 0;  ///< of a device
  double peak_flops = 0;    ///< of a device, FLOP/s at the precision; 0: unknown
  std::string precision;
  std::int64_t batch = 0, sequence = 0;  ///< sequences per step, tokens of each; for clicks, samples of length 1
  bool longest = false;                  ///< no sequence was given, so it is the longest that the model can read
  std::string software;                  ///< how the stack is set up, as a job says it; empty: as its file has it
  bool samples = false;                  ///< a recommendation model: samples instead of tokens
  std::vector<Evidence> evidence = std::vector<Evidence>(1);  ///< of the requested stack, then of its stand-ins
  std::array<std::size_t, 4> by_zero = {};                    ///< index into `evidence` by a plan's ZeRO stage

  [[nodiscard]] const std::string& stack() const { return evidence.front().stack; }
  [[nodiscard]] const Evidence& evidence_of(const plan::PlanSpec& spec) const;
};

/// What follows from a prediction and its heading.
struct PlanFigures {
  double tokens_per_s_per_device = 0;
  double flops_per_s_per_device = 0;  ///< model FLOPs; 0: unknown
  double usd_per_million_tokens = 0;  ///< 0: the devices have no price
  std::optional<cost::Interval> step_time_s, memory_bytes;
  std::optional<double> fits_probability;
};
/// "16.1–18.9 s": the unit once if both ends share it.
[[nodiscard]] std::string interval_text(const cost::Interval& interval);
[[nodiscard]] PlanFigures figures_of(const cost::Prediction& prediction, const PlanHeading& heading);

/// For each plan the index in `plans` of the first of its family: plans that differ only in the size of a
/// micro-batch, virtual stages, partial recomputation, loss chunks and the like. Fields whose keys are in `compared`
/// also separate families: a job that lists their values wants to see them.
[[nodiscard]] std::vector<std::size_t> families(const std::vector<cost::Prediction>& plans,
                                                const std::vector<std::string>& compared);

/// Which model is trained on which machine: known before any plan is.
[[nodiscard]] std::string heading_text(const PlanHeading& heading, const TableStyle& style);
/// The basis of the times. `evidence`: the entry of the heading's for the plan in question.
[[nodiscard]] std::string evidence_text(const Evidence& evidence, const TableStyle& style);
[[nodiscard]] nlohmann::json heading_json(const PlanHeading& heading);
[[nodiscard]] nlohmann::json figures_json(const PlanFigures& figures, const Evidence& evidence);

/// One row for each of `rows`, in their order; `folded`: number of plans that are like one of them.
[[nodiscard]] Table plans_table(const std::vector<cost::Prediction>& plans, const std::vector<std::size_t>& rows,
                                const PlanHeading& heading, std::size_t folded = 0);

}  // namespace orrery::reports
