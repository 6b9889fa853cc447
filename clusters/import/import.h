#pragma once
/// Builds a Cluster from dumps of a real machine: a node from NCCL's topology XML, `nvidia-smi topo -m` or hwloc's XML,
/// the network from `ibnetdiscover`. Regular machines yield the brief form, others the link-by-link form. What no dump
/// says is taken from clusters/import/known.yaml and listed in the cluster's sources; it is an error if it is not in
/// that file either.
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
/// The format, detected from the content; nothing if it matches none.
[[nodiscard]] std::optional<DumpFormat> dump_format(std::string_view text);

struct Dump {
  std::string text, file;
  DumpFormat format = DumpFormat::nccl;
};

/// Line `line` (from 1) as messages show it: without terminal escapes, and truncated if long.
[[nodiscard]] std::string source_line(std::string_view text, int line);

struct ImportOptions {
  std::string name;              ///< of the cluster
  int nodes = 0;                 ///< 0: as in the dumps, otherwise 1
  std::string device;            ///< catalogue name of the GPU; empty: as in the dumps
  std::string node;              ///< catalogue name of a cluster that provides the node if no dump describes one
  std::string hosts;             ///< hosts of a fabric to keep, by name, with * as a wildcard; empty: all
  BytesPerSecond nic_bandwidth;  ///< 0: as in the dumps
};

struct Imported {
  Cluster cluster;
  std::string yaml;         ///< self-contained; parse_cluster reads it
  base::Diagnostics notes;  ///< warnings: what was assumed or omitted
};

/// Returns all errors of all dumps, E0301 to E0312.
[[nodiscard]] base::Result<Imported> import_cluster(const std::vector<Dump>& dumps, const ImportOptions& options,
                                                    const Known& known, const Find& find);

}  // namespace orrery::clusters
