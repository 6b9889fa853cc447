/// hwloc 2's XML: packages, the PCI tree with its GPUs and network devices. NVLinks are not read: up to 2.9.0 hwloc
/// doubles the bandwidth of generations 3 and 4 (hwloc issue 574), so that their number remains unknown.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "clusters/import/readers.h"
#include "clusters/import/xml.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMostGigabytes = 1e4;  // per second, of a PCIe link
constexpr int kBaseFamily = 15;         // CPUID: families from here on have an extended family
constexpr const char* kNetwork = "2";   // osdev_type
constexpr const char* kOpenFabrics = "3";

bool is_gpu(std::string_view type) {
  const bool vendor = type.find("[10de:") != std::string_view::npos || type.find("[1002:") != std::string_view::npos;
  return type.starts_with("0302") || ((type.starts_with("0300") || type.starts_with("0380")) && vendor);
}

class HwlocReader {
 public:
  explicit HwlocReader(Lines& text) : text_(text), findings_(text.findings()) {}

  std::optional<FoundNode> read() {
    const std::optional<XmlElement> root = parse_xml(text_);
    if (!root) return std::nullopt;
    if (root->name != "topology") {
      error("E0301", root->where, fmt::format("hwloc's XML begins with `<topology>`, this with `<{}>`", root->name));
      return std::nullopt;
    }
    const XmlAttribute* version = root->find("version");
    if (version == nullptr || !version->value.starts_with("2.")) {
      error("E0304", version ? version->where : root->where,
            version ? fmt::format("version {} of hwloc's XML is not supported, only 2.x", base::quoted(version->value))
                    : "`<topology>` has no version, as before hwloc 2",
            "write it with lstopo of hwloc 2: `lstopo --of xml`");
      return std::nullopt;
    }
    node_.where = root->where;
    node_.knows_nvlink = false;
    for (const XmlElement& child : root->children)
      if (child.name == "object") read_object(child, -1, {});
    if (findings_.failed()) return std::nullopt;
    finish();
    if (findings_.failed()) return std::nullopt;
    return std::move(node_);
  }

 private:
  void error(const char* code, base::Location where, std::string message, std::string help = {}) {
    findings_.error(code, std::move(where), std::move(message), std::move(help));
  }

  /// The element's info of that name, or nothing.
  static std::string_view info(const XmlElement& element, std::string_view name) {
    for (const XmlElement& child : element.children)
      if (child.name == "info" && child.value("name") == name) return child.value("value");
    return {};
  }

  void read_object(const XmlElement& element, int cpu, BridgeId bridge) {
    const XmlAttribute* type = element.find("type");
    if (type == nullptr) return error("E0304", element.where, "`<object>` has no type", "hwloc always writes it");
    if (type->value == "Machine") node_.host = std::string(info(element, "HostName"));
    if (type->value == "Package") cpu = add_package(element);
    if (type->value == "Bridge" && element.value("bridge_type").starts_with("1"))
      bridge = add_bridge(element, cpu, bridge);
    if (type->value == "PCIDev") read_device(element, cpu, bridge);
    for (const XmlElement& child : element.children)
      if (child.name == "object" && type->value != "PCIDev") read_object(child, cpu, bridge);
  }

  int add_package(const XmlElement& element) {
    const auto id = [&](const char* name) {
      long long value = 0;
      return whole_number(info(element, name), value) && value < 1 << 16 ? static_cast<int>(value) : 0;
    };
    FoundCpu cpu{std::to_string(node_.cpus.size()),
                 std::string(info(element, "CPUVendor")),
                 {},
                 id("CPUFamilyNumber"),
                 id("CPUModelNumber")};
    // hwloc adds the extended family to the family; NCCL adds 16 times as much.
    if (cpu.family > kBaseFamily) cpu.family = kBaseFamily + 16 * (cpu.family - kBaseFamily);
    node_.cpus.push_back(std::move(cpu));
    return static_cast<int>(node_.cpus.size()) - 1;
  }

  /// The CPU that PCI devices without a package hang from: the only one there is, once all are read.
  BridgeId add_bridge(const XmlElement& element, int cpu, BridgeId parent) {
    if (static_cast<int>(node_.bridges.size()) >= kMostParts) {
      error("E0304", element.where, fmt::format("more than {} PCI bridges", kMostParts));
      return parent;
    }
    return node_.bridges.append({parent, cpu, link_of(element)});
  }

