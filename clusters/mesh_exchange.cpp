// Loads of a mesh's links in an all-to-all, in messages.
#include "clusters/mesh_exchange.h"

#include <algorithm>
#include <vector>

namespace orrery::clusters {

double mesh_exchange_share(const NodeShape& node, int devices) {
  if (node.fabric != NodeFabric::mesh || devices < 3) return 1;
  const auto n = static_cast<std::size_t>(devices);
  std::vector<std::vector<int>> links(n, std::vector<int>(n, 0));
  for (const MeshEdge& edge : node.edges) {
    const auto a = static_cast<std::size_t>(edge.a), b = static_cast<std::size_t>(edge.b);
    links[a][b] = links[b][a] = edge.links;
  }
  std::vector<std::vector<double>> load(n, std::vector<double>(n, 0));
  bool linked = true;
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) {
      if (a == b) continue;
      if (links[a][b] > 0) {
        ++load[a][b];
        continue;
      }
      linked = false;
      const auto width = [&](std::size_t k) { return std::min(links[a][k], links[k][b]); };
      std::size_t through = 0;
      for (std::size_t k = 1; k < n; ++k)
        if (width(k) > width(through)) through = k;
      if (width(through) == 0) return 1;
      ++load[a][through];
      ++load[through][b];
    }
  if (linked) return 1;
  double slowest = 0;  // messages over links
  int most = 0;        // links of a device
  for (std::size_t a = 0; a < n; ++a) {
    int own = 0;
    for (std::size_t b = 0; b < n; ++b) {
      own += links[a][b];
      if (links[a][b] > 0) slowest = std::max(slowest, load[a][b] / links[a][b]);
    }
    most = std::max(most, own);
  }
  return std::min(1.0, static_cast<double>(devices - 1) / slowest / most);
}

}  // namespace orrery::clusters
