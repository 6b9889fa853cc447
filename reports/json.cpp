/// Writes records as JSON values.
#include "reports/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/layers/counts.h"
#include "models/read/families.h"
#include "plan/spec/fields.h"
#include "reports/scaling.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

using nlohmann::json;

json breakdown_json(const cost::Breakdown& b) {
  return {{"forward", b.forward},
          {"backward", b.backward},
          {"recompute", b.recompute},
          {"optimizer", b.optimizer},
          {"tensor_communication", b.tensor_communication},
          {"exchange_communication", b.exchange_communication},
          {"data_communication", b.data_communication},
          {"pipeline_communication", b.pipeline_communication},
          {"copies", b.copies},
          {"contention", b.contention},
          {"bubble", b.bubble},
          {"imbalance", b.imbalance},
          {"overhead", b.overhead}};
}

/// Common to plan and simulate.
json figures_json(const cost::Prediction& p) {
  json out = {{"step_time_s", p.step_time_s},
              {"memory_peak_bytes", whole(p.memory_peak_bytes)},
              {"memory_capacity_bytes", whole(p.memory_capacity_bytes)},
              {"mfu", p.mfu},
              {"bubble_fraction", p.bubble_fraction},
              {"exposed_communication_s", p.exposed_communication_s},
              {"tokens_per_s", p.tokens_per_s},
              {"cost_per_step_usd", p.cost_per_step_usd},
              {"energy_per_step_j", p.energy_per_step_j},
              {"energy_j",
               {{"devices", p.energy.devices},
                {"hosts", p.energy.hosts},
                {"network", p.energy.network},
                {"facility", p.energy.facility}}},
              {"breakdown_s", breakdown_json(p.breakdown)}};
  if (p.tables.empty()) return out;
  out["tables"] = json::array();
  for (const cost::TableRow& row : p.tables)
    out["tables"].push_back({{"table", row.table},
                             {"rows", row.rows},
                             {"sharding", row.sharding},
                             {"place", row.place},
                             {"compute_s", row.compute_s},
                             {"communication_s", row.communication_s},
                             {"bytes", whole(row.bytes)},
                             {"tier", row.tier},
                             {"cache_bytes", whole(row.cache_bytes)},
                             {"hit_rate", row.hit_rate},
                             {"fetched_bytes", whole(row.fetched_bytes)}});
  double device = 0, host = 0, nvme = 0;
  for (const cost::MemoryRow& row : p.memory) {
    device = std::max(device, row.total);
    host = std::max(host, row.host);
    nvme = std::max(nvme, row.nvme);
  }
  out["memory_by_tier_bytes"] = {{"device", whole(device)}, {"host", whole(host)}, {"nvme", whole(nvme)}};
  if (p.placement_gap) out["placement_gap"] = *p.placement_gap;
  return out;
}

const char* name_of(base::Severity severity) {
  switch (severity) {
    case base::Severity::error: return "error";
    case base::Severity::warning: return "warning";
    case base::Severity::note: return "note";
  }
  return "error";
}

}  // namespace

json whole(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::isfinite(value) && std::abs(value) < kExact) return static_cast<std::int64_t>(std::llround(value));
  return value;
}

json diagnostics_json(const base::Diagnostics& diagnostics) {
  json out = json::array();
  for (const base::Diagnostic& d : diagnostics) {
    out.push_back({{"level", name_of(d.severity)},
                   {"code", d.code},
                   {"file", d.where.file},
                   {"line", d.where.line},
                   {"column", d.where.column},
                   {"message", d.message},
                   {"help", d.help}});
  }
  return out;
}

json envelope(const std::string& command, json result, const base::Diagnostics& diagnostics) {
  return {{"format_version", kFormatVersion},
          {"command", command},
          {"result", std::move(result)},
          {"diagnostics", diagnostics_json(diagnostics)}};
}

json spec_json(const plan::PlanSpec& s) {
  json out = json::object();
  plan::for_each_field(plan::kFields, [&](const auto& field) {
    using T = typename std::remove_cvref_t<decltype(field)>::Value;
    const auto& value = field.of(s);
    json& at = *field.group == '\0' ? out[field.key] : out[field.group][field.key];
    if (plan::is_absent(value))
      at = nullptr;
    else if constexpr (std::is_enum_v<T>)
      at = plan::value_text(field, value);
    else if constexpr (plan::kIsRows<T>)
      at = value.rows();
    else
      at = plan::present(value);
  });
  return out;
}