  /// Bytes/s; 0 if unknown.
  double link_of(const XmlElement& element) {
    const XmlAttribute* speed = element.find("pci_link_speed");
    if (speed == nullptr) return 0;
    double value = 0;
    const char* const last = speed->value.data() + speed->value.size();
    const auto [end, problem] = std::from_chars(speed->value.data(), last, value);
    if (problem == std::errc() && end == last && value >= 0 && value <= kMostGigabytes) return value * kGigabyte;
    error("E0304", speed->where, fmt::format("a link speed is a number of GB/s, found {}", base::quoted(speed->value)));
    return 0;
  }

  void read_device(const XmlElement& element, int cpu, BridgeId bridge) {
    const XmlAttribute* type = element.find("pci_type");
    if (type == nullptr) return error("E0304", element.where, "a PCI device has no pci_type", "hwloc always writes it");
    const double bandwidth = link_of(element);
    if (is_gpu(type->value)) return add_gpu(element, type->value, cpu, bridge, bandwidth);
    if (!type->value.starts_with("02")) return;
    for (const XmlElement& child : element.children) {
      if (child.name != "object" || child.value("type") != "OSDev") continue;
      const std::string_view kind = child.value("osdev_type");
      if (kind != kNetwork && kind != kOpenFabrics) continue;
      FoundNic nic;
      nic.name = std::string(child.value("name"));
      nic.cpu = cpu;
      nic.bridge = bridge;
      nic.bandwidth = bandwidth;
      nic.infiniband = type->value.starts_with("0207");
      nic.where = child.where;
      (kind == kOpenFabrics ? node_.nics : plain_).push_back(std::move(nic));
    }
  }

  void add_gpu(const XmlElement& element, const std::string& type, int cpu, BridgeId bridge, double bandwidth) {
    FoundGpu gpu;
    gpu.bus = std::string(element.value("pci_busid"));
    const std::size_t open = type.find('['), close = type.find(']');
    if (open != std::string::npos && close != std::string::npos && close > open)
      gpu.pci = type.substr(open + 1, close - open - 1);
    for (const XmlElement& child : element.children)
      if (child.name == "object" && gpu.model.empty()) gpu.model = std::string(info(child, "GPUModel"));
    gpu.cpu = cpu;
    gpu.bridge = bridge;
    gpu.bandwidth = bandwidth;
    gpu.where = element.where;
    node_.gpus.push_back(std::move(gpu));
  }

  void finish() {
    if (node_.gpus.empty()) {
      error("E0311", node_.where, "this machine has no GPU, or hwloc was built without PCI",
            "`lstopo --of xml` lists PCI devices when hwloc has libpciaccess; clusters/catalog/localhost-2.yaml is a "
            "cluster of CPU ranks");
      return;
    }
    if (node_.nics.empty()) node_.nics = std::move(plain_);  // without RDMA, take the other network devices
    if (node_.cpus.empty()) node_.cpus.push_back({"0", {}, {}, 0, 0});
    bool lost = false;
    const auto settle = [&](int& cpu) {
      lost = lost || (cpu < 0 && node_.cpus.size() > 1);
      cpu = std::max(cpu, 0);
    };
    for (FoundBridge& bridge : node_.bridges) settle(bridge.cpu);
    for (FoundNic& nic : node_.nics) settle(nic.cpu);
    for (FoundGpu& gpu : node_.gpus) settle(gpu.cpu);
    if (lost)
      findings_.warning("E0312", node_.where,
                        "hwloc does not say which socket some PCI devices belong to; the first is taken");
    std::stable_sort(node_.gpus.begin(), node_.gpus.end(),
                     [](const FoundGpu& a, const FoundGpu& b) { return a.bus < b.bus; });
    for (std::size_t i = 0; i < node_.gpus.size(); ++i) node_.gpus[i].number = static_cast<int>(i);
  }

  Lines& text_;
  base::Findings& findings_;
  FoundNode node_;
  std::vector<FoundNic> plain_;
};

}  // namespace

std::optional<FoundNode> read_hwloc(Lines& text) {
  return HwlocReader(text).read();
}

}  // namespace orrery::clusters
