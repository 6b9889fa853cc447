/// Calibration files: strict reading, writing, and merging.
#include "cost/parameters/calibration.h"

#include <fmt/format.h>

#include "base/ensure.h"
#include "base/yaml.h"
#include "cost/parameters/read_parameters.h"

namespace orrery::cost {

double Calibration::at(const std::string& key) const {
  const auto found = parameters.find(key);
  ENSURE(found != parameters.end(), "no coefficient '{}' in calibration '{}'", key, name);
  return found->second.value;
}

double Calibration::get(const std::string& key, double fallback) const {
  const auto found = parameters.find(key);
  return found == parameters.end() ? fallback : found->second.value;
}

void Calibration::set(const std::string& key, double value, std::string source) {
  const auto kind = known_parameter(key);
  ENSURE(kind.has_value(), "'{}' is not a known coefficient", key);
  parameters[key] = Parameter{key, value, kind->unit, std::move(source)};
}

namespace {

base::UnitKind unit_kind(Unit unit) {
  switch (unit) {
    case Unit::seconds: return base::UnitKind::seconds;
    case Unit::bytes: return base::UnitKind::bytes;
    case Unit::bytes_per_second: return base::UnitKind::bytes_per_second;
    case Unit::number: break;
  }
  return base::UnitKind::seconds;
}

}  // namespace

std::map<std::string, Parameter> read_parameters(const base::Cursor& at, const std::string& prefix) {
  std::map<std::string, Parameter> out;
  std::vector<std::string> names;
  for (const ParameterKind& kind : known_parameters())
    if (kind.name.rfind(prefix, 0) == 0) names.push_back(kind.name);
  for (const std::string& key : at.keys()) {
    const base::Cursor entry = at.at(key);
    const auto kind = key.rfind(prefix, 0) == 0 ? known_parameter(key) : std::nullopt;
    if (!kind) {
      const std::string near = base::did_you_mean(key, names);
      entry.ignore();
      entry.error("E0103", fmt::format("unknown coefficient '{}'", key),
                  near.empty() ? "docs/formats.md lists the known ones" : fmt::format("did you mean '{}'?", near));
      continue;
    }
    const base::Cursor value = entry.at("value");
    Parameter parameter{key, 0, kind->unit, entry.at("source").text()};
    parameter.value = kind->unit == Unit::number ? value.number(kind->low, kind->high)
                                                 : value.quantity(unit_kind(kind->unit), kind->low, kind->high);
    out[key] = parameter;
  }
  return out;
}

base::Result<Calibration> parse_calibration(std::string_view text, std::string file) {
  return base::read_document<Calibration>(text, std::move(file), [](const base::Cursor& root) {
    Calibration c;
    c.name = root.at("calibration").text();
    if (root.has("device")) c.device = root.at("device").text();
    if (root.has("network")) c.network = root.at("network").text();
    if (root.has("stack")) c.stack = root.at("stack").text();
    for (const base::Cursor& one : root.optional("fitted_to").items())
      c.fitted_to.push_back({one.at("run").text(), one.at("fingerprint").text()});
    c.parameters = read_parameters(root.at("parameters"), "");
    return c;
  });
}

std::string write_calibration(const Calibration& c) {
  std::string out = "# Coefficients that replace Orrery's defaults; see docs/formats.md.\n";
  out += fmt::format("calibration: {}\n", base::yaml_quoted(c.name));
  if (!c.device.empty()) out += fmt::format("device: {}\n", base::yaml_quoted(c.device));
  if (!c.network.empty()) out += fmt::format("network: {}\n", base::yaml_quoted(c.network));
  if (!c.stack.empty()) out += fmt::format("stack: {}\n", base::yaml_quoted(c.stack));
  if (!c.fitted_to.empty()) out += "fitted_to:\n";
  for (const FittedTo& one : c.fitted_to)
    out += base::yaml_row(fmt::format("  - {{run: {}, fingerprint: {}}}", base::yaml_quoted(one.run),
                                      base::yaml_quoted(one.fingerprint)),
                          5) +
           "\n";
  out += c.parameters.empty() ? "parameters: {}\n" : "parameters:\n";
  for (const auto& [key, p] : c.parameters) out += parameter_row(key, p.value, p.unit, p.source) + "\n";
  return out;
}

namespace {

bool holds(const std::string& key, const Calibration& base, const Calibration& over) {
  const auto agrees = [](const std::string& a, const std::string& b) { return a.empty() || b.empty() || a == b; };
  if (key.rfind("device.", 0) == 0) return agrees(base.device, over.device);
  if (key.rfind("network.", 0) == 0)
    return agrees(base.network, over.network) || base.network.rfind(over.network + "/", 0) == 0 ||
           over.network.rfind(base.network + "/", 0) == 0;
  return agrees(base.stack, over.stack);
}

}  // namespace

Calibration merge(Calibration base, const std::vector<Calibration>& over, std::vector<std::string>* skipped) {
  for (const Calibration& c : over) {
    for (const auto& [key, parameter] : c.parameters) {
      if (holds(key, base, c)) {
        base.parameters[key] = parameter;
      } else if (skipped) {
        skipped->push_back(fmt::format("{} of '{}' (made for device '{}', network '{}', stack '{}')", key, c.name,
                                       c.device, c.network, c.stack));
      }
    }
  }
  return base;
}

}  // namespace orrery::cost
