/// A scaling study for scripts: JSON and CSV.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/spec/plan.h"
#include "reports/json.h"
#include "reports/scaling.h"
#include "reports/tables/csv_line.h"

namespace orrery::reports {
namespace {

using nlohmann::json;

constexpr double kSecondsADay = 86400, kJoulesAKwh = 3.6e6;

json pair_of(const std::optional<cost::Interval>& interval) {
  return interval ? json{interval->low, interval->high} : json(nullptr);
}
json known(double value) {
  return value > 0 ? json(value) : json(nullptr);
}

json by_cause(const cost::ByCause& values) {
  json out = json::object();
  for (const cost::CauseWords& cause : cost::kCauses) out[cause.key] = values.at(static_cast<std::size_t>(cause.cause));
  return out;
}

json run_json(const std::optional<cost::RunCost>& run) {
  if (!run) return nullptr;
  return {{"days", run->seconds / kSecondsADay},
          {"days_interval", run->seconds_interval ? json{run->seconds_interval->low / kSecondsADay,
                                                         run->seconds_interval->high / kSecondsADay}
                                                  : json(nullptr)},
          {"cost_usd", known(run->usd)},
          {"energy_kwh", run->joules > 0 ? json(run->joules / kJoulesAKwh) : json(nullptr)},
          {"co2_kg", run->joules > 0 ? json(run->co2_grams / 1000) : json(nullptr)}};
}

json memory_json(const cost::Prediction& best) {
  const cost::MemoryRow* most = nullptr;
  for (const cost::MemoryRow& row : best.memory)
    if (most == nullptr || row.total > most->total) most = &row;
  json out = json::object();
  if (most != nullptr)
    for (const auto& [purpose, bytes] : most->by_purpose) out[purpose] = whole(bytes);
  return out;
}

/// Keys of a point that has a plan.
void add_best(json& out, const cost::ScalingPoint& p) {
  const cost::Prediction& best = *p.best;
  out["plan"] = spec_json(best.spec);
  out["plan_text"] = plan::describe(best.spec);
  out["step_time_s"] = best.step_time_s;
  out["step_time_interval_s"] = pair_of(p.step_time_s);
  out["tokens_per_s"] = best.tokens_per_s;
  out["tokens_per_s_per_device"] = p.tokens_per_s_per_device;
  out["tokens_per_s_per_device_interval"] = pair_of(p.tokens_per_s_per_device_interval);
  out["mfu"] = best.mfu;
  out["memory_peak_bytes"] = whole(best.memory_peak_bytes);
  out["memory_capacity_bytes"] = whole(best.memory_capacity_bytes);
  out["memory_by_purpose_bytes"] = memory_json(best);
  out["bubble_fraction"] = best.bubble_fraction;
  out["exposed_communication_s"] = best.exposed_communication_s;
  out["cost_per_step_usd"] = best.cost_per_step_usd;
  out["energy_per_step_j"] = best.energy_per_step_j;
  out["efficiency"] = p.efficiency;
  out["efficiency_interval"] = pair_of(p.efficiency_interval);
  out["device_seconds_per_token"] = 1 / p.tokens_per_s_per_device;
  out["device_seconds_per_token_by_cause"] = by_cause(p.seconds_by_cause);
  out["stack"] = p.stack;
  out["evidence"] = p.evidence;
  out["evidence_text"] = p.evidence_text;
  out["run"] = run_json(p.run);
}

json point_json(const cost::ScalingSeries& series, const cost::ScalingPoint& p) {
  json out = {{"devices", p.devices}, {"nodes", p.nodes}, {"batch", p.batch}, {"plan", nullptr}, {"reason", nullptr}};
  if (!p.best) {
    out["reason"] = p.reason;
    return out;
  }
  add_best(out, p);
  out["from_devices"] = nullptr;
  if (!p.before) return out;
  out["from_devices"] = series.points[*p.before].devices;
  out["device_seconds_per_token_added"] = by_cause(p.seconds_added);
  out["efficiency_lost"] = by_cause(p.efficiency_lost);
  out["marginal_efficiency"] = p.marginal;
  out["grown"] = json::array();
  for (const cost::Grown& one : p.grown)
    out["grown"].push_back({{"dimension", one.dimension}, {"from", one.from}, {"to", one.to}});
  return out;
}

json measured_json(const cost::MeasuredPoint& m) {
  return {{"source", m.source},       {"plan_text", m.plan},         {"devices", m.devices},
          {"batch", m.batch},         {"measured_s", m.step_time_s}, {"predicted_s", known(m.predicted_s)},
          {"published", m.published}, {"is_best_plan", m.best_plan}};
}

json place_json(const cost::ScalingStudy& study, const std::optional<cost::Place>& place) {
  if (!place) return nullptr;
  return {{"series", place->series}, {"devices", study.series.at(place->series).points.at(place->point).devices}};
}

CsvLine line_of(const cost::ScalingSeries& series, const cost::ScalingPoint& p) {
  const bool any = p.best.has_value();
  const cost::Prediction best = p.best.value_or(cost::Prediction{});
  const cost::RunCost run = p.run.value_or(cost::RunCost{});
  CsvLine line;
  line.text("model", series.model);
  line.value("parameters", series.parameters);
  line.text("cluster", series.cluster);
  line.text("device", series.device);
  line.text("scaling", cost::name_of(series.scaling));
  line.text("held_plan", series.held);
  line.count("devices", p.devices);
  line.count("sequence", series.sequence);
  line.count("batch", p.batch);
  line.text("plan", any ? plan::describe(best.spec) : "");
  line.text("reason", p.reason);
  line.value("step_time_s", best.step_time_s, any);
  line.interval("step_time", p.step_time_s, "_s");
  line.value("tokens_per_s", best.tokens_per_s, any);
  line.value("tokens_per_s_per_device", p.tokens_per_s_per_device, any);
  line.value("mfu", best.mfu, any);
  line.value("memory_peak_bytes", best.memory_peak_bytes, any);
  line.value("memory_capacity_bytes", best.memory_capacity_bytes, any);
  line.value("efficiency", p.efficiency, any);
  line.interval("efficiency", p.efficiency_interval, "");
  line.value("marginal_efficiency", p.marginal, any);
  for (const cost::CauseWords& cause : cost::kCauses)
    line.value(fmt::format("device_seconds_per_token_{}", cause.key),
               p.seconds_by_cause.at(static_cast<std::size_t>(cause.cause)), any);
  for (const cost::CauseWords& cause : cost::kCauses)
    line.value(fmt::format("efficiency_lost_{}", cause.key),
               p.efficiency_lost.at(static_cast<std::size_t>(cause.cause)), any && p.before.has_value());
  line.value("cost_per_step_usd", best.cost_per_step_usd, best.cost_per_step_usd > 0);
  line.value("energy_per_step_j", best.energy_per_step_j, best.energy_per_step_j > 0);
  line.value("run_days", run.seconds / kSecondsADay, p.run.has_value());
  line.value("run_cost_usd", run.usd, run.usd > 0);
  line.value("run_energy_kwh", run.joules / kJoulesAKwh, run.joules > 0);
  line.value("run_co2_kg", run.co2_grams / 1000, run.joules > 0);
  line.text("stack", p.stack);
  line.text("evidence", p.evidence);
  const cost::MeasuredPoint* measured = nullptr;
  for (const cost::MeasuredPoint& m : series.measured)
    if (m.devices == p.devices && (measured == nullptr || m.step_time_s < measured->step_time_s)) measured = &m;
  line.value("measured_s", measured ? measured->step_time_s : 0, measured != nullptr);
  line.text("measured_by", measured ? measured->source : "");
  line.text("measured_plan", measured ? measured->plan : "");
  return line;
}

}  // namespace

json scaling_json(const cost::ScalingStudy& study) {
  json all = json::array();
  for (const cost::ScalingSeries& s : study.series) {
    json one = {{"model", s.model},
                {"parameters", s.parameters},
                {"cluster", s.cluster},
                {"device", s.device},
                {"precision", s.precision},
                {"sequence", s.sequence},
                {"batch", s.batch},
                {"scaling", cost::name_of(s.scaling)},
                {"held_plan", s.held.empty() ? json(nullptr) : json(s.held)},
                {"pays_up_to_devices", s.pays_up_to > 0 ? json(s.pays_up_to) : json(nullptr)},
                {"stops_paying_at_devices", s.stops_paying_at > 0 ? json(s.stops_paying_at) : json(nullptr)}};
    one["points"] = one["measured"] = json::array();
    for (const cost::ScalingPoint& p : s.points) one["points"].push_back(point_json(s, p));
    for (const cost::MeasuredPoint& m : s.measured) one["measured"].push_back(measured_json(m));
    one["advice"] = growth_advice(study, s);
    all.push_back(std::move(one));
  }
  json ways = json::array();
  for (const cost::Ways& way : study.ways)
    ways.push_back({{"model", way.model},
                    {"cheapest", place_json(study, way.cheapest)},
                    {"fewest_devices", place_json(study, way.smallest)},
                    {"fastest", place_json(study, way.fastest)},
                    {"nearest", place_json(study, way.nearest)}});
  return {{"series", std::move(all)},
          {"pays", study.pays},
          {"tokens", study.tokens ? json(*study.tokens) : json(nullptr)},
          {"deadline_days", study.deadline_s ? json(*study.deadline_s / kSecondsADay) : json(nullptr)},
          {"co2_g_per_kwh", study.co2_grams_per_kwh},
          {"co2_source", study.co2_source},
          {"ways", std::move(ways)},
          {"advice", run_advice(study)},
          {"caveats", scaling_caveats(study)}};
}

json scaling_points_json(const cost::ScalingStudy& study) {
  json out = json::array();
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& p : series.points) {
      if (!p.best) continue;
      json one = {{"ranks", p.devices},
                  {"plan", spec_json(p.best->spec)},
                  {"predicted_s", p.best->step_time_s},
                  {"measured_s", nullptr},
                  {"model", series.model},
                  {"cluster", series.cluster},
                  {"sequence", series.sequence},
                  {"batch", p.batch},
                  {"scaling", cost::name_of(series.scaling)},
                  {"efficiency", p.efficiency}};
      for (const cost::MeasuredPoint& m : series.measured)
        if (m.devices == p.devices && m.best_plan) one["measured_s"] = m.step_time_s;
      out.push_back(std::move(one));
    }
  return out;
}

std::string scaling_json_file(const cost::ScalingStudy& study, const std::string& title) {
  return "{\"format_version\":\"" + std::string(kFormatVersion) + "\",\"scaling_study\":" +
         json({{"title", title}, {"study", scaling_json(study)}}).dump(1, ' ', false, json::error_handler_t::replace) +
         "}\n";
}

std::string scaling_csv(const cost::ScalingStudy& study) {
  std::string out;
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& point : series.points) {
      const CsvLine line = line_of(series, point);
      if (out.empty()) out = line.head + "\n";
      out += line.cells + "\n";
    }
  return out;
}

}  // namespace orrery::reports
