#pragma once
/// Dumps read one by one: everything that they say, before it is put together.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/import.h"

namespace orrery::clusters {

struct Evidence {
  std::vector<FoundNode> nodes;     ///< of NCCL's topology: one, or several from a fused dump
  std::optional<FoundNode> matrix;  ///< of `topo -m`
  std::optional<FoundNode> tree;    ///< of hwloc
  std::optional<FoundFabric> fabric;
  std::vector<std::string> sources;  ///< what was read, in words
  base::Diagnostics found;           ///< of all dumps
  bool failed = false;               ///< one of them is an error
};

/// One dump of each format; a second is E0310.
[[nodiscard]] Evidence read_evidence(const std::vector<Dump>& dumps);

/// Takes from `other`, a second dump of the same machine, what `node` does not say. E0310 when they differ in GPUs.
[[nodiscard]] base::Diagnostics fill(FoundNode& node, const FoundNode& other);

}  // namespace orrery::clusters
