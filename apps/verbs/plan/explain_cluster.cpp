// explain --cluster and --clusters: how Orrery reads a cluster file, and what the catalogue contains.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/inputs.h"
#include "apps/output.h"
#include "apps/verbs/plan/explain.h"
#include "base/units.h"
#include "clusters/link_names.h"
#include "clusters/rings.h"
#include "clusters/routes.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

using clusters::Channels;
using clusters::Cluster;
using nlohmann::ordered_json;

constexpr int kMostWired = 64;  ///< nodes of the group whose wiring is shown: larger groups look the same

std::string join(const clusters::LinkClass& link) {
  return link.name.empty() ? "" : fmt::format("{} {}", link.name, base::human(link.bandwidth));
}

ordered_json json_of(const Channels& channels) {
  return {{"channels", channels.count},
          {"intra_bytes_per_s", channels.intra.value},
          {"inter_bytes_per_s", channels.inter.value},
          {"path_intra", clusters::name_of(channels.path_intra)},
          {"path_inter", clusters::name_of(channels.path_inter)},
          {"cross_nic", channels.cross_nic}};
}

/// `linked`: what the links between devices are called.
std::string text_of(const Channels& channels, const std::string& linked) {
  if (channels.count == 0) return "none";
  std::string text = fmt::format("{} x {}", channels.count, base::human(channels.inter));
  if (channels.intra != channels.inter) text += fmt::format(" ({} in a node)", base::human(channels.intra));
  const bool direct = channels.path_intra == clusters::PathType::nvlink && linked != "nvlink";
  text += " over " + (direct ? linked : std::string(clusters::name_of(channels.path_intra)));
  if (channels.path_inter != clusters::PathType::none)
    text +=
        std::string(" and ") + clusters::name_of(channels.path_inter) + (channels.cross_nic ? ", crossing NICs" : "");
  return text;
}

