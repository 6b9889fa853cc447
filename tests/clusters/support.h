#pragma once
/// The source tree's catalogue for tests of clusters.
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "clusters/read.h"

namespace orrery::clusters::testing {

inline std::optional<std::string> from_catalog(const std::string& name) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/clusters/catalog/" + name + ".yaml");
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// A catalogue entry; fails loudly where it cannot be read.
inline Cluster catalog(const std::string& name) {
  const auto cluster = parse_cluster(from_catalog(name).value_or(""), name + ".yaml", from_catalog);
  if (!cluster) throw std::runtime_error(base::render(cluster.error(), false));
  return *cluster;
}

}  // namespace orrery::clusters::testing
