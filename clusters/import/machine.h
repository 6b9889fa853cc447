#pragma once
/// A machine between its dumps and its cluster: what has been chosen of what was found. Private to clusters/import/.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clusters/import/evidence.h"
#include "clusters/import/fabric.h"
#include "clusters/import/import.h"
#include "clusters/import/node.h"

namespace orrery::clusters {

/// What is wrong with the dumps, or worth a warning.
class ImportFindings {
 public:
  /// Always false.
  bool error(const char* code, base::Location where, std::string message, std::string help = {}) {
    found_.push_back({base::Severity::error, code, std::move(where), std::move(message), std::move(help), {}});
    failed_ = true;
    return false;
  }
  void warn(base::Location where, std::string message, std::string help = {}) {
    found_.push_back({base::Severity::warning, "E0312", std::move(where), std::move(message), std::move(help), {}});
  }
  /// Always false.
  bool pass_on(const base::Diagnostics& all) {
    found_.insert(found_.end(), all.begin(), all.end());
    failed_ = true;
    return false;
  }
  /// What reading the dumps has found.
  void begin(base::Diagnostics found) { found_ = std::move(found); }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] base::Diagnostics take() { return std::move(found_); }

 private:
  base::Diagnostics found_;
  bool failed_ = false;
};

struct Machine {
  Evidence evidence;
  std::vector<FoundNode> nodes;  ///< all of them, or one that stands for all
  std::optional<Cluster> catalogue_node = {};
  Device device = {};
  std::string device_name = {};
  std::vector<Host> hosts = {};  ///< in the fabric
  int count = 1;                 ///< of nodes
};

/// What the steps of an import share.
struct ImportContext {
  const ImportOptions& options;
  const Known& known;
  const Find& find;
  ImportFindings& findings;
};

// The steps, in their order; false after an error.

/// The node, from NCCL's dump, the matrix, hwloc or the catalogue, and its device (choose_node.cpp).
[[nodiscard]] bool choose_node(Machine& machine, const ImportContext& context);
/// Hosts of the fabric, the NICs that lead to it, and the number of nodes (choose_network.cpp).
[[nodiscard]] bool choose_network(Machine& machine, const ImportContext& context);
/// The cluster: in its regular shape, or link by link with a warning that says why (make_cluster.cpp).
[[nodiscard]] bool make_cluster(Machine& machine, const ImportContext& context, Cluster& cluster);

}  // namespace orrery::clusters
