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
  if (model.window_heads > 0) out["window_heads"] = model.window_heads;
  if (model.further.any()) out["parameters_further"] = models::parameters_further(model);
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
  if (s.serial && s.serial->rounding)
    out["serial"]["rounding_alone"] = {{"micro_batch", s.serial->rounding->micro_batch},
                                       {"loss", s.serial->rounding->loss},
                                       {"gradient_first", s.serial->rounding->gradient_first},
                                       {"gradient_last", s.serial->rounding->gradient_last}};
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
