// How published runs of a plan's software compare with their predictions.
#include "apps/verbs/plan/evidence.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

namespace orrery::apps {

namespace {

/// None for CPU ranks or a shared network.
std::optional<cost::Spread> spread_of(const LoadedPlan& loaded, const cost::Intervals& intervals, bool alone) {
  const clusters::Cluster& cluster = loaded.file.cluster;
  if (!alone || cluster.device().kind != clusters::DeviceKind::gpu) return std::nullopt;
  return cost::spread_of(intervals, loaded.stack, cluster.size() > cluster.devices_per_node,
                         cost::setting_of(cluster, loaded.file.model));
}

nlohmann::json pair_of(const cost::Interval& interval) {
  return nlohmann::json::array({interval.low, interval.high});
}

}  // namespace

void say(std::string& text, const std::string& paragraph, const reports::TableStyle& style) {
  text += "\n" + reports::wrapped(paragraph, style.width) + "\n";
}

void add_evidence(const LoadedPlan& loaded, const cost::Prediction& prediction, const cost::Intervals& intervals,
                  bool alone, nlohmann::json& json, std::string& text, const reports::TableStyle& style) {
  for (const char* key :
       {"step_time_interval_s", "memory_interval_bytes", "fits_probability", "evidence", "evidence_text"})
    json[key] = nullptr;
  const auto spread = spread_of(loaded, intervals, alone);
  if (!spread) return;
  const clusters::Cluster& cluster = loaded.file.cluster;
  const auto time = cost::around(prediction.step_time_s, spread->time);
  const std::string evidence = cost::basis_text(intervals, loaded.stack, cluster.size() > cluster.devices_per_node,
                                                false, cost::setting_of(cluster, loaded.file.model));
  const double fits =
      cost::fits_probability(prediction.memory_peak_bytes, prediction.memory_capacity_bytes, spread->memory);
  json["step_time_interval_s"] = pair_of(time);
  json["memory_interval_bytes"] = pair_of(cost::around(prediction.memory_peak_bytes, spread->memory));
  json["fits_probability"] = fits;
  json["evidence"] = cost::name_of(cost::basis_of(intervals, loaded.stack));
  json["evidence_text"] = evidence;
  say(text,
      fmt::format("In four of five runs a step takes from {:.4g} s to {:.4g} s. The plan fits the devices' memory with "
                  "probability {:.2f}.",
                  time.low, time.high, fits),
      style);
  say(text, fmt::format("Evidence: {}.", evidence), style);
}

}  // namespace orrery::apps
