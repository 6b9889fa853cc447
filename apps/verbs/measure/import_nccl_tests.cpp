// import of nccl-tests' logs: turns measurements into a calibration file.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/measure/import.h"
#include "apps/verbs/runs.h"
#include "clusters/read.h"
#include "cost/fit/nccl_fit.h"
#include "reports/json.h"
#include "reports/tables/text.h"

namespace orrery::apps {
namespace {

/// The measured cluster, in the size of the largest test.
base::Result<clusters::Cluster> measured_cluster(const ImportOptions& options, const std::vector<cost::NcclTest>& tests,
                                                 const Context& context) {
  auto cluster = load_cluster(context.catalog, options.cluster, {options.cluster, 0, 0, 1}, ".");
  if (!cluster) return cluster;
  int nodes = 1;
  for (const cost::NcclTest& test : tests) {
    std::set<std::string> hosts;
    for (const cost::TestedRank& rank : test.ranks) hosts.insert(rank.host);
    nodes = std::max(nodes, static_cast<int>(hosts.size()));
  }
  if (nodes <= cluster->nodes || !cluster->shape) return cluster;
  return clusters::resized(*cluster, nodes * cluster->devices_per_node);
}

}  // namespace

Outcome import_nccl_tests(const ImportOptions& options, const std::vector<std::string>& texts, const Context& context) {
  std::vector<cost::NcclTest> tests;
  base::Diagnostics found, warnings;
  std::vector<cost::FittedTo> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto test = cost::parse_nccl_test(texts[i], options.files[i]);
    if (!test) {
      found.insert(found.end(), test.error().begin(), test.error().end());
      continue;
    }
    warnings.insert(warnings.end(), test->warnings.begin(), test->warnings.end());
    sources.push_back({options.files[i], fingerprint_of(texts[i])});
    tests.push_back(std::move(*test));
  }
  if (!found.empty()) return bad_input(std::move(found));
  if (options.cluster.empty())
    return bad_input({{base::Severity::error,
                       "E0311",
                       {options.files.front(), 1, 1, 1},
                       "a log of nccl-tests does not say which links were measured",
                       "name the cluster with --cluster: one from the catalogue, or a file made by `orrery import`",
                       {}}});
  const auto cluster = measured_cluster(options, tests, context);
  if (!cluster) return bad_input(cluster.error());
  const auto known = load_calibrations(context.catalog, {});
  if (!known) return bad_input(known.error());

  cost::FitOptions fit;
  fit.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const std::string& named = options.output.empty() ? options.files.front() : options.output;
  fit.name = named == "-" ? "imported" : std::filesystem::path(named).stem().string();
  auto fitted = cost::fit_nccl_tests(tests, *cluster, *known, fit);
  if (!fitted) return bad_input(fitted.error());
  fitted->calibration.fitted_to = std::move(sources);
  const std::string yaml = cost::write_calibration(fitted->calibration);
  if (!options.output.empty()) context.outputs.write(options.output, yaml);

  Outcome outcome;
  outcome.diagnostics = std::move(warnings);
  const base::Diagnostics poor =
      no_better(fitted->result, "logs", options.output, "measure on an idle machine before using the file");
  outcome.diagnostics.insert(outcome.diagnostics.end(), poor.begin(), poor.end());
  nlohmann::json json = reports::calibrate_json(fitted->result);
  json["inputs"] = nlohmann::json::array();
  for (const std::string& file : options.files) json["inputs"].push_back({{"file", file}, {"format", "nccl-tests"}});
  json["path"] = options.output.empty() ? nlohmann::json(nullptr) : nlohmann::json(options.output);
  json["calibration"] = yaml;
  outcome.json = json.dump();
  outcome.text = options.output.empty() ? yaml
                                        : reports::fit_text(fitted->result, context.terminal.style) +
                                              fmt::format("\n{} {}    next: orrery simulate PLAN --calibration {}\n",
                                                          context.outputs.wrote(), options.output, options.output);
  return outcome;
}

}  // namespace orrery::apps
