/// NCCL's topology XML. The nesting is what NCCL 2.28.9 accepts (src/graph/xml.cc): system > cpu > pci (> pci …) > gpu
/// > nvlink, c2c; pci or cpu > nic > net.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "clusters/import/pcie.h"
#include "clusters/import/readers.h"
#include "clusters/import/xml.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

constexpr const char* kSwitchClass = "0x068000";  // NVSwitch
constexpr const char* kCpuClass = "0x068001";     // NVLink bridge of POWER9
constexpr double kMegabit = 1e6 / 8;              // bytes/s
constexpr double kDefaultMegabits = 10000;        // a port of unknown speed: NCCL's ncclTopoAddNet
constexpr double kMegabyte = 1e6;
constexpr long long kMostMegabits = 100'000'000;

/// An NVLink as written, before its target is resolved.
struct RawLink {
  int gpu = 0;
  std::string target, target_class;
  int count = 0;
  base::Location where;
};

/// What the dump says of one host.
struct DumpedHost {
  std::string hash;
  FoundNode node;
  std::vector<RawLink> links;
  std::set<std::string> buses;  ///< of all PCI devices
};

/// dddd:bb:dd.f, or the placeholder that NCCL writes for a switch that it cannot see.
bool is_bus(const std::string& bus) {
  const auto hex = [&](std::size_t from, std::size_t count) {
    for (std::size_t i = from; i < from + count; ++i)
      if (i >= bus.size() || std::string_view("0123456789abcdefABCDEF").find(bus[i]) == std::string_view::npos)
        return false;
    return true;
  };
  const std::size_t colon = bus.find(':');
  if (colon == std::string::npos || colon < 4 || colon > 8) return false;
  return hex(0, colon) && bus.size() == colon + 8 && hex(colon + 1, 2) && bus[colon + 3] == ':' && hex(colon + 4, 2) &&
         bus[colon + 6] == '.' && hex(colon + 7, 1);
}

/// "10de:20b0" for vendor 0x10de and device 0x20b0; empty if these are not given.
std::string pci_name(const XmlElement& pci) {
  const std::string_view vendor = pci.value("vendor"), device = pci.value("device");
  if (!vendor.starts_with("0x") || !device.starts_with("0x")) return {};
  std::string name = std::string(vendor.substr(2)) + ":" + std::string(device.substr(2));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

/// Values of attributes, as NCCL writes them; what is not so is a finding.
class DumpedValues {
 public:
  explicit DumpedValues(base::Findings& findings) : findings_(findings) {}

  void error(const char* code, base::Location where, std::string message, std::string help = {}) {
    findings_.error(code, std::move(where), std::move(message), std::move(help));
  }
  void misplaced(const XmlElement& element, const XmlElement& parent, const std::string& help) {
    error("E0303", element.where, fmt::format("`<{}>` may not be inside `<{}>`", element.name, parent.name), help);
  }

  /// The value of a required attribute, with E0304 when it is missing.
  std::string needed(const XmlElement& element, const char* name) {
    const XmlAttribute* attribute = element.find(name);
    if (attribute == nullptr) {
      error("E0304", element.where, fmt::format("`<{}>` has no {}", element.name, name), "NCCL always writes it");
      return {};
    }
    return attribute->value;
  }

  /// A whole number in [low, high]; `fallback` when the attribute is absent.
  long long number(const XmlElement& element, const char* name, long long low, long long high, long long fallback) {
    const XmlAttribute* attribute = element.find(name);
    if (attribute == nullptr) return fallback;
    const bool negative = attribute->value.starts_with('-');
    long long value = 0;
    const bool read = whole_number(std::string_view(attribute->value).substr(negative ? 1 : 0), value);
    if (negative) value = -value;
    if (read && value >= low && value <= high) return value;
    error("E0304", attribute->where,
          fmt::format("`{}` of `<{}>` must be a whole number from {} to {}, found {}", name, element.name, low, high,
                      base::quoted(attribute->value)));
    return fallback;
  }

  /// Bytes/s of the link above a device; if unknown, generation 3 and 16 lanes, as NCCL assumes.
  double link_of(const XmlElement& element) {
    const XmlAttribute* speed = element.find("link_speed");
    const long long width = number(element, "link_width", 0, 32, 0);
    double transfers = kPcieGeneration3;
    if (speed != nullptr && !speed->value.empty() && !speed->value.starts_with("Unknown")) {
      const auto [end, problem] =
          std::from_chars(speed->value.data(), speed->value.data() + speed->value.size(), transfers);
      if (problem != std::errc() || !std::string_view(end).starts_with(" GT/s") || transfers < 1 || transfers > 1000) {
        error("E0304", speed->where,
              fmt::format("a link speed is such as `16.0 GT/s PCIe`, found {}", base::quoted(speed->value)));
        transfers = kPcieGeneration3;
      }
    }
    return pcie_bandwidth(transfers, width == 0 ? kPcieLanes : static_cast<int>(width));
  }

 private:
  base::Findings& findings_;
};

/// Sorts GPUs by number; `dev` may skip those that the job did not use.
void number_gpus(DumpedHost& host, base::Findings& findings) {
  std::vector<FoundGpu>& gpus = host.node.gpus;
  if (gpus.empty()) {
    findings.error("E0303", host.node.where, "this host has no GPU with a rank",
                   "dump from a job that uses the GPUs: NCCL writes those of the communicator");
    return;
  }
  std::vector<int> order(gpus.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto number = [&](int i) { return gpus[static_cast<std::size_t>(i)].number; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return number(a) < number(b); });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (number(order[i]) == number(order[i - 1]))
      findings.error("E0306", gpus[static_cast<std::size_t>(order[i])].where,
                     fmt::format("GPU {} is given twice", number(order[i])));
  std::vector<int> place(order.size());
  std::vector<FoundGpu> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    sorted.push_back(std::move(gpus[static_cast<std::size_t>(order[i])]));
    sorted.back().number = static_cast<int>(i);
  }
  gpus = std::move(sorted);
  for (RawLink& link : host.links) link.gpu = place[static_cast<std::size_t>(link.gpu)];
}

