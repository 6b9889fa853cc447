#pragma once
/// Reads dumps one by one and keeps all that they say, before any of it is combined.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/import.h"

namespace orrery::clusters {

struct Evidence {
  std::vector<FoundNode> nodes;     ///< from NCCL's topology: one, or several from a fused dump
  std::optional<FoundNode> matrix;  ///< from `topo -m`
  std::optional<FoundNode> tree;    ///< from hwloc
  std::optional<FoundFabric> fabric;
  std::vector<std::string> sources;  ///< what was read, in words
  base::Diagnostics found;           ///< in all dumps
  bool failed = false;               ///< one of these is an error
};

/// At most one dump of each format; a second is E0310.
[[nodiscard]] Evidence read_evidence(const std::vector<Dump>& dumps);

/// Fills what `node` lacks from `other`, a second dump of the same machine. E0310 if their GPUs differ.
[[nodiscard]] base::Diagnostics fill(FoundNode& node, const FoundNode& other);

}  // namespace orrery::clusters
