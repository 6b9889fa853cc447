// collective: the time of a collective on a cluster, by size, and a comparison with what others measured.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/measure/collective_replay.h"
#include "apps/verbs/verb.h"
#include "base/units.h"
#include "clusters/read.h"
#include "clusters/routes.h"
#include "cost/network/collective_measurements.h"
#include "cost/network/messages.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

base::Diagnostics wrong_usage(const std::string& message, const std::string& help) {
  return {{base::Severity::error, "U0001", {}, message, help, {}}};
}

/// The cluster, enlarged if more nodes are asked for than it has; a part of it needs no change.
base::Result<clusters::Cluster> sized(clusters::Cluster cluster, int nodes, int per_node, const base::Location& from) {
  if (per_node > cluster.devices_per_node) {
    return base::fail(base::Diagnostics{
        {base::Severity::error,
         "C10",
         from,
         fmt::format("{} devices per node were asked for, but a node has {}", per_node, cluster.devices_per_node),
         "ask for fewer",
         {}}});
  }
  if (nodes <= cluster.nodes) return cluster;
  auto larger = clusters::resized(cluster, nodes * cluster.devices_per_node);
  if (larger) return larger;
  for (base::Diagnostic& one : larger.error()) one.where = from;
  return base::fail(larger.error());
}

json row_json(double bytes, int ranks, cost::Operation operation, const std::string& algorithm,
              const std::string& protocol, double seconds) {
  const double rate = bytes / seconds;
  return {{"bytes", bytes},
          {"algorithm", algorithm},
          {"protocol", protocol},
          {"time_s", seconds},
          {"algorithm_bandwidth_bytes_per_s", rate},
          {"bus_bandwidth_bytes_per_s", rate * cost::bus_factor(operation, ranks)}};
}

std::string gigabytes(double bytes_per_second) {
  return fmt::format("{:.2f}", bytes_per_second / 1e9);
}

cost::Operation operation_of(const std::string& name) {
  for (int i = 0; i < cost::kOperations; ++i)
    if (name == cost::name_of(static_cast<cost::Operation>(i))) return static_cast<cost::Operation>(i);
  return cost::Operation::all_reduce;  // the command line accepts no other name
}