/// Models without transformer layers.
json recommender_json(const models::Model& model) {
  const models::Recommender& r = *model.recommender;
  const bool varies = r.mean_indices() < static_cast<double>(r.indices());
  return {{"name", model.name},
          {"family", models::name_of(model.family)},
          {"layers", model.layers},
          {"dense_features", r.dense_features},
          {"embedding_dim", r.embedding_dim},
          {"tables", r.tables.size()},
          {"table_rows", r.rows()},
          {"lookups_per_sample", varies ? nlohmann::json(r.mean_indices()) : nlohmann::json(r.indices())},
          {"bottom_mlp", r.bottom_mlp},
          {"top_mlp", r.top_mlp},
          {"interaction", r.interaction == models::Interaction::dot ? "dot" : "cross"},
          {"sequence", 1},
          {"parameters", models::parameters(model)},
          {"parameters_active", models::parameters_active(model)},
          {"parameters_dense", models::dense_parameters(r)},
          {"flops_per_token_forward", models::flops_per_token_forward(model, 1)},
          {"sources", model.sources}};
}

json model_json(const models::Model& model, std::int64_t sequence) {
  if (model.recommender) return recommender_json(model);
  json out = {{"name", model.name},
              {"layers", model.layers},
              {"hidden", model.hidden},
              {"heads", model.heads},
              {"kv_heads", model.kv_heads},
              {"ffn_hidden", model.ffn_hidden},
              {"vocab", model.vocab},
              {"max_sequence", model.max_sequence},
              {"sequence", sequence},
              {"parameters", models::parameters(model)},
              {"parameters_active", models::parameters_active(model)},
              {"parameters_trained", models::parameters_trained(model)},
              {"flops_per_token_forward", models::flops_per_token_forward(model, sequence)},
              {"sources", model.sources}};
  out["family"] = models::name_of(model.family);
  if (model.further.any()) out["parameters_further"] = models::parameters_further(model);
  return out;
}

json plan_json(const cost::SearchResult& result, const WholePlan& whole_plan) {
  json plans = json::array();
  for (const cost::Prediction& p : result.plans) {
    json entry = figures_json(p);
    const json spec = spec_json(p.spec);
    entry["plan"] = whole_plan ? whole_plan(p.spec) : spec;
    for (const char* key :
         {"data", "tensor", "pipeline", "context", "expert", "virtual_stages", "zero_stage", "zero_group",
          "micro_batch", "schedule", "recompute", "sequence_parallel", "layers_per_stage"})
      entry[key] = spec.at(key);
    plans.push_back(std::move(entry));
  }
  json search = {{"candidates", result.candidates}, {"feasible", result.feasible}, {"evaluated", result.evaluated},
                 {"simulated", result.simulated},   {"seconds", result.seconds},   {"optimality_gap", nullptr},
                 {"rejected", json::object()},      {"nearest", result.nearest}};
  if (result.optimality_gap) search["optimality_gap"] = *result.optimality_gap;
  search["fits_probability"] = result.fits_probability;
  search["interrupted"] = result.interrupted;
  for (const auto& [reason, count] : result.rejected) search["rejected"][reason] = count;
  return {{"plans", std::move(plans)}, {"search", std::move(search)}};
}

json simulate_json(const cost::Prediction& p) {
  json out = figures_json(p);
  out["plan"] = spec_json(p.spec);
  out["simulation_seconds"] = p.simulation_seconds;
  out["memory_by_stage_bytes"] = json::array();
  out["memory_by_purpose_bytes"] = json::array();
  out["host_memory_by_stage_bytes"] = json::array();
  out["nvme_by_stage_bytes"] = json::array();
  for (const cost::MemoryRow& row : p.memory) {
    out["memory_by_stage_bytes"].push_back(whole(row.total));
    out["host_memory_by_stage_bytes"].push_back(whole(row.host));
    out["nvme_by_stage_bytes"].push_back(whole(row.nvme));
    json purposes = json::object();
    for (const auto& [purpose, size] : row.by_purpose) purposes[purpose] = whole(size);
    out["memory_by_purpose_bytes"].push_back(std::move(purposes));
  }
  out["communication"] = json::array();
  for (const cost::CommunicationRow& row : p.communication) {
    out["communication"].push_back({{"dimension", row.dimension},
                                    {"operation", row.operation},
                                    {"count", row.count},
                                    {"bytes", whole(row.bytes)},
                                    {"time_s", row.time_s},
                                    {"exposed_s", row.exposed_s},
                                    {"contention_s", row.contention_s},
                                    {"bus_bandwidth_bytes_per_s", row.bus_bandwidth}});
  }
  out["links"] = json::array();
  for (const cost::LinkRow& row : p.links) {
    out["links"].push_back({{"class", row.name},
                            {"bytes", whole(row.bytes)},
                            {"mean_utilisation", row.mean_utilisation},
                            {"peak_utilisation", row.peak_utilisation}});
  }
  return out;
}

