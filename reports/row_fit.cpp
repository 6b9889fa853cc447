/// What `calibrate --rows` found, for people and for scripts.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cost/parameters/parameters.h"
#include "reports/json.h"
#include "reports/tables/tables.h"
#include "reports/validation.h"

namespace orrery::reports {

using nlohmann::json;

namespace {

json number_of(double value) {
  return std::isfinite(value) ? json(value) : json();
}

json errors_json(const cost::ErrorSummary& e) {
  return {{"count", e.count}, {"median_error", number_of(e.median)}, {"p90_error", number_of(e.p90)}};
}

}  // namespace

json row_fit_json(const cost::RowFit& fit, const std::string& file) {
  json parameters = json::array(), left_out = json::array(), teaching = json::array();
  for (const cost::FittedNumber& n : fit.numbers)
    parameters.push_back({{"name", n.parameter},
                          {"before", n.before},
                          {"after", n.after},
                          {"unit", cost::name_of(cost::unit_of(n.parameter))},
                          {"source", n.source}});
  for (const cost::LeftOutRow& row : fit.left_out) left_out.push_back({{"id", row.id}, {"reason", row.reason}});
  for (const cost::TeachingRun& run : fit.teaching)
    teaching.push_back(
        {{"run", run.what}, {"predicted_s", run.predicted_s}, {"uncertainty", number_of(run.uncertainty)}});
  json out = {
      {"stack", fit.stack.name},
      {"like", fit.like},
      {"written", file},
      {"rows", {{"given", fit.given}, {"used", fit.used}, {"left_out", std::move(left_out)}}},
      {"parameters", std::move(parameters)},
      {"error_before", errors_json(fit.before)},
      {"error_after", errors_json(fit.after)},
      {"left_one_out", errors_json(fit.left_one_out)},
      {"memory", {{"error_before", errors_json(fit.memory_before)}, {"error_after", errors_json(fit.memory_after)}}},
      {"teaching", std::move(teaching)}};
  if (fit.stack.fitted) {
    const cost::Stack::Fitted& f = *fit.stack.fitted;
    out["interval"] = {f.time.low, f.time.high};
    out["memory"]["interval"] = {f.memory.low, f.memory.high};
  }
  return out;
}

std::string row_fit_text(const cost::RowFit& fit, const TableStyle& style) {
  Table numbers;
  numbers.title = fmt::format("{}: {} of {} fitted, around {}", fit.stack.name, fit.used,
                              count_text(static_cast<std::int64_t>(fit.given), "run"), fit.like);
  numbers.columns = {
      {"number", Align::left}, {"before", Align::right}, {"after", Align::right}, {"source", Align::left, 60}};
  for (const cost::FittedNumber& n : fit.numbers) {
    const cost::Unit unit = cost::unit_of(n.parameter);
    constexpr double kParts = 10000;
    const auto text = [&](double value) {
      return unit == cost::Unit::number ? fmt::format("{}", std::round(value * kParts) / kParts)
                                        : cost::parameter_text(value, unit);
    };
    numbers.rows.push_back({n.parameter, text(n.before), text(n.after), n.source});
  }
  Table errors;
  errors.title = "Error";
  errors.columns = {
      {"of", Align::left}, {"runs", Align::right}, {"median", Align::right}, {"90th percentile", Align::right}};
  const auto add = [&](const char* what, const cost::ErrorSummary& e) {
    if (e.count > 0) errors.rows.push_back({what, std::to_string(e.count), percent(e.median), percent(e.p90)});
  };
  add("step times before", fit.before);
  add("step times fitted, in-sample", fit.after);
  add("step times, each run left out", fit.left_one_out);
  add("peak memory before", fit.memory_before);
  add("peak memory fitted, in-sample", fit.memory_after);
  if (fit.stack.fitted) {
    constexpr double kPercent = 100;
    const cost::Stack::Fitted& f = *fit.stack.fitted;
    errors.notes.push_back(
        fmt::format("expect four of five runs to lie {:+.0f} to {:+.0f} % from their predicted time, and {:+.0f} to "
                    "{:+.0f} % from their predicted peak",
                    kPercent * (f.time.low - 1), kPercent * (f.time.high - 1), kPercent * (f.memory.low - 1),
                    kPercent * (f.memory.high - 1)));
  }
  std::string out = text_of(numbers, style) + "\n" + text_of(errors, style);
  if (!fit.teaching.empty()) {
    Table next;
    next.title = "Runs that would teach the most";
    next.columns = {{"run", Align::left}, {"predicted", Align::right}, {"known to", Align::right}};
    for (const cost::TeachingRun& run : fit.teaching)
      next.rows.push_back({run.what, time_text(run.predicted_s), fmt::format("± {}", percent(run.uncertainty))});
    out += "\n" + text_of(next, style);
  }
  if (!fit.left_out.empty()) {
    Table left;
    left.title = "Left out";
    left.columns = {{"row", Align::left}, {"reason", Align::left}};
    for (const cost::LeftOutRow& row : fit.left_out) left.rows.push_back({row.id, row.reason});
    out += "\n" + text_of(left, style);
  }
  return out;
}

}  // namespace orrery::reports
