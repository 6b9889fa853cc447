#pragma once
/// Readers of dumps, one for each format. They return what was found, or nothing after errors in the text's findings.
#include <optional>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/text.h"

namespace orrery::clusters {

/// NCCL's topology XML (NCCL_TOPO_DUMP_FILE), as read by NCCL 2.28's src/graph/xml.cc and topo.cc: one node per
/// host_hash.
[[nodiscard]] std::optional<std::vector<FoundNode>> read_nccl_topology(Lines& text);

/// The matrix of `nvidia-smi topo -m`.
[[nodiscard]] std::optional<FoundNode> read_topo_matrix(Lines& text);

/// hwloc 2's XML (`lstopo --of xml`).
[[nodiscard]] std::optional<FoundNode> read_hwloc(Lines& text);

/// The listing of `ibnetdiscover`. SHARP's aggregation nodes are omitted.
[[nodiscard]] std::optional<FoundFabric> read_ibnetdiscover(Lines& text);

}  // namespace orrery::clusters