base::Result<std::vector<double>> sizes_of(const std::vector<std::string>& texts) {
  std::vector<double> sizes;
  for (const std::string& text : texts) {
    double bytes = 0;
    std::string error;
    if (!base::parse_quantity(text, base::UnitKind::bytes, bytes, error) || bytes < 1)
      return base::fail(wrong_usage("--sizes: '" + text + "': " + (error.empty() ? "less than a byte" : error),
                                    "write sizes with their units: 64KiB,1MiB,100MB"));
    sizes.push_back(bytes);
  }
  if (!sizes.empty()) return sizes;
  for (double bytes = 1024; bytes <= 16.0 * 1024 * 1024 * 1024; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

Outcome predict(const CollectiveOptions& options, const Context& context,
                const std::vector<cost::Calibration>& calibrations) {
  const base::Location from{options.cluster, 1, 1, 1};
  auto loaded = load_cluster(context.catalog, options.cluster, from, fs::current_path());
  if (!loaded) return bad_input(loaded.error());
  const auto sizes = sizes_of(options.sizes);
  if (!sizes) return {kUsage, {}, {}, sizes.error()};
  const cost::Operation operation = operation_of(options.operation);
  const bool send = operation == cost::Operation::send;
  const int nodes = options.nodes > 0 ? options.nodes : send ? std::min(loaded->nodes, 2) : loaded->nodes;
  const int per_node = options.per_node > 0 ? options.per_node : send ? (nodes > 1 ? 1 : 2) : loaded->devices_per_node;
  const auto cluster = sized(std::move(*loaded), nodes, per_node, from);
  if (!cluster) return bad_input(cluster.error());
  const std::vector<int> members = cost::members_of(*cluster, nodes, per_node);
  const auto ranks = static_cast<int>(members.size());
  if (ranks < 2 || (send && ranks > 2))
    return {kUsage,
            {},
            {},
            wrong_usage(
                fmt::format("{} over {}", options.operation, base::count_of(static_cast<std::int64_t>(ranks), "rank")),
                "choose ranks with --nodes and --per-node: two for send, two or more otherwise")};

  Outcome outcome;
  reports::Table table;
  table.title =
      fmt::format("{} over {} ranks of {}: {} x {}", options.operation, ranks, cluster->name, nodes, per_node);
  table.columns = {
      {"size"},      {"algorithm", reports::Align::left}, {"protocol", reports::Align::left}, {"time"}, {"algbw GB/s"},
      {"busbw GB/s"}};
  const cost::Calibration own = cost::merge(cost::defaults(*cluster), calibrations);
  const auto library = [&](base::Bytes message, const std::vector<int>& among) {
    return cost::price_of(*cluster, own, operation, message, among, options.algorithm);
  };
  json rows = json::array();
  for (const double bytes : *sizes) {
    const cost::CollectivePrice price = library(base::Bytes{bytes}, members);
    if (!options.replay && !options.algorithm.empty() && price.algorithm != options.algorithm)
      return usage(
          fmt::format("--algorithm: the library cannot run {} for {} of {} among these ranks",
                      base::quoted(options.algorithm), options.operation, base::human(base::Bytes{bytes})),
          fmt::format("it takes {} here; with --replay, algorithms that it lacks are timed too", price.algorithm));
    rows.push_back(row_json(bytes, ranks, operation, price.algorithm, price.protocol, price.time.value));
    const json& row = rows.back();
    table.rows.push_back({base::human(base::Bytes{bytes}), price.algorithm, price.protocol,
                          reports::time_text(price.time.value), gigabytes(row["algorithm_bandwidth_bytes_per_s"]),
                          gigabytes(row["bus_bandwidth_bytes_per_s"])});
  }
  json result{{"cluster", cluster->name},
              {"operation", options.operation},
              {"ranks", ranks},
              {"nodes", nodes},
              {"rows", rows},
              {"measured", nullptr},
              {"replay", nullptr}};
  if (options.replay) {
    const auto replayed = replay_on_links(options, *cluster, operation, members, *sizes, library);
    if (!replayed) return {kUsage, {}, {}, replayed.error()};
    table = replayed->table;
    result["replay"] = json::parse(replayed->json);
  }
  outcome.text = reports::text_of(table, context.terminal.style);
  outcome.json = result.dump();
  return outcome;
}

json json_of(const cost::CollectiveErrors& e) {
  const auto value = [&](double x) { return e.judged > 0 ? json(x) : json(nullptr); };
  return {{"judged", e.judged},
          {"median_error", value(e.median)},
          {"mean_error", value(e.mean)},
          {"p90_error", value(e.p90)},
          {"worst_error", value(e.worst)}};
}

Outcome compare(const CollectiveOptions& options, const Context& context,
                const std::vector<cost::Calibration>& calibrations) {
  const auto text = read_argument(options.measured);
  if (!text) return bad_input(text.error());
  const auto all = cost::parse_measured_collectives(*text, options.measured);
  if (!all) return bad_input(all.error());
  reports::Table table;
  table.title = "Predicted and measured bandwidth on the bus, GB/s";
  table.columns = {
      {"series", reports::Align::left}, {"size"}, {"measured"}, {"predicted"}, {"error"}, {"by", reports::Align::left},
      {"", reports::Align::left}};
  std::vector<cost::PredictedCollective> every;
  json series = json::array(), rows = json::array();
  const fs::path folder = fs::absolute(options.measured).parent_path();
  for (const cost::CollectiveSeries& one : *all) {
    auto loaded = load_cluster(context.catalog, one.cluster, one.at, folder);
    if (!loaded) return bad_input(loaded.error());
    const auto cluster = sized(std::move(*loaded), one.nodes, one.per_node, one.at);
    if (!cluster) return bad_input(cluster.error());
    const auto predicted = cost::predict_series(one, *cluster, calibrations);
    json entry = json_of(cost::errors_of(predicted));
    entry["id"] = one.id;
    entry["source"] = one.source;
    entry["left_out"] = one.left_out.empty() ? json(nullptr) : json(one.left_out);
    series.push_back(std::move(entry));
    for (const cost::PredictedCollective& p : predicted) {
      rows.push_back({{"series", p.series},
                      {"bytes", p.bytes},
                      {"measured_bytes_per_s", p.measured},
                      {"predicted_bytes_per_s", p.predicted},
                      {"time_s", p.seconds},
                      {"error", p.error},
                      {"algorithm", p.algorithm},
                      {"protocol", p.protocol},
                      {"standing", cost::name_of(p.standing)}});
      table.rows.push_back({p.series, base::human(base::Bytes{p.bytes}), gigabytes(p.measured), gigabytes(p.predicted),
                            fmt::format("{:+.1f} %", 100 * p.error), p.algorithm + " " + p.protocol,
                            p.standing == cost::Standing::judged ? "" : cost::name_of(p.standing)});
    }
    every.insert(every.end(), predicted.begin(), predicted.end());
  }
  const cost::CollectiveErrors errors = cost::errors_of(every);
  table.notes.push_back(fmt::format("{} judged: median error {}, mean {}, 90th percentile {}, worst {}",
                                    base::count_of(static_cast<std::int64_t>(errors.judged), "row"),
                                    reports::percent(errors.median), reports::percent(errors.mean),
                                    reports::percent(errors.p90), reports::percent(errors.worst)));
  json measured = json_of(errors);
  measured["series"] = std::move(series);
  measured["rows"] = std::move(rows);
  Outcome outcome;
  outcome.text = reports::text_of(table, context.terminal.style);
  outcome.json = json{{"cluster", nullptr}, {"operation", nullptr},  {"ranks", nullptr},
                      {"nodes", nullptr},   {"rows", json::array()}, {"measured", std::move(measured)},
                      {"replay", nullptr}}
                     .dump();
  return outcome;
}

Outcome run_collective(const CollectiveOptions& options, const Context& context) {
  if (options.cluster.empty() == options.measured.empty())
    return {kUsage,
            {},
            {},
            wrong_usage("give either a cluster or a file of measurements",
                        "orrery collective hgx-h100, or orrery collective --measured FILE")};
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());
  return options.measured.empty() ? predict(options, context, *calibrations) : compare(options, context, *calibrations);
}

void add_collective_flags(Flags flags, CollectiveOptions& o) {
  flags.option("CLUSTER", o.cluster, "Catalogue name or cluster YAML");
  flags.option("--op", o.operation, "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send")
      .one_of({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send"})
      .value("OP");
  flags.option("--nodes", o.nodes, "Nodes that take part; default: all of the cluster").range(1, 1 << 18).value("N");
  flags.option("--per-node", o.per_node, "Devices per node; default: all").range(1, 4096).value("G");
  flags.option("--sizes", o.sizes, "Message sizes: 64KiB,1MiB,100MB; default: 1 KiB to 16 GiB")
      .by_commas()
      .value("S,S..");
  flags.option("--algorithm", o.algorithm, "As in NCCL_ALGO: ring, tree, nvls, nvls-tree, pairwise ..").value("NAME");
  const Flag replay =
      flags.flag("--replay", o.replay,
                 "Also show the algorithm itself, or all that can do it: in closed form, and replayed on the links");
  flags.option("--pieces", o.pieces, "Pieces that follow one another along trees and chains and through switches")
      .range(1, 1024)
      .needs(replay)
      .value("K");
  flags
      .option("--channels", o.channels,
              "Divide the message into parts; each goes over the nodes' devices in another order")
      .range(1, 64)
      .needs(replay)
      .value("C");
  flags.option("--tasks", o.tasks, "This many collectives at once, with the ranks dealt out to them in turn")
      .range(1, 4096)
      .needs(replay)
      .value("T");
  flags.option("--measured", o.measured, "Instead of CLUSTER: predict the rows of this file")
      .excludes(replay)
      .value("FILE");
  add_calibrations(flags, o.calibrations);
}

}  // namespace

Verb collective_verb() {
  return verb_of<CollectiveOptions>({
      .name = "collective",
      .says = "Show the time and bandwidth of a collective on a cluster, or compare with measurements",
      .examples =
          "  orrery collective hgx-h100 --op all_gather --nodes 4\n"
          "  orrery collective hgx-h100 --nodes 4 --algorithm ring --replay --channels 8   what the links make of it",
      .flags = add_collective_flags,
      .run = run_collective,
      .inputs = [](const CollectiveOptions& o) -> std::vector<std::string> {
        return all_of({{o.cluster, o.measured}, o.calibrations});
      },
  });
}

}  // namespace orrery::apps
