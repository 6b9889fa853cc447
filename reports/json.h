#pragma once
/// Records as JSON, for scripts that use --json: one function per verb returns its `result`, and envelope() wraps it.
/// SI base units, named in the key; every key is documented in docs/json.md. Not-a-number becomes null.
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/results.h"
#include "models/model.h"
#include "reports/tables/text.h"

namespace orrery::cost {
struct ScalingStudy;
}

namespace orrery::reports {

inline constexpr const char* kFormatVersion = "1.0";

/// {"format_version", "command", "result", "diagnostics"}: the one object a verb prints. `result` may be null.
[[nodiscard]] nlohmann::json envelope(const std::string& command, nlohmann::json result,
                                      const base::Diagnostics& diagnostics);
[[nodiscard]] nlohmann::json diagnostics_json(const base::Diagnostics& diagnostics);

/// Sizes are doubles in the records but whole numbers to a reader: written without ".0" while a double is exact.
[[nodiscard]] nlohmann::json whole(double value);

/// The parallel split, with the keys of a plan file.
[[nodiscard]] nlohmann::json spec_json(const plan::PlanSpec& spec);

/// `whole_plan` returns the contents of a plan's file, for the key "plan"; without it, spec_json is used.
using WholePlan = std::function<nlohmann::json(const plan::PlanSpec&)>;

[[nodiscard]] nlohmann::json model_json(const models::Model& model, std::int64_t sequence);
[[nodiscard]] nlohmann::json plan_json(const cost::SearchResult& result, const WholePlan& whole_plan = {});
[[nodiscard]] nlohmann::json simulate_json(const cost::Prediction& prediction);
[[nodiscard]] nlohmann::json train_json(const TrainSummary& summary);
[[nodiscard]] nlohmann::json calibrate_json(const cost::FitResult& fit);
/// `report`: where it was written and what it compares; `scaling`: null if no study was asked for.
[[nodiscard]] nlohmann::json report_json(const std::string& path, const std::vector<cost::MeasuredRun>& runs,
                                         const cost::ScalingStudy* scaling);
/// A report's parts as a file of its own.
[[nodiscard]] std::string report_json_file(const nlohmann::json& report);

}  // namespace orrery::reports