/// Finds what NVLinks lead to.
void resolve(DumpedHost& host, base::Findings& findings) {
  std::map<std::string, int> by_bus;
  for (const FoundGpu& gpu : host.node.gpus) by_bus[gpu.bus] = gpu.number;
  std::map<std::pair<int, int>, RawLink> seen;  // from, to
  for (const RawLink& link : host.links) {
    FoundGpu& gpu = host.node.gpus[static_cast<std::size_t>(link.gpu)];
    if (link.target_class == kSwitchClass) {
      gpu.switch_links += link.count;
      host.node.far_switch = host.node.far_switch || link.target.starts_with("fffffff");
    } else if (link.target_class == kCpuClass) {
      gpu.cpu_links += link.count * kPower9Link;
    } else if (!link.target_class.starts_with("0x03")) {
      findings.error("E0304", link.where,
                     fmt::format("an NVLink leads to a device of class {}, which is neither a GPU nor a switch",
                                 base::quoted(link.target_class)));
    } else if (const auto found = by_bus.find(link.target); found == by_bus.end()) {
      findings.error("E0305", link.where,
                     fmt::format("the NVLink leads to {}, where this host has no GPU", base::quoted(link.target)),
                     "dump from a job on all GPUs of the node");
    } else if (found->second == link.gpu) {
      findings.error("E0306", link.where, "the NVLink leads back to its own GPU");
    } else if (!seen.emplace(std::pair{link.gpu, found->second}, link).second) {
      findings.error("E0306", link.where, "a second entry for the same pair of GPUs",
                     "their number belongs in `count`");
    }
  }
  for (const auto& [pair, link] : seen) {
    const auto back = seen.find({pair.second, pair.first});
    if (back == seen.end() || back->second.count != link.count) {
      findings.error("E0306", link.where,
                     fmt::format("GPU {} has {} links to GPU {}, which has {} back", pair.first, link.count,
                                 pair.second, back == seen.end() ? 0 : back->second.count));
    } else if (pair.first < pair.second) {
      host.node.edges.push_back({pair.first, pair.second, link.count});
    }
  }
}

class NcclXmlReader {
 public:
  explicit NcclXmlReader(Lines& text) : text_(text), findings_(text.findings()), values_(findings_) {}

