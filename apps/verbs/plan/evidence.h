#pragma once
/// What a replayed plan's figures rest on, for `simulate` and `explain`: their intervals, the probability that the plan
/// fits, and the word for the evidence.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cost/results.h"
#include "reports/tables/plan_table.h"

namespace orrery::apps {

/// Two paragraphs: the interval with the probability, where there is one, and the evidence in words.
[[nodiscard]] std::string evidence_paragraphs(const reports::PlanHeading& heading, const cost::Prediction& prediction,
                                              const reports::TableStyle& style);

/// Adds them to `json` and, as paragraphs, to `text`. CPU ranks have no interval (null in the JSON, unsaid in the
/// text). `alone`: no other job shares the network; of a shared one no run tells, so that all of it is null.
void add_evidence(const reports::PlanHeading& heading, const cost::Prediction& prediction, bool alone,
                  nlohmann::json& json, std::string& text, const reports::TableStyle& style);

/// A paragraph of the text, within its width.
void say(std::string& text, const std::string& paragraph, const reports::TableStyle& style);

}  // namespace orrery::apps
