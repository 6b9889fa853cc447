/// Text and JSON of fits of the stacks' numbers.
#include "reports/validation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cost/parameters.h"

namespace orrery::reports {

using nlohmann::json;

namespace {

cost::Unit unit_of(const std::string& parameter) {
  const auto kind = cost::known_parameter(parameter);
  return kind ? kind->unit : cost::Unit::number;
}

Table numbers_table(const std::vector<cost::FamilyFit>& fits) {
  Table table;
  table.title = "Numbers chosen over published rows";
  table.columns = {{"stack", Align::left},
                   {"number", Align::left},
                   {"before", Align::right},
                   {"after", Align::right},
                   {"source", Align::left, 60}};
  for (const cost::FamilyFit& fit : fits)
    for (const cost::FittedNumber& n : fit.numbers) {
      const cost::Unit unit = unit_of(n.parameter);
      table.rows.push_back({n.stack, n.parameter, cost::parameter_text(n.before, unit),
                            n.after == n.before ? "same" : cost::parameter_text(n.after, unit), n.source});
    }
  return table;
}

Table families_table(const std::vector<cost::FamilyFit>& fits) {
  Table table;
  table.title = "Median error in-sample";
  table.columns = {
      {"stacks", Align::left, 60}, {"rows", Align::right}, {"before", Align::right}, {"after", Align::right}};
  for (const cost::FamilyFit& fit : fits)
    table.rows.push_back({fmt::format("{}", fmt::join(fit.stacks, ", ")), fmt::format("{}", fit.rows),
                          percent(fit.error_before), percent(fit.error_after)});
  return table;
}

}  // namespace

json stack_fits_json(const std::vector<cost::FamilyFit>& fits, const std::vector<std::string>& written) {
  json families = json::array();
  for (const cost::FamilyFit& fit : fits) {
    json numbers = json::array();
    for (const cost::FittedNumber& n : fit.numbers)
      numbers.push_back({{"stack", n.stack},
                         {"name", n.parameter},
                         {"before", n.before},
                         {"after", n.after},
                         {"unit", cost::name_of(unit_of(n.parameter))},
                         {"source", n.source}});
    families.push_back({{"stacks", fit.stacks},
                        {"rows", fit.rows},
                        {"median_error_before", fit.error_before},
                        {"median_error_after", fit.error_after},
                        {"parameters", std::move(numbers)}});
  }
  return {{"fits", std::move(families)}, {"written", written}};
}

std::string stack_fits_text(const std::vector<cost::FamilyFit>& fits, const TableStyle& style) {
  return text_of(numbers_table(fits), style) + "\n" + text_of(families_table(fits), style);
}

}  // namespace orrery::reports
