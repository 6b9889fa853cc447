#pragma once
/// Finds the links that a message between two devices crosses, for sharing links among messages. Every direction of
/// every link has a number, and a route is a list of these. Each route is found once and kept.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "clusters/cluster.h"
#include "clusters/load.h"

namespace orrery::clusters {

/// Whether devices pass on each other's messages over their own links, on a torus or a mesh: messages between devices
/// then keep to these links, even where the way over the host is shorter, and take that one only if there is no other.
[[nodiscard]] bool relays(const Cluster& cluster);

/// Edge e of the graph (in the order of boost::edges) has two directions: 2e runs from its source to its target, 2e + 1
/// back.
class Paths {
 public:
  struct Path {
    std::vector<int> links;    ///< directions, from a to b; empty when a == b
    Seconds latency;           ///< sum over the links; between nodes also the network software's time per message
    BytesPerSecond bandwidth;  ///< of the slowest link
  };

  /// Copies what it needs from the cluster's graph.
  explicit Paths(const Cluster& cluster);
  ~Paths();
  Paths(Paths&&) noexcept;
  Paths& operator=(Paths&&) noexcept;

  /// The route from device a to device b: least latency, then least sum of inverse bandwidths (as in clusters::route);
  /// over the devices' own links first (relays()).
  /// Equal routes are shared out by position: the devices of a node spread over its equal NICs, on the sender's side by
  /// the sender's position and on the receiver's side by the receiver's (also from a spine down to one of its rails).
  /// On the way up, routes spread over equal switches by the sender's node and device, as hashing over equal-cost paths
  /// does, but deterministically. The reference stays valid. A pair without a route is a bug in the code that read the
  /// cluster.
  const Path& between(int a, int b) { return route(vertex_of(a), vertex_of(b)); }
  /// The same between any two vertices of the graph, for traffic that ends at a switch or in host memory.
  const Path& route(int from, int to);
  [[nodiscard]] int vertex_of(int device) const;

  /// Bytes/s, by direction.
  [[nodiscard]] const std::vector<double>& bandwidths() const { return bandwidths_; }
  [[nodiscard]] int devices() const { return static_cast<int>(vertex_of_.size()); }
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }  ///< routes found so far

 private:
  struct Arc {
    int to = 0, link = 0;
    std::int64_t latency = 0;   // fs
    std::int64_t slowness = 0;  // inverse bandwidth, in s per 10^18 bytes
  };
  struct RouteSearch;
  struct Alike;
  struct Hop;
  struct Pattern;

  Path find(int start, int end);
  Path search(int start, int end, std::optional<Pattern>* pattern);
  [[nodiscard]] bool add_step(int v, const Arc& way, std::size_t ways, int own, int other,
                              std::vector<Hop>& steps) const;
  [[nodiscard]] bool down(int from, int to) const;
  [[nodiscard]] int key(int from, int to, int start, int end) const;

  std::vector<int> first_;  // start of each vertex in arcs_
  std::vector<Arc> arcs_;
  std::vector<double> bandwidths_;
  std::vector<double> latencies_;                         // s, by edge
  std::vector<int> node_of_, local_of_, tier_of_;         // by vertex; local_of_: index of the device in its node
  std::vector<int> vertex_of_;                            // by device
  std::vector<bool> relay_;                               // by vertex
  std::unordered_map<std::uint64_t, const Path*> known_;  // lookups only, never iterated
  std::deque<Path> kept_;
  std::unique_ptr<RouteSearch> search_;
  std::unique_ptr<Alike> alike_;
  Seconds message_latency_;
};

}  // namespace orrery::clusters
