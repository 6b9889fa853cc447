/// Reads each dump according to its format.
#include "clusters/import/evidence.h"

#include <fmt/format.h>

#include "clusters/import/readers.h"

namespace orrery::clusters {
namespace {

class DumpsReader {
 public:
  explicit DumpsReader(const std::vector<Dump>& dumps) : dumps_(dumps) {}

  Evidence run() {
    for (const Dump& dump : dumps_) {
      Lines text(dump.text, dump.file);
      if (text.sound()) read_one(dump, text);
      text.findings().sort();
      out_.found.insert(out_.found.end(), text.findings().all().begin(), text.findings().all().end());
      out_.failed = out_.failed || text.findings().failed();
    }
    return std::move(out_);
  }

 private:
  /// Keeps one dump of each kind.
  template <class T>
  void keep(const Dump& dump, std::optional<T>& into, std::optional<T> value) {
    if (!value) return;
    if (into) {
      out_.found.push_back({base::Severity::error,
                            "E0310",
                            {dump.file, 1, 1, 1},
                            fmt::format("a second dump of the format {}", name_of(dump.format)),
                            "give one of each; nodes of different kinds are different clusters",
                            {}});
      out_.failed = true;
      return;
    }
    into = std::move(value);
    out_.sources.push_back(fmt::format("{}: {}", dump.file, described(dump.format)));
  }

  void read_one(const Dump& dump, Lines& text) {
    switch (dump.format) {
      case DumpFormat::nccl: {
        std::optional<std::vector<FoundNode>> before;
        if (!out_.nodes.empty()) before = out_.nodes;
        keep(dump, before, read_nccl_topology(text));
        if (before) out_.nodes = std::move(*before);
        return;
      }
      case DumpFormat::topo_matrix: return keep(dump, out_.matrix, read_topo_matrix(text));
      case DumpFormat::hwloc: return keep(dump, out_.tree, read_hwloc(text));
      case DumpFormat::ibnetdiscover: return keep(dump, out_.fabric, read_ibnetdiscover(text));
    }
  }

  static const char* described(DumpFormat format) {
    switch (format) {
      case DumpFormat::nccl: return "NCCL's topology XML";
      case DumpFormat::topo_matrix: return "nvidia-smi topo -m";
      case DumpFormat::hwloc: return "hwloc's XML";
      case DumpFormat::ibnetdiscover: return "ibnetdiscover";
    }
    return "?";
  }

  const std::vector<Dump>& dumps_;
  Evidence out_;
};

}  // namespace

Evidence read_evidence(const std::vector<Dump>& dumps) {
  return DumpsReader(dumps).run();
}

base::Diagnostics fill(FoundNode& node, const FoundNode& other) {
  if (other.gpus.size() != node.gpus.size())
    return {{base::Severity::error,
             "E0310",
             other.where,
             fmt::format("this dump has {} GPUs and the other one {}", other.gpus.size(), node.gpus.size()),
             "give dumps of one machine",
             {}}};
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    FoundGpu& gpu = node.gpus[i];
    const FoundGpu& more = other.gpus[i];
    if (gpu.pci.empty()) gpu.pci = more.pci;
    if (gpu.model.empty()) gpu.model = more.model;
    if (gpu.bandwidth == 0) gpu.bandwidth = more.bandwidth;
  }
  for (FoundNic& nic : node.nics)
    for (const FoundNic& more : other.nics) {
      if (more.name != nic.name) continue;
      if (nic.bandwidth == 0) {
        nic.bandwidth = more.bandwidth;
        nic.infiniband = more.infiniband;
      }
      if (nic.speed == 0) nic.speed = more.speed;
    }
  for (FoundCpu& cpu : node.cpus) {
    if (!cpu.vendor.empty() || other.cpus.empty()) continue;
    cpu.vendor = other.cpus.front().vendor;
    cpu.family = other.cpus.front().family;
    cpu.model = other.cpus.front().model;
  }
  return {};
}

}  // namespace orrery::clusters