  std::optional<std::vector<FoundNode>> read() {
    const std::optional<XmlElement> root = parse_xml(text_);
    if (!root) return std::nullopt;
    if (root->name != "system") {
      values_.error(
          "E0301", root->where, fmt::format("a topology of NCCL begins with `<system>`, this with `<{}>`", root->name),
          root->name == "graphs" ? "this is a graph dump (NCCL_GRAPH_DUMP_FILE); NCCL_TOPO_DUMP_FILE writes topologies"
                                 : "");
      return std::nullopt;
    }
    check_version(*root);
    for (const XmlElement& child : root->children) {
      if (child.name == "cpu")
        read_cpu(child);
      else
        values_.misplaced(child, *root, "`<system>` holds `<cpu>` only");
    }
    if (findings_.failed()) return std::nullopt;
    finish(*root);
    if (findings_.failed()) return std::nullopt;
    std::vector<FoundNode> nodes;
    for (DumpedHost& host : hosts_) nodes.push_back(std::move(host.node));
    return nodes;
  }

 private:
  void check_version(const XmlElement& root) {
    const XmlAttribute* version = root.find("version");
    if (version == nullptr)
      values_.error("E0304", root.where, "`<system>` has no version", "NCCL writes version=\"1\"; complete the dump");
    else if (version->value != "1")
      values_.error("E0304", version->where,
                    fmt::format("version {} of the format is not supported, only 1", base::quoted(version->value)),
                    "NCCL writes version 1; RCCL's version 2 is another format");
  }

  DumpedHost& host_of(const XmlElement& cpu) {
    const std::string hash(cpu.value("host_hash"));
    for (DumpedHost& host : hosts_)
      if (host.hash == hash) return host;
    hosts_.push_back({hash, {}, {}, {}});
    hosts_.back().node.host = hash;
    hosts_.back().node.where = cpu.where;
    return hosts_.back();
  }

  void read_cpu(const XmlElement& element) {
    const std::string numa = values_.needed(element, "numaid");
    values_.number(element, "numaid", -1, kMostParts, 0);
    DumpedHost& host = host_of(element);
    FoundCpu cpu{numa, std::string(element.value("vendor")), std::string(element.value("arch")),
                 static_cast<int>(values_.number(element, "familyid", -1, 1 << 16, 0)),
                 static_cast<int>(values_.number(element, "modelid", -1, 1 << 16, 0))};
    for (const FoundCpu& other : host.node.cpus) {
      if (other.numa != numa) continue;
      values_.error(
          "E0306", element.where, fmt::format("NUMA node {} of this host is given twice", numa),
          "in a dump fused from several hosts, each must have its own host_hash; NCCL overwrites them when it loads a "
          "file, so dump from a live system");
      return;
    }
    host.node.cpus.push_back(std::move(cpu));
    const int index = static_cast<int>(host.node.cpus.size()) - 1;
    for (const XmlElement& child : element.children) {
      if (child.name == "pci")
        read_pci(child, host, index, {});
      else if (child.name == "nic")
        read_nic(child, host, index, {}, 0, true);
      else
        values_.misplaced(
            child, element,
            child.name == "gpu" ? "a GPU must be inside its `<pci>`" : "`<cpu>` holds `<pci>` and `<nic>`");
    }
  }

  void read_pci(const XmlElement& element, DumpedHost& host, int cpu, BridgeId bridge) {
    const std::string bus = values_.needed(element, "busid");
    const std::string kind = values_.needed(element, "class");
    if (!bus.empty() && !is_bus(bus))
      values_.error("E0304", element.find("busid")->where,
                    fmt::format("a bus id is such as `0000:07:00.0`, found {}", base::quoted(bus)));
    else if (!bus.empty() && !host.buses.insert(bus).second)
      values_.error("E0306", element.find("busid")->where, fmt::format("PCI device {} is given twice", bus));
    const double bandwidth = values_.link_of(element);
    const bool is_bridge =
        kind.starts_with("0x0604") || std::any_of(element.children.begin(), element.children.end(),
                                                  [](const XmlElement& c) { return c.name == "pci"; });
    BridgeId below = bridge;
    if (is_bridge) {
      if (static_cast<int>(host.node.bridges.size()) >= kMostParts) {
        if (!too_many_)
          values_.error("E0304", element.where, fmt::format("more than {} PCI bridges in one host", kMostParts));
        too_many_ = true;
        return;
      }
      below = host.node.bridges.append({bridge, cpu, bandwidth});
    }
    for (const XmlElement& child : element.children) {
      if (child.name == "pci")
        read_pci(child, host, cpu, below);
      else if (child.name == "gpu")
        read_gpu(child, element, host, cpu, below, bandwidth);
      else if (child.name == "nic")
        read_nic(child, host, cpu, below, bandwidth, kind.starts_with("0x0207"));
      else if (child.name != "pcilink")
        values_.misplaced(child, element, "`<pci>` holds `<pci>`, `<gpu>`, `<nic>` and `<pcilink>`");
      else if (const XmlAttribute* target = child.find("target"); target == nullptr)
        values_.error("E0304", child.where, "`<pcilink>` has no target");
    }
  }

