// How published runs of a plan's software compare with their predictions.
#include "apps/verbs/plan/evidence.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace orrery::apps {

namespace {

nlohmann::json pair_of(const cost::Interval& interval) {
  return nlohmann::json::array({interval.low, interval.high});
}

}  // namespace

void say(std::string& text, const std::string& paragraph, const reports::TableStyle& style) {
  text += "\n" + reports::wrapped(paragraph, style.width) + "\n";
}

std::string evidence_paragraphs(const reports::PlanHeading& heading, const cost::Prediction& prediction,
                                const reports::TableStyle& style) {
  std::string out;
  const reports::PlanFigures figures = reports::figures_of(prediction, heading);
  if (figures.step_time_s) {
    std::string said =
        fmt::format("In four of five runs a step takes from {} to {}.", reports::time_text(figures.step_time_s->low),
                    reports::time_text(figures.step_time_s->high));
    if (figures.fits_probability)
      said += fmt::format(" The plan fits the devices' memory with probability {:.2f}.", *figures.fits_probability);
    say(out, said, style);
  }
  // A prediction that was saved beside another job rests on nothing that is known.
  if (const std::string& text = heading.evidence_of(prediction.spec).text; !text.empty())
    say(out, fmt::format("Evidence: {}.", text), style);
  return out;
}

void add_evidence(const reports::PlanHeading& heading, const cost::Prediction& prediction, bool alone,
                  nlohmann::json& json, std::string& text, const reports::TableStyle& style) {
  for (const char* key :
       {"step_time_interval_s", "memory_interval_bytes", "fits_probability", "evidence", "evidence_text"})
    json[key] = nullptr;
  if (!alone) return;
  text += evidence_paragraphs(heading, prediction, style);
  const reports::PlanFigures figures = reports::figures_of(prediction, heading);
  const reports::Evidence& evidence = heading.evidence_of(prediction.spec);
  json["evidence"] = evidence.word;
  json["evidence_text"] = evidence.text;
  if (figures.step_time_s) json["step_time_interval_s"] = pair_of(*figures.step_time_s);
  if (figures.memory_bytes) json["memory_interval_bytes"] = pair_of(*figures.memory_bytes);
  if (figures.fits_probability) json["fits_probability"] = *figures.fits_probability;
}

}  // namespace orrery::apps