std::vector<int> first(int count) {
  std::vector<int> members(static_cast<std::size_t>(count));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

ordered_json json_of(const clusters::LinkClass& link) {
  return {{"name", link.name}, {"bandwidth_bytes_per_s", link.bandwidth.value}, {"latency_s", link.latency.value}};
}
ordered_json json_of(const clusters::Storage& storage) {
  return {{"capacity_bytes", storage.capacity.value},
          {"read_bytes_per_s", storage.read.value},
          {"write_bytes_per_s", storage.write.value},
          {"latency_s", storage.latency.value}};
}

std::string power_of(const Cluster& cluster) {
  const clusters::Device& device = cluster.device();
  const auto watts = [](base::Watts w) { return base::quantity_text(w.value, base::UnitKind::watts); };
  std::string text;
  if (device.power.value > 0) text = watts(device.power) + " a device";
  if (device.idle_power.value > 0) text += fmt::format(", {} idle", watts(device.idle_power));
  if (cluster.power.host.value > 0) text += fmt::format("; {} a node beside them", watts(cluster.power.host));
  if (cluster.power.network.value > 0) text += fmt::format(", {} for its network", watts(cluster.power.network));
  if (cluster.power.pue > 1) text += fmt::format("; PUE {}", cluster.power.pue);
  return text;
}

Outcome explain_one(const std::string& name, const Context& context) {
  const auto cluster = load_cluster(context.catalog, name, {name, 0, 0, 1}, ".");
  if (!cluster) return bad_input(cluster.error());
  const int nodes = std::min(cluster->nodes, kMostWired);
  const clusters::Wiring inside = wiring_of(*cluster, first(cluster->devices_per_node));
  const clusters::Wiring all = wiring_of(*cluster, first(nodes * cluster->devices_per_node));
  std::map<std::string, std::size_t> kinds;
  const auto vertices = boost::vertices(*cluster->graph);
  for (auto v = vertices.first; v != vertices.second; ++v) ++kinds[name_of((*cluster->graph)[*v].kind)];

  ordered_json out = {
      {"name", cluster->name},
      {"device", cluster->device().name},
      {"nodes", cluster->nodes},
      {"devices_per_node", cluster->devices_per_node},
      {"intra", json_of(cluster->intra)},
      {"inter", json_of(cluster->inter)},
      {"nics_per_node", cluster->nics_per_node},
      {"host_memory", json_of(cluster->host_memory)},
      {"nvme", json_of(cluster->nvme)},
      {"power",
       {{"device_w", cluster->device().power.value},
        {"idle_device_w", cluster->device().idle_power.value},
        {"host_w", cluster->power.host.value},
        {"network_w", cluster->power.network.value},
        {"pue", cluster->power.pue}}},
      {"wiring_in_a_node",
       {{"ring", json_of(inside.ring)}, {"tree", json_of(inside.tree)}, {"nvls", json_of(inside.nvls)}}},
      {"graph", {{"links", boost::num_edges(*cluster->graph)}, {"vertices", kinds}}},
      {"sources", cluster->sources}};
  const std::string linked = clusters::name_on(*cluster, clusters::LinkKind::nvlink);
  reports::Table table;
  table.title = cluster->name;
  table.columns = {{"", reports::Align::left}, {"", reports::Align::left}};
  const auto row = [&](const char* what, std::string value) {
    if (!value.empty()) table.rows.push_back({what, std::move(value)});
  };
  row("devices", fmt::format("{} = {} x {} {}", cluster->size(), base::count_of(cluster->nodes, "node"),
                             cluster->devices_per_node, cluster->device().name));
  row("in a node, per device", join(cluster->intra));
  row("between nodes, per device", join(cluster->inter));
  if (cluster->host_memory.capacity.value > 0)
    row("host memory of a node",
        fmt::format("{} at {}", base::human(cluster->host_memory.capacity), base::human(cluster->host_memory.read)));
  if (cluster->nvme.capacity.value > 0)
    row("NVMe of a node", fmt::format("{}, reads {}, writes {}", base::human(cluster->nvme.capacity),
                                      base::human(cluster->nvme.read), base::human(cluster->nvme.write)));
  row("power", power_of(*cluster));
  if (cluster->size() > 1) {
    const base::BytesPerSecond cut = bisection(*cluster);
    out["bisection_bytes_per_s"] = cut.value;
    row("bisection", base::human(cut));
  }
  if (cluster->devices_per_node > 1) {
    row("rings in a node", text_of(inside.ring, linked));
    row("trees in a node", text_of(inside.tree, linked));
    row("NVLS heads in a node", text_of(inside.nvls, linked));
  }
  if (cluster->nodes > 1) {
    out["wiring_between_nodes"] = {
        {"nodes", nodes}, {"ring", json_of(all.ring)}, {"tree", json_of(all.tree)}, {"nvls", json_of(all.nvls)}};
    const std::string over = fmt::format("rings over {} nodes", nodes);
    row(over.c_str(), text_of(all.ring, linked));
    row("trees over them", text_of(all.tree, linked));
    if (all.staged)
      row("messages between nodes", fmt::format("through host memory, {} each", base::human(all.message_latency)));
  }
  std::string parts;
  for (const auto& [kind, count] : kinds) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", count, kind);
  row("graph", fmt::format("{}; {} links", parts, boost::num_edges(*cluster->graph)));
  for (const std::string& source : cluster->sources) table.notes.push_back("source: " + source);
  Outcome outcome;
  outcome.json = ordered_json{{"cluster", out}}.dump();
  outcome.text = reports::text_of(table, context.terminal.style);
  return outcome;
}

Outcome explain_all(const Context& context) {
  reports::Table table;
  table.columns = {{"name", reports::Align::left},         {"devices"},
                   {"nodes", reports::Align::right, 0, 1}, {"device", reports::Align::left},
                   {"in a node", reports::Align::left},    {"between nodes", reports::Align::left}};
  ordered_json rows = ordered_json::array();
  Outcome outcome;
  const std::vector<std::string> names = context.catalog.names(kClusters);
  print_early(reports::count_text(std::ssize(names), "cluster") + " in the catalogue\n\n", context.json,
              context.terminal);
  for (const std::string& name : names) {
    const base::Result<Cluster> cluster = describe_cluster(context.catalog, name);
    if (!cluster) {
      outcome.diagnostics.insert(outcome.diagnostics.end(), cluster.error().begin(), cluster.error().end());
      outcome.exit_code = kBadInput;
      continue;
    }
    table.rows.push_back({name, reports::count_text(cluster->size()), reports::count_text(cluster->nodes),
                          cluster->device().name, join(cluster->intra), join(cluster->inter)});
    rows.push_back({{"name", name},
                    {"devices", cluster->size()},
                    {"nodes", cluster->nodes},
                    {"device", cluster->device().name},
                    {"intra", json_of(cluster->intra)},
                    {"inter", json_of(cluster->inter)}});
  }
  outcome.text = reports::text_of(table, context.terminal.style);
  outcome.json = ordered_json{{"clusters", rows}}.dump();
  return outcome;
}

}  // namespace

Outcome explain_cluster(const ExplainOptions& options, const Context& context) {
  return options.clusters ? explain_all(context) : explain_one(options.cluster, context);
}

}  // namespace orrery::apps
