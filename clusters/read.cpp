/// Reads a cluster: the brief form (device, node, fabric, how many) and `like`, another cluster with some of its parts
/// replaced. read_node.cpp reads the parts, check_shape.cpp checks them as a whole, and links.cpp reads the
/// link-by-link form.
#include "clusters/read.h"

#include <fmt/core.h>

#include <algorithm>

#include "clusters/build.h"
#include "clusters/device.h"
#include "clusters/limits.h"
#include "clusters/links.h"
#include "clusters/read_parts.h"

namespace orrery::clusters {

using base::Cursor;

namespace {

using Chain = std::vector<std::string>;  ///< clusters that `like` has led through, outermost first

Cluster read_in_chain(const Cursor& at, const Find& find, const Chain& chain);

/// The cluster that `like` names, in full; nothing after an error, which is already reported.
std::optional<Cluster> read_like(const Cursor& like, const Find& find, const Chain& chain) {
  const std::string name = like.text();
  const std::optional<std::string> text = find && !name.empty() ? find(name) : std::nullopt;
  if (!text) {
    like.error("C01", fmt::format("cluster '{}' is not in the catalogue", name),
               "name an entry of the catalogue, or a file by its path from this one's folder");
    return std::nullopt;
  }
  std::string through;
  for (const std::string& one : chain) through += one + " -> ";
  if (std::find(chain.begin(), chain.end(), name) != chain.end()) {
    like.error("C07", fmt::format("'like' goes in a circle: {}{}", through, name), "remove 'like' from one of them");
    return std::nullopt;
  }
  if (chain.size() >= kMostChain) {
    like.error("C07", fmt::format("'like' goes through more than {} files", kMostChain), "shorten the chain");
    return std::nullopt;
  }
  Chain longer = chain;
  longer.push_back(name);
  base::Result<Cluster> other = base::read_document<Cluster>(
      *text, name.ends_with(".yaml") ? name : name + ".yaml",
      std::function<Cluster(const Cursor&)>([&](const Cursor& at) { return read_in_chain(at, find, longer); }));
  if (other) return std::move(*other);
  for (const base::Diagnostic& d : other.error()) {
    like.error(d.code, fmt::format("{}:{}:{}: {}", d.where.file, d.where.line, d.where.column, d.message), d.help);
  }
  return std::nullopt;
}

/// The brief form, on its own or over the cluster that `like` names: each part that is given replaces that part.
Cluster read_brief(const Cursor& at, const Find& find, std::optional<Cluster> base) {
  const bool fresh = !base;
  Cluster cluster = base ? std::move(*base) : Cluster{};
  Shape shape = cluster.shape.value_or(Shape{});
  const auto part = [&](const char* key) { return fresh ? at.at(key) : at.optional(key); };
  if (const Cursor device = part("device"); device.exists() || fresh) cluster.devices = {resolve_device(device, find)};
  read_node(part("node"), fresh, cluster.devices_per_node, shape.node);
  if (const Cursor fabric = at.optional("fabric"); fabric.exists()) shape.network = read_network(fabric);
  const Cursor nodes = at.optional("nodes");
  if (nodes.exists()) {
    const int most = fresh ? kMostDevices / cluster.devices_per_node : kMostDevices;
    cluster.nodes = static_cast<int>(nodes.integer(1, most, 1));
    // A torus keeps its blocks when its size changes.
    if (!shape.network.torus.empty() && !at.has("fabric") && !fresh) {
      shape.network.torus = torus_for(shape.node.block, cluster.nodes);
      if (shape.network.torus.empty())
        nodes.error("C10", fmt::format("{} nodes do not make a torus", cluster.nodes), "give 'fabric' with its dims");
    }
  }
  cluster.shape = std::move(shape);
  check_shape(at, cluster);
  return cluster;
}

/// A link-by-link cluster under another name.
Cluster read_renamed(const Cursor& at, Cluster cluster) {
  for (const char* key : {"device", "node", "fabric", "nodes"}) {
    if (!at.has(key)) continue;
    at.at(key).error("C09", fmt::format("'{}' is given link by link, so 'like' can only change its name", cluster.name),
                     "write the cluster out");
    at.at(key).ignore();
  }
  return cluster;
}

NodePower read_power(const Cursor& at) {
  NodePower power;
  const auto watts = [&](const char* key) {
    const Cursor one = at.optional(key);
    return base::Watts{one.exists() ? one.quantity(base::UnitKind::watts, 0, kMostRate, 0) : 0};
  };
  power.host = watts("host");
  power.network = watts("network");
  constexpr double kMostPue = 10;
  if (const Cursor pue = at.optional("pue"); pue.exists()) power.pue = pue.number(1, kMostPue, 1);
  return power;
}

Cluster read_in_chain(const Cursor& at, const Find& find, const Chain& chain) {
  const bool by_link = at.has("vertices"), like = at.has("like");
  std::optional<Cluster> base;
  if (like) base = read_like(at.at("like"), find, chain);
  const std::vector<std::string> inherited = base ? base->sources : std::vector<std::string>{};
  Cluster cluster;
  if (like && !base) {
    for (const char* key : {"device", "node", "fabric", "nodes"}) at.optional(key).ignore();
  } else if (base && !base->shape) {
    cluster = read_renamed(at, std::move(*base));
  } else if (by_link && !like) {
    cluster = read_links(at, find);
  } else {
    cluster = read_brief(at, find, std::move(base));
  }
  cluster.name = at.at("name").text(cluster.name);
  if (const Cursor power = at.optional("power"); power.exists()) cluster.power = read_power(power);
  const Cursor stack = at.optional("stack");
  if (stack.exists()) cluster.stack = stack.text();
  cluster.sources = read_sources(at.optional("sources"));
  for (const std::string& source : inherited) {
    if (std::find(cluster.sources.begin(), cluster.sources.end(), source) == cluster.sources.end())
      cluster.sources.push_back(source);
  }
  if (cluster.devices.empty()) cluster.devices.emplace_back();
  return cluster;
}

}  // namespace

NetworkShape read_network(const Cursor& at) {
  NetworkShape network;
  const std::vector<std::string>& kinds = network_kinds();
  const Cursor word = at.at("kind");
  const int kind = word.exists() ? word.choice(kinds, -1) : -1;
  if (kind < 0) {
    at.ignore();  // which keys belong here depends on the kind
    return network;
  }
  network.kind = kinds[static_cast<std::size_t>(kind)];
  if (network.kind == "torus") {
    const Cursor dims = at.at("dims");
    if (dims.exists()) {
      for (const Cursor& extent : dims.items())
        network.torus.push_back(static_cast<int>(extent.integer(1, kMostDevices, 1)));
      if (network.torus.empty()) dims.error("C04", "a torus without dimensions", "give one number per dimension");
    }
    return network;
  }
  const bool tcp = network.kind == "tcp";
  const Cursor staged = at.optional("staged");
  network.staged = staged.exists() ? staged.boolean(tcp) : tcp;
  network.message_latency = read_delay(tcp ? at.at("message_latency") : at.optional("message_latency"));
  const Cursor rails = at.optional("rails");
  network.rails = rails.exists() && rails.boolean();
  network.leaf_nodes = read_count(at.optional("leaf_nodes"), 1, 0, kMostDevices);
  const Cursor pod_nodes = at.optional("pod_nodes");
  network.pod_nodes = read_count(pod_nodes, 1, 0, kMostDevices);
  if (network.pod_nodes > 0 && (network.leaf_nodes == 0 || network.pod_nodes % network.leaf_nodes != 0)) {
    pod_nodes.error(
        "C04",
        fmt::format("a pod of {} nodes does not divide into leaves of {}", network.pod_nodes, network.leaf_nodes),
        "use a multiple of 'leaf_nodes'");
    network.pod_nodes = 0;
  }
  constexpr double kMostOversubscription = 1000;
  const Cursor over = at.optional("oversubscription");
  if (over.exists()) network.oversubscription = over.number(1, kMostOversubscription, 1);
  const Cursor core = at.optional("core_oversubscription");
  if (core.exists()) network.core_oversubscription = core.number(1, kMostOversubscription, 1);
  network.hop_latency = read_delay(at.optional("hop_latency"));
  return network;
}

const std::vector<std::string>& network_kinds() {
  static const std::vector<std::string> kKinds = {"infiniband", "roce",      "ethernet", "tcp",  "omni-path",
                                                  "efa",        "slingshot", "tcpxo",    "torus"};
  return kKinds;
}

Cluster read_cluster(const Cursor& at, const Find& find) {
  Cluster cluster = read_in_chain(at, find, {});
  // Errors are already reported; do not build a graph from them.
  if (at.findings().failed()) return cluster;
  if (cluster.shape) {
    build(cluster);
  } else {
    summarize(cluster);
  }
  cluster.text = write_cluster(cluster);
  return cluster;
}

base::Result<Cluster> parse_description(std::string_view text, std::string file, const Find& find) {
  return base::read_document<Cluster>(text, std::move(file),
                                      std::function<Cluster(const Cursor&)>([&](const Cursor& at) {
                                        Cluster cluster = read_in_chain(at, find, {});
                                        if (at.findings().failed()) return cluster;
                                        if (cluster.shape)
                                          describe(cluster);
                                        else
                                          summarize(cluster);
                                        return cluster;
                                      }));
}

base::Result<Cluster> parse_cluster(std::string_view text, std::string file, const Find& find) {
  return base::read_document<Cluster>(
      text, std::move(file),
      std::function<Cluster(const Cursor&)>([&](const Cursor& at) { return read_cluster(at, find); }));
}

}  // namespace orrery::clusters
