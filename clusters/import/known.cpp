/// Reads clusters/import/known.yaml and looks entries up in it.
#include "clusters/import/known.h"

#include "base/yaml.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

using base::Cursor;
using base::UnitKind;

constexpr int kMostCpuId = 1 << 16;

BytesPerSecond rate(const Cursor& at) {
  return BytesPerSecond{at.quantity(UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1)};
}
Seconds delay(const Cursor& at) {
  return Seconds{at.quantity(UnitKind::seconds, 0, kMostSeconds)};
}
int count(const Cursor& at, int most) {
  return static_cast<int>(at.integer(0, most));
}

std::vector<std::string> texts(const Cursor& at) {
  std::vector<std::string> out;
  for (const Cursor& one : at.items()) out.push_back(one.text());
  return out;
}

std::vector<BySm> by_sm(const Cursor& at) {
  std::vector<BySm> out;
  for (const Cursor& one : at.items()) out.push_back({count(one.at("sm"), kMostSm), rate(one.at("bandwidth"))});
  return out;
}

Known read_known(const Cursor& root) {
  Known known;
  for (const Cursor& one : root.at("gpus").items()) {
    known.gpus.push_back({one.at("device").text(), count(one.at("sm"), kMostSm), count(one.at("nvlinks"), kMostParts),
                          texts(one.at("pci")), texts(one.at("names"))});
  }
  for (const Cursor& one : root.at("cpus").items()) {
    KnownCpu cpu{one.at("vendor").text(),
                 count(one.at("family"), kMostCpuId),
                 {},
                 rate(one.at("socket")),
                 rate(one.at("memory"))};
    for (const Cursor& model : one.at("models").items()) cpu.models.push_back(model.integer(0, kMostCpuId));
    known.cpus.push_back(std::move(cpu));
  }
  known.nvlinks = by_sm(root.at("nvlinks"));
  known.pcie = by_sm(root.at("pcie"));
  known.unknown_socket = rate(root.at("unknown_cpu").at("socket"));
  known.unknown_memory = rate(root.at("unknown_cpu").at("memory"));
  const Cursor latency = root.at("latency");
  known.nvlink_latency = delay(latency.at("nvlink"));
  known.pcie_latency = delay(latency.at("pcie"));
  known.socket_latency = delay(latency.at("socket"));
  known.nic_latency = delay(latency.at("nic"));
  known.hop_latency = delay(latency.at("hop"));
  return known;
}

}  // namespace

base::Result<Known> parse_known(std::string_view text, std::string file) {
  return base::read_document<Known>(text, std::move(file), read_known);
}

const KnownGpu* gpu_called(const Known& known, std::string_view name) {
  const KnownGpu* best = nullptr;
  std::size_t length = 0;
  for (const KnownGpu& gpu : known.gpus) {
    for (const std::string& begin : gpu.names) {
      if (begin.size() <= length || !name.starts_with(begin)) continue;
      best = &gpu;
      length = begin.size();
    }
  }
  return best;
}

const KnownGpu* gpu_of_pci(const Known& known, std::string_view pci) {
  for (const KnownGpu& gpu : known.gpus)
    for (const std::string& one : gpu.pci)
      if (one == pci) return &gpu;
  return nullptr;
}

const KnownCpu* cpu_of(const Known& known, std::string_view vendor, int family, int model) {
  for (const KnownCpu& cpu : known.cpus) {
    if (cpu.vendor != vendor || cpu.family != family) continue;
    for (const std::int64_t one : cpu.models)
      if (one == model) return &cpu;
  }
  return nullptr;
}

const BySm* of_sm(const std::vector<BySm>& entries, int sm) {
  const BySm* best = nullptr;
  for (const BySm& entry : entries)
    if (entry.sm <= sm && (best == nullptr || entry.sm > best->sm)) best = &entry;
  return best;
}

}  // namespace orrery::clusters
