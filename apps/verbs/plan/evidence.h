#pragma once
/// What a replayed plan's figures rest on, for `simulate` and `explain`: their intervals, the probability that the plan
/// fits, and the word for the evidence.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/inputs.h"
#include "cost/parameters/intervals.h"
#include "cost/results.h"
#include "reports/tables/table.h"

namespace orrery::apps {

/// Adds them to `json` and, as paragraphs, to `text`. `alone`: no other job shares the network. Null in the JSON and
/// unsaid in the text for CPU ranks and on a shared network, of which no published run tells.
void add_evidence(const LoadedPlan& loaded, const cost::Prediction& prediction, const cost::Intervals& intervals,
                  bool alone, nlohmann::json& json, std::string& text, const reports::TableStyle& style);

/// A paragraph of the text, within its width.
void say(std::string& text, const std::string& paragraph, const reports::TableStyle& style);

}  // namespace orrery::apps