  void read_gpu(const XmlElement& element, const XmlElement& pci, DumpedHost& host, int cpu, BridgeId bridge,
                double bandwidth) {
    if (element.find("rank") == nullptr) return;  // NCCL skips such a GPU
    values_.needed(element, "dev");
    values_.needed(element, "sm");
    FoundGpu gpu;
    gpu.number = static_cast<int>(values_.number(element, "dev", 0, kMostParts, 0));
    gpu.sm = static_cast<int>(values_.number(element, "sm", 10, kMostSm, 0));
    gpu.bus = std::string(pci.value("busid"));
    gpu.pci = pci_name(pci);
    gpu.cpu = cpu;
    gpu.bridge = bridge;
    gpu.bandwidth = bandwidth;
    gpu.where = element.where;
    const int index = static_cast<int>(host.node.gpus.size());
    for (const XmlElement& child : element.children) {
      if (child.name == "nvlink") {
        host.links.push_back({index, values_.needed(child, "target"), values_.needed(child, "tclass"),
                              static_cast<int>(values_.number(child, "count", 1, kMostParts, 0)), child.where});
        if (const XmlAttribute* target = child.find("target"); target != nullptr) {
          host.links.back().where = target->where;
          if (!is_bus(target->value))
            values_.error("E0304", target->where,
                          fmt::format("the target of an NVLink is a bus id such as `0000:07:00.0`, found {}",
                                      base::quoted(target->value)),
                          "hand-made files often number GPUs here; NCCL does not read them");
        }
        values_.needed(child, "count");
      } else if (child.name == "c2c") {
        const double one = static_cast<double>(values_.number(child, "bw", 1, 100'000'000, 0)) * kMegabyte;
        gpu.cpu_links += one * static_cast<double>(values_.number(child, "count", 1, kMostParts, 1));
        values_.needed(child, "bw");
      } else {
        values_.misplaced(child, element, "`<gpu>` holds `<nvlink>` and `<c2c>`");
      }
    }
    host.node.gpus.push_back(std::move(gpu));
  }

  void read_nic(const XmlElement& element, DumpedHost& host, int cpu, BridgeId bridge, double bandwidth,
                bool infiniband) {
    for (const XmlElement& net : element.children) {
      if (net.name == "gin" || net.name == "rma") continue;  // other transports of the same port, from NCCL 2.29 on
      if (net.name != "net") {
        values_.misplaced(net, element, "`<nic>` holds `<net>`");
        continue;
      }
      values_.needed(net, "dev");
      values_.number(net, "dev", -1, kMostParts, 0);
      const long long megabits = values_.number(net, "speed", -kMostMegabits, kMostMegabits, 0);
      FoundNic nic;
      nic.name = values_.needed(net, "name");
      nic.cpu = cpu;
      nic.bridge = bridge;
      nic.bandwidth = bandwidth;
      nic.speed = (megabits > 0 ? static_cast<double>(megabits) : kDefaultMegabits) * kMegabit;
      nic.infiniband = infiniband;
      nic.where = net.where;
      for (const FoundNic& other : host.node.nics)
        if (!nic.name.empty() && other.name == nic.name)
          values_.error("E0306", net.find("name")->where,
                        fmt::format("network device {} is given twice", base::quoted(nic.name)));
      if (static_cast<int>(host.node.nics.size()) < kMostParts) host.node.nics.push_back(std::move(nic));
    }
  }

  void finish(const XmlElement& root) {
    if (hosts_.empty()) values_.error("E0303", root.where, "the system has no CPU", "the dump is incomplete");
    for (DumpedHost& host : hosts_) {
      number_gpus(host, findings_);
      resolve(host, findings_);
    }
  }

  Lines& text_;
  base::Findings& findings_;
  DumpedValues values_;
  std::vector<DumpedHost> hosts_;
  bool too_many_ = false;
};

}  // namespace

std::optional<std::vector<FoundNode>> read_nccl_topology(Lines& text) {
  return NcclXmlReader(text).read();
}

}  // namespace orrery::clusters
