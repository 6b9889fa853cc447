/// Validation as JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "cost/parameters/parameters.h"
#include "reports/json.h"
#include "reports/tables/tables.h"
#include "reports/validation.h"

namespace orrery::reports {

using nlohmann::json;

namespace {

json figure(double value) {
  return std::isfinite(value) ? json(value) : json();
}

json interval_json(const std::optional<cost::Interval>& interval) {
  return interval ? json::array({interval->low, interval->high}) : json();
}

json summary_json(const cost::ErrorSummary& e) {
  return {{"count", e.count},
          {"median_error", figure(e.median)},
          {"mean_error", figure(e.mean)},
          {"p90_error", figure(e.p90)}};
}

json cross_validation_json(const cost::CrossValidation& v) {
  json folds = json::array(), rows = json::array();
  for (const cost::FoldErrors& f : v.folds)
    folds.push_back({{"left_out", f.fold},
                     {"by", f.by_model ? "model" : "source"},
                     {"stacks", f.stacks},
                     {"count", f.rows},
                     {"in_sample_median_error", f.in_sample},
                     {"left_out_median_error", f.left_out},
                     {"defaults_median_error", f.usual},
                     {"inside_interval", f.inside}});
  for (const cost::LeftOutPrediction& r : v.rows)
    rows.push_back({{"id", r.id},
                    {"source", r.source},
                    {"stack", r.stack},
                    {"left_out", r.fold},
                    {"measured_s", r.measured_s},
                    {"in_sample_s", r.in_sample_s},
                    {"predicted_s", r.left_out_s},
                    {"defaults_s", r.usual_s},
                    {"interval_s", interval_json(r.interval)}});
  return {{"in_sample", summary_json(v.in_sample)},
          {"left_out", summary_json(v.left_out)},
          {"defaults", summary_json(v.usual)},
          {"ratio", figure(v.left_out.median / v.in_sample.median)},
          {"inside_interval", figure(v.inside)},
          {"interval_width", figure(v.width)},
          {"folds", std::move(folds)},
          {"rows", std::move(rows)}};
}

}  // namespace

json validate_json(const cost::Validation& v) {
  const auto measured = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  const auto error = [](double predicted, const std::optional<double>& value) {
    return value ? json(relative_error(predicted, *value)) : json();
  };
  json rows = json::array(), memory = json::array(), left_out = json::array(), sources = json::array();
  for (const cost::ValidatedRow& r : v.rows) {
    if (!r.out_of_memory)
      rows.push_back({{"id", r.id},
                      {"source", r.source},
                      {"stack", r.stack},
                      {"cluster", r.cluster},
                      {"evidence", cost::name_of(r.evidence)},
                      {"evidence_text", r.evidence_text},
                      {"plan", r.plan},
                      {"measured_s", measured(r.measured_s)},
                      {"predicted_s", r.predicted_s},
                      {"interval_s", interval_json(r.time_s)},
                      {"error", error(r.predicted_s, r.measured_s)},
                      {"defaults", r.notes}});
    memory.push_back({{"id", r.id},
                      {"measured_bytes", measured(r.measured_bytes)},
                      {"predicted_bytes", whole(r.predicted_bytes)},
                      {"interval_bytes", interval_json(r.bytes)},
                      {"fits_probability", r.fits_probability ? figure(*r.fits_probability) : json()},
                      {"out_of_memory", r.out_of_memory},
                      {"error", error(r.predicted_bytes, r.measured_bytes)}});
  }
  for (const cost::LeftOutRow& r : v.left_out)
    left_out.push_back({{"id", r.id}, {"source", r.source}, {"reason", r.reason}, {"scorable", r.scorable}});
  for (const cost::SourceErrors& s : v.by_source)
    sources.push_back({{"source", s.source},
                       {"count", s.time.count},
                       {"median_error", s.time.median},
                       {"mean_error", s.time.mean},
                       {"p90_error", s.time.p90}});
  json stacks = json::array();
  for (const cost::StackErrors& s : v.by_stack)
    stacks.push_back({{"stack", s.stack},
                      {"rows", s.rows},
                      {"fitted_numbers", s.fitted_numbers},
                      {"count", s.time.count},
                      {"median_error", figure(s.time.median)},
                      {"p90_error", figure(s.time.p90)}});
  json groups = json::array();
  for (const cost::PlanGroup& g : v.groups)
    groups.push_back({{"source", g.source},
                      {"group", g.what},
                      {"plans", g.plans},
                      {"rows", g.rows},
                      {"regret", g.regret},
                      {"rank_correlation", figure(g.rank_correlation)},
                      {"predicted_best", g.predicted_best},
                      {"measured_best", g.measured_best}});
  const RegretSummary regret = regret_of(v.groups);
  json out = {{"given", v.given},
              {"predicted", v.rows.size()},
              {"scorable", v.time.count},
              {"median_error", figure(v.time.median)},
              {"mean_error", figure(v.time.mean)},
              {"p90_error", figure(v.time.p90)},
              {"by_source", std::move(sources)},
              {"by_stack", std::move(stacks)},
              {"rows", std::move(rows)},
              {"left_out", std::move(left_out)},
              {"groups", std::move(groups)},
              {"regret",
               {{"groups", regret.groups},
                {"median", figure(regret.median)},
                {"worst", figure(regret.worst)},
                {"median_rank_correlation", figure(regret.rank_correlation)}}},
              {"memory",
               {{"scorable", v.memory.count},
                {"median_error", figure(v.memory.median)},
                {"p90_error", figure(v.memory.p90)},
                {"rows", std::move(memory)}}}};
  if (v.cross_validation) out["cross_validation"] = cross_validation_json(*v.cross_validation);
  return out;
}

json headlines_json(const std::vector<cost::HeadlineResult>& headlines) {
  const auto number = [](const std::optional<double>& value) { return value ? figure(*value) : json(); };
  json out = json::array();
  for (const cost::HeadlineResult& h : headlines)
    out.push_back({{"headline", h.what},
                   {"source", h.source},
                   {"said", h.said},
                   {"unit", h.unit},
                   {"predicted", number(h.predicted)},
                   {"published", number(h.published)},
                   {"reason", h.reason.empty() ? json() : json(h.reason)},
                   {"in_sample", h.predicted ? json(h.in_sample) : json()},
                   {"fits", h.predicted ? json(h.fits) : json()},
                   {"memory_share", number(h.memory_share)},
                   {"runs", h.runs}});
  return out;
}

json stack_fits_json(const std::vector<cost::FamilyFit>& fits) {
  json families = json::array();
  for (const cost::FamilyFit& fit : fits) {
    json numbers = json::array();
    for (const cost::FittedNumber& n : fit.numbers)
      numbers.push_back({{"stack", n.stack},
                         {"name", n.parameter},
                         {"before", n.before},
                         {"after", n.after},
                         {"unit", cost::name_of(cost::unit_of(n.parameter))},
                         {"source", n.source}});
    families.push_back({{"stacks", fit.stacks},
                        {"rows", fit.rows},
                        {"median_error_before", fit.error_before},
                        {"median_error_after", fit.error_after},
                        {"parameters", std::move(numbers)}});
  }
  return {{"fits", std::move(families)}};
}

}  // namespace orrery::reports
