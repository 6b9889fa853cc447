// hwloc's view of the machine, and what only the kernel's text files give: the clock, the vector units, memory limits.
#include "exec/probe/description.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "exec/failure.h"
#include "exec/probe/memory.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

[[noreturn]] void give_up(const char* what) {
  throw Failure(fmt::format("hwloc cannot {}", what), FailureKind::environment);
}

/// Only cores that this process may use. Components that open displays or load GPU libraries are disabled: drivers are
/// queried elsewhere, and a broken one must not hide the rest.
Topology load(const DescribeOptions& options) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) give_up("start");
  Topology topology(raw);
  for (const char* component : {"gl", "cuda", "nvml", "opencl", "rsmi", "levelzero"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (options.topology_xml.empty()) {
    hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  } else {
    const auto length = static_cast<int>(options.topology_xml.size()) + 1;
    if (hwloc_topology_set_xmlbuffer(raw, options.topology_xml.c_str(), length) != 0) give_up("read this XML");
  }
  if (hwloc_topology_load(raw) != 0) give_up("describe this machine");
  return topology;
}

int count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

/// Cores below an object; threads if the machine reports no cores.
int cores_in(hwloc_topology_t topology, hwloc_const_cpuset_t cpuset) {
  if (cpuset == nullptr) return 0;
  const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpuset, HWLOC_OBJ_CORE);
  return cores > 0 ? cores : hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpuset, HWLOC_OBJ_PU);
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* text = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
  return text == nullptr ? std::string() : std::string(text);
}

/// The value on the first line "name : value" of proc/cpuinfo.
std::string cpu_info(const fs::path& root, const std::string& name) {
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(name, 0) == 0)
      if (const auto colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
  return {};
}

std::optional<double> number_in(const fs::path& path) {
  std::ifstream in(path);
  double value = 0;
  return in >> value ? std::optional<double>(value) : std::nullopt;
}

Sourced clock_of(const fs::path& root, const std::string& model) {
  constexpr double kKilo = 1e3, kMega = 1e6;
  if (const auto khz = number_in(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); khz && *khz > 0)
    return {*khz * kKilo, "cpufreq's highest frequency"};
  if (const auto hz = clock_in_name(model)) return {*hz, "the processor's name"};
  const double mhz = std::strtod(cpu_info(root, "cpu MHz").c_str(), nullptr);
  if (mhz > 0) return {mhz * kMega, "/proc/cpuinfo, at this moment"};
  constexpr double kAssumed = 2e9;
  return {kAssumed, "assumed: nothing here tells the clock"};
}

std::vector<CacheLevel> caches_of(hwloc_topology_t topology) {
  std::vector<CacheLevel> out;
  for (const auto& [level, type] : {std::pair{1, HWLOC_OBJ_L1CACHE}, std::pair{2, HWLOC_OBJ_L2CACHE},
                                    std::pair{3, HWLOC_OBJ_L3CACHE}, std::pair{4, HWLOC_OBJ_L4CACHE}}) {
    const hwloc_obj_t first = hwloc_get_obj_by_type(topology, type, 0);
    if (first == nullptr || first->attr == nullptr) continue;
    out.push_back({level, static_cast<std::int64_t>(first->attr->cache.size), count_of(topology, type),
                   cores_in(topology, first->cpuset)});
  }
  return out;
}

std::vector<NumaNode> numa_of(hwloc_topology_t topology) {
  std::vector<NumaNode> out;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    out.push_back({static_cast<std::int64_t>(node->attr->numanode.local_memory), cores_in(topology, node->cpuset)});
  return out;
}

std::string pci_address(const hwloc_obj_t object) {
  for (hwloc_obj_t at = object; at != nullptr; at = at->parent)
    if (at->type == HWLOC_OBJ_PCI_DEVICE) {
      const auto& pci = at->attr->pcidev;
      return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
    }
  return {};
}

/// Mb/s of an Ethernet device; an unplugged or virtual one gives -1 or an error.
double ethernet_bandwidth(const fs::path& root, const std::string& name) {
  constexpr double kBytesPerMegabit = 1e6 / 8;
  const double megabits = number_in(root / "sys/class/net" / name / "speed").value_or(0);
  return megabits > 0 ? megabits * kBytesPerMegabit : 0;
}

/// "100 Gb/sec (4X EDR)".
double fabric_bandwidth(const fs::path& root, const std::string& name) {
  constexpr double kBytesPerGigabit = 1e9 / 8;
  return number_in(root / "sys/class/infiniband" / name / "ports/1/rate").value_or(0) * kBytesPerGigabit;
}