json train_json(const TrainSummary& s) {
  json out = {{"run", s.directory},
              {"steps", s.steps},
              {"first_loss", s.first_loss},
              {"final_loss", s.final_loss},
              {"step_time_s", s.step_time_s},
              {"tokens_per_s", s.tokens_per_s},
              {"memory_peak_bytes", whole(s.memory_peak_bytes)},
              {"completed", s.completed},
              {"backend", s.backend},
              {"restarts", s.restarts}};
  if (s.lossless_tensors > 0)
    out["lossless"] = {
        {"tensors", s.lossless_tensors}, {"computed_again", s.lossless_again}, {"densest", s.lossless_densest}};
  if (s.bad_lines) out["bad_lines"] = *s.bad_lines;
  if (s.held_out_auc) out["held_out_auc"] = *s.held_out_auc;
  if (s.best_auc) out["best_auc"] = *s.best_auc;
  if (s.checkpoints > 0)
    out["checkpoints"] = {{"count", s.checkpoints},
                          {"pause_s", s.checkpoint_pause_s},
                          {"write_s", s.checkpoint_write_s},
                          {"bytes", whole(s.checkpoint_bytes)}};
  if (s.serial)
    out["serial"] = {{"run", s.serial->run},
                     {"steps", s.serial->steps},
                     {"loss", s.serial->loss},
                     {"gradient_first", s.serial->gradient_first},
                     {"gradient_last", s.serial->gradient_last},
                     {"bound", s.serial->bound},
                     {"gradient_bound", s.serial->gradient_bound},
                     {"equal", s.serial->equal}};
  if (s.serial && !s.serial->rounded.empty()) out["serial"]["rounded"] = s.serial->rounded;
  if (s.serial && !s.serial->other_choices.empty()) out["serial"]["other_choices"] = s.serial->other_choices;
  return out;
}

json calibrate_json(const cost::FitResult& fit) {
  json parameters = json::array();
  for (const cost::FittedParameter& p : fit.parameters) {
    parameters.push_back(
        {{"name", p.name}, {"before", p.before}, {"after", p.after}, {"unit", p.unit}, {"source", p.source}});
  }
  json residuals = json::array();
  for (const ResidualGroup& g : grouped(fit.residuals)) {
    residuals.push_back({{"kind", g.what},
                         {"held_out", g.held_out},
                         {"count", g.count},
                         {"median_error_before", g.error_before},
                         {"median_error_after", g.error_after}});
  }
  json operators = json::array();
  for (const cost::Residual& r : fit.operators) {
    operators.push_back({{"operator", r.what},
                         {"run", r.run},
                         {"held_out", r.held_out},
                         {"measured_s", r.measured_s},
                         {"predicted_before_s", r.predicted_before_s},
                         {"predicted_after_s", r.predicted_after_s}});
  }
  return {{"parameters", std::move(parameters)},
          {"error_before", fit.error_before},
          {"error_after", fit.error_after},
          {"held_out_error_after", fit.held_out_error_after},
          {"time_weighted_error_before", fit.time_weighted_error_before},
          {"time_weighted_error_after", fit.time_weighted_error_after},
          {"residuals", std::move(residuals)},
          {"operators", std::move(operators)},
          {"notes", fit.notes}};
}

json report_json(const std::string& path, const std::vector<cost::MeasuredRun>& runs,
                 const cost::ScalingStudy* scaling) {
  json run_rows = json::array();
  for (const cost::MeasuredRun& r : runs) {
    run_rows.push_back({{"plan", spec_json(r.spec)},
                        {"run", r.directory},
                        {"step_time_s", r.step_time_s},
                        {"step_time_spread", r.step_time_spread},
                        {"tokens_per_s", r.tokens_per_s},
                        {"memory_peak_bytes", whole(r.memory_peak_bytes)},
                        {"predicted_before_s", r.predicted_before_s},
                        {"predicted_after_s", r.predicted_after_s},
                        {"predicted_memory_bytes", whole(r.predicted_memory_bytes)},
                        {"used_in_fit", r.used_in_fit},
                        {"oversubscribed", r.oversubscribed}});
  }
  json out = {{"path", path}, {"runs", std::move(run_rows)}, {"held_out_error", held_out_error(runs)}};
  out["scaling"] = scaling != nullptr ? scaling_points_json(*scaling) : json::array();
  out["study"] = scaling != nullptr ? scaling_json(*scaling) : json(nullptr);
  return out;
}

std::string report_json_file(const json& report) {
  return "{\"format_version\":\"" + std::string(kFormatVersion) +
         "\",\"report\":" + report.dump(1, ' ', false, json::error_handler_t::replace) + "}\n";
}

}  // namespace orrery::reports
