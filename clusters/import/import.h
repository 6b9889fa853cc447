#pragma once
/// Dumps of real machines to a Cluster: a node from NCCL's topology XML, `nvidia-smi topo -m` or hwloc's XML, the
/// network from `ibnetdiscover`. Regular machines come out in the brief form, odd ones link by link. What no dump says
/// is taken from clusters/import/known.yaml and named in the cluster's sources; what even that does not say is an
/// error.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clusters/cluster.h"
#include "clusters/import/known.h"
#include "clusters/read.h"

namespace orrery::clusters {

enum class DumpFormat { nccl, topo_matrix, hwloc, ibnetdiscover };
[[nodiscard]] const char* name_of(DumpFormat format);  ///< "nccl", "topo", "hwloc", "ibnetdiscover"
/// Format by content; nothing when it looks like none.
[[nodiscard]] std::optional<DumpFormat> dump_format(std::string_view text);

struct Dump {
  std::string text, file;
  DumpFormat format = DumpFormat::nccl;
};

/// Line `line` (from 1) as messages show it: without what terminals leave, cut where it is long.
[[nodiscard]] std::string source_line(std::string_view text, int line);

struct ImportOptions {
  std::string name;              ///< of the cluster
  int nodes = 0;                 ///< 0: as the dumps say, else 1
  std::string device;            ///< catalogue name of the GPU; empty: as the dumps say
  std::string node;              ///< catalogue name of a cluster whose node to take where no dump describes one
  std::string hosts;             ///< of a fabric: hosts of these names, with * for anything; empty: all
  BytesPerSecond nic_bandwidth;  ///< 0: as the dumps say
};

struct Imported {
  Cluster cluster;
  std::string yaml;         ///< self-contained; parse_cluster reads it
  base::Diagnostics notes;  ///< warnings: what was assumed or left out
};

/// All errors of all dumps, E0301 to E0312.
[[nodiscard]] base::Result<Imported> import_cluster(const std::vector<Dump>& dumps, const ImportOptions& options,
                                                    const Known& known, const Find& find);

}  // namespace orrery::clusters