std::vector<NetworkInterface> networks_of(hwloc_topology_t topology, const fs::path& root) {
  std::vector<NetworkInterface> out;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    const auto type = device->attr->osdev.type;
    if (device->name == nullptr || (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)) continue;
    const bool fabric = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    const std::string name = device->name;
    out.push_back({name, fabric ? "openfabrics" : "ethernet", pci_address(device),
                   fabric ? fabric_bandwidth(root, name) : ethernet_bandwidth(root, name)});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

/// Display controllers (class 03) and processing accelerators (class 12), PCI Code and ID Assignment Specification.
bool computes(unsigned short class_id) {
  const int base = class_id >> 8;
  return base == 0x03 || base == 0x12;
}

std::vector<PciDevice> accelerators_of(hwloc_topology_t topology) {
  constexpr double kGiga = 1e9;
  std::vector<PciDevice> out;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    if (!computes(pci.class_id)) continue;
    PciDevice found{pci_address(device),
                    info_of(device, "PCIVendor"),
                    info_of(device, "PCIDevice"),
                    static_cast<int>(pci.vendor_id),
                    static_cast<int>(pci.device_id),
                    static_cast<double>(pci.linkspeed) * kGiga};
    out.push_back(std::move(found));
  }
  return out;
}

Sourced memory_of(hwloc_topology_t topology, const fs::path& root, const std::string& tool, bool is_here) {
  // For this machine, the kernel's own count: hwloc adds up the initial memory of NUMA nodes, and more may have come.
  const MemoryHere here =
      is_here ? memory_here(root)
              : memory_here(static_cast<double>(hwloc_get_root_obj(topology)->total_memory), tool, root);
  return {here.bytes, here.source};
}

Processor processor_of(hwloc_topology_t topology, const fs::path& root, const std::string& architecture) {
  Processor p;
  hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  if (package == nullptr) package = hwloc_get_root_obj(topology);
  p.model = info_of(package, "CPUModel");
  if (p.model.empty()) p.model = cpu_info(root, "model name");
  if (p.model.empty()) p.model = architecture + " processor";
  p.vendor = info_of(package, "CPUVendor");
  if (p.vendor.empty()) p.vendor = cpu_info(root, "vendor_id");
  p.packages = std::max(1, count_of(topology, HWLOC_OBJ_PACKAGE));
  p.threads = std::max(1, count_of(topology, HWLOC_OBJ_PU));
  const int cores = count_of(topology, HWLOC_OBJ_CORE);
  p.cores = cores > 0 ? cores : p.threads;
  std::string flags = cpu_info(root, "flags");
  if (flags.empty()) flags = cpu_info(root, "Features");
  const VectorUnits units = vector_units(flags, architecture);
  p.vector = units.name;
  p.flop_per_cycle = {units.flop_per_cycle, units.reason};
  p.clock_hz = clock_of(root, p.model);
  return p;
}

}  // namespace

const CacheLevel* MachineDescription::cache(int level) const {
  for (const CacheLevel& one : caches)
    if (one.level == level) return &one;
  return nullptr;
}

VectorUnits vector_units(const std::string& flags, const std::string& architecture) {
  const auto has = [&](const char* flag) {
    return (" " + flags + " ").find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  // Lanes x 2 (multiply and add) x units. Server cores have two units; some small ones have one.
  if (has("avx512f")) return {"AVX-512", 64, "16 lanes, fused multiply-add, two units (server cores)"};
  if (has("avx2") && has("fma")) return {"AVX2", 32, "8 lanes, fused multiply-add, two units"};
  if (has("avx")) return {"AVX", 16, "8 lanes, a multiplication and an addition each cycle"};
  if (architecture == "x86_64") return {"SSE2", 8, "4 lanes, a multiplication and an addition each cycle"};
  if (architecture == "aarch64" || has("asimd")) return {"NEON", 16, "4 lanes, fused multiply-add, two units"};
  return {"none known", 2, "assumed: a multiplication and an addition each cycle"};
}

std::optional<double> clock_in_name(const std::string& model) {
  constexpr double kGiga = 1e9, kMega = 1e6;
  const auto unit = model.rfind("Hz");
  if (unit == std::string::npos || unit < 2) return std::nullopt;
  const double scale = model[unit - 1] == 'G' ? kGiga : model[unit - 1] == 'M' ? kMega : 0;
  std::size_t begin = unit - 1;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(model[begin - 1])) || model[begin - 1] == '.')) --begin;
  const double value = std::strtod(model.substr(begin, unit - 1 - begin).c_str(), nullptr);
  if (scale == 0 || value <= 0) return std::nullopt;
  return value * scale;
}

MachineDescription describe_machine(const DescribeOptions& options) {
  const Topology topology = load(options);
  const fs::path root = options.system_root;
  utsname system{};
  uname(&system);
  MachineDescription out;
  const std::string version = info_of(hwloc_get_root_obj(topology.get()), "hwlocVersion");
  out.tool = version.empty() ? "hwloc" : "hwloc " + version;
  const std::string host = info_of(hwloc_get_root_obj(topology.get()), "HostName");
  out.host = host.empty() ? std::string(system.nodename) : host;
  out.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  out.processor = processor_of(topology.get(), root, system.machine);
  out.caches = caches_of(topology.get());
  out.numa = numa_of(topology.get());
  out.memory_bytes = memory_of(topology.get(), root, out.tool, options.topology_xml.empty());
  out.networks = networks_of(topology.get(), root);
  out.accelerators = accelerators_of(topology.get());
  return out;
}

}  // namespace orrery::exec
