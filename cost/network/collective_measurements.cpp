/// Reads measured collectives, predicts them, and computes the errors.
#include "cost/network/collective_measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/ensure.h"
#include "base/yaml.h"
#include "clusters/routes.h"
#include "cost/parameters/read_parameters.h"

namespace orrery::cost {

using base::Cursor;
using base::UnitKind;

namespace {

constexpr double kMostMessage = 1e15, kMostBandwidth = 1e15;
constexpr std::int64_t kMostNodes = 1 << 18;

Operation read_operation(const Cursor& at) {
  std::vector<std::string> names;
  for (int i = 0; i < kOperations; ++i) names.emplace_back(name_of(static_cast<Operation>(i)));
  return static_cast<Operation>(at.choice(names));
}

void read_launch(const Cursor& at, CollectiveSeries& series) {
  if (!at.exists()) return;
  const Cursor floor = at.optional("floor"), each = at.optional("each");
  if (floor.exists()) series.launch_floor = floor.quantity(UnitKind::seconds, 0, 1);
  if (each.exists()) series.launch_each = each.quantity(UnitKind::seconds, 0, 1);
  series.launch_source = at.at("source").text();
}

void read_rows(const Cursor& at, const Cursor& fitted, CollectiveSeries& series) {
  std::set<double> seen;
  for (const Cursor& row : at.items()) {
    const std::vector<Cursor> parts = row.items();
    if (parts.size() != 2) {
      row.error("E0105", fmt::format("a row has {} values", parts.size()), "write [size, bandwidth on the bus]");
      continue;
    }
    MeasuredCollective one;
    one.bytes = parts[0].quantity(UnitKind::bytes, 1, kMostMessage, 1);
    one.bus_bandwidth = parts[1].quantity(UnitKind::bytes_per_second, 1, kMostBandwidth, 1);
    if (!seen.insert(one.bytes).second)
      parts[0].error("E0105", "this size already has a row above", "give one row per size");
    series.rows.push_back(one);
  }
  for (const Cursor& item : fitted.items()) {
    const double bytes = item.quantity(UnitKind::bytes, 1, kMostMessage, 1);
    const auto row = std::find_if(series.rows.begin(), series.rows.end(),
                                  [&](const MeasuredCollective& r) { return r.bytes == bytes; });
    if (row == series.rows.end()) {
      item.error("E0105", "no row has this size", "name the rows that set the series' parameters");
    } else {
      row->fitted = true;
    }
  }
}

CollectiveSeries read_series(const Cursor& at) {
  CollectiveSeries s;
  s.at = at.where();
  s.id = at.at("id").text();
  s.source = at.at("source").text();
  s.cluster = at.at("cluster").text();
  const Cursor nodes = at.optional("nodes"), per_node = at.optional("per_node"), left_out = at.optional("left_out"),
               algorithm = at.optional("algorithm"), parameters = at.optional("parameters");
  if (nodes.exists()) s.nodes = static_cast<int>(nodes.integer(1, kMostNodes, 1));
  if (per_node.exists()) s.per_node = static_cast<int>(per_node.integer(1, kMostNodes, 1));
  s.operation = read_operation(at.at("operation"));
  if (algorithm.exists()) s.algorithm = algorithm.text();
  read_launch(at.optional("launch"), s);
  if (parameters.exists()) s.parameters = read_parameters(parameters, "network.");
  if (left_out.exists()) s.left_out = left_out.text();
  read_rows(at.at("rows"), at.optional("fitted"), s);
  return s;
}

}  // namespace

base::Result<std::vector<CollectiveSeries>> parse_measured_collectives(std::string_view text, std::string file) {
  using All = std::vector<CollectiveSeries>;
  return base::read_document<All>(text, std::move(file), std::function<All(const Cursor&)>([](const Cursor& root) {
                                    All all;
                                    std::set<std::string> ids;
                                    for (const Cursor& item : root.at("series").items()) {
                                      all.push_back(read_series(item));
                                      if (!ids.insert(all.back().id).second)
                                        item.at("id").error("E0105", "two series have this id");
                                    }
                                    return all;
                                  }));
}

const char* name_of(Standing standing) {
  switch (standing) {
    case Standing::judged: return "judged";
    case Standing::fitted: return "fitted";
    case Standing::small: return "small";
    case Standing::left_out: return "left out";
  }
  return "?";
}

std::vector<int> members_of(const clusters::Cluster& cluster, int nodes, int per_node) {
  if (per_node <= 0) per_node = cluster.devices_per_node;
  ENSURE(nodes <= cluster.nodes && per_node <= cluster.devices_per_node, "{} x {} of {} x {} devices", nodes, per_node,
         cluster.nodes, cluster.devices_per_node);
  std::vector<int> members;
  for (int n = 0; n < nodes; ++n)
    for (int d = 0; d < per_node; ++d) members.push_back(n * cluster.devices_per_node + d);
  return members;
}

std::vector<PredictedCollective> predict_series(const CollectiveSeries& series, const clusters::Cluster& cluster,
                                                const std::vector<Calibration>& calibrations) {
  Calibration own = merge(defaults(cluster), calibrations);
  for (const auto& [name, parameter] : series.parameters) own.parameters[name] = parameter;
  const Network network = collective_network(cluster, own);
  const std::vector<int> members = members_of(cluster, series.nodes, series.per_node);
  const auto ranks = static_cast<int>(members.size());
  const clusters::GroupSpan span = clusters::span_of(cluster, members);
  std::vector<PredictedCollective> out;
  for (const MeasuredCollective& row : series.rows) {
    PredictedCollective p;
    p.series = series.id;
    p.bytes = row.bytes;
    p.measured = row.bus_bandwidth;
    const base::Bytes message{row.bytes};
    const Choice choice = choose(network, series.operation, span, ranks, message, series.algorithm);
    p.algorithm = choice.algorithm;
    p.protocol = choice.protocol;
    p.seconds = std::max(series.launch_floor, time_of(network, choice, row.bytes) + series.launch_each);
    p.predicted = row.bytes * bus_factor(series.operation, ranks) / p.seconds;
    p.error = p.predicted / p.measured - 1;
    p.standing = !series.left_out.empty()  ? Standing::left_out
                 : row.fitted              ? Standing::fitted
                 : row.bytes < kJudgedFrom ? Standing::small
                                           : Standing::judged;
    out.push_back(std::move(p));
  }
  return out;
}

CollectiveErrors errors_of(const std::vector<PredictedCollective>& rows) {
  std::vector<double> all;
  for (const PredictedCollective& row : rows)
    if (row.standing == Standing::judged) all.push_back(std::abs(row.error));
  CollectiveErrors e;
  e.judged = static_cast<int>(all.size());
  if (all.empty()) return e;
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  constexpr double kTail = 0.9;
  e.median = n % 2 == 1 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2;
  for (const double x : all) e.mean += x / static_cast<double>(n);
  e.p90 = all[static_cast<std::size_t>(std::ceil(kTail * static_cast<double>(n))) - 1];
  e.worst = all.back();
  return e;
}

}  // namespace orrery::cost
