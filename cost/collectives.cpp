/// NCCL's tuning model. Names and numbers of the tables are those of src/graph/tuning.cc and src/graph/topo.h, version
/// 2.28.9; microseconds and GB/s as there, converted where they are used.
#include "cost/collectives.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/ensure.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;
using clusters::Span;

namespace {

constexpr double kMicro = 1e-6;  ///< s per us
constexpr double kGiga = 1e9;    ///< bytes per GB

enum Protocol { LL = 0, LL128 = 1, simple = 2 };
constexpr std::array<const char*, 3> kProtocols = {"LL", "LL128", "Simple"};
using ByProtocol = std::array<double, 3>;

// baseLatencies
constexpr ByProtocol kBaseTree = {6.8, 14.0, 8.4};
constexpr ByProtocol kBaseRing = {6.6, 14.0, 8.4};
constexpr double kBasePat = 8.0;
// hwLatencies[NVLINK | PCI | NET]
constexpr ByProtocol kTreeNvlink = {0.6, 1.25, 4.0}, kTreePci = {1.0, 1.9, 4.0}, kTreeNet = {5.0, 8.5, 14.0};
constexpr ByProtocol kRingNvlink = {0.6, 1.9, 3.4}, kRingPci = {1.0, 2.5, 5.7}, kRingNet = {2.7, 4.0, 14.0};
constexpr double kNvlsNvlink = 25, kNvlsTreeNvlink = 25, kNvlsTreeNet = 20.9;
// getNetOverhead: host work per network step, us; three times that for Simple
constexpr double kNetOverheadAmd = 2.0, kNetOverheadOther = 1.0, kNetOverheadSimple = 3.0;
// llMaxBws: one node by architecture (volta, ampere, hopper, blackwell); more nodes by CPU, for two and for more nodes
constexpr std::array<double, 4> kLlOneNode = {39.0, 87.7, 141.0, 282.0};
constexpr std::array<double, 2> kLlIntel = {39.0, 20.4}, kLlAmd = {22.5, 19.0};
constexpr double kLlRingShare = 0.5;      ///< LL carries a flag with each 4 bytes
constexpr double kLl128RingShare = 0.92;  ///< 120 of 128 bytes, and margin
constexpr double kTreeShare = 0.92;
constexpr double kTreeLl = 1.0 / 3.8;
constexpr double kTreeLl128OneNode = 7.0 / 9.0, kTreeLl128 = 15.0 / 16.0;
constexpr double kPatShare = 0.75;
constexpr double kPatInterDivisor = 3.5, kPatPerRank = 2.8;
// nvlsEfficiency by architecture; heads as the search finds them: at most 8 for 8 GPUs, at speeds of speedArrayIntra
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, 0.85, 0.74};
constexpr std::array<double, 4> kNvlsHeadMost = {0, 0, 60.0, 90.0};          ///< GB/s of one head, fastest speed tried
constexpr std::array<double, 4> kNvlsNodeMost = {0, 0, 8 * 40.0, 8 * 80.0};  ///< eight heads at the fastest that fits
constexpr std::array<double, 4> kNvlsTreeTwo = {26.5, 24.0, 57.7, 96.0};     ///< perChMaxNVLSTreeBws, two nodes
constexpr std::array<double, 4> kNvlsTreeMore = {10.0, 17.8, 45.5, 43.8};    ///< three and more
// A ring whose slots are full waits for the network's round trip: plateau of Simple between nodes
constexpr double kPlateauVolta = 1.9, kPlateauAmpere = 1.4, kPlateauBytes = 64;
// Speed of one ring channel that the search finds on the DGX machines, GB/s: 12 x 10, 24 x 10, 24 x 15
constexpr std::array<double, 4> kChannel = {10, 10, 15, 30};
// treeCorrectionFactor[protocol][floor(log2(bytes / 64))]
constexpr int kCorrections = 23;
constexpr std::array<std::array<double, kCorrections>, 3> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

std::size_t row_of(clusters::Architecture architecture) {
  switch (architecture) {
    case clusters::Architecture::volta: return 0;
    case clusters::Architecture::cpu:      // never asked: CPU ranks use MPI
    case clusters::Architecture::generic:  // RCCL began as NCCL 2.x with its tables of this time
    case clusters::Architecture::ampere: return 1;
    case clusters::Architecture::hopper: return 2;
    case clusters::Architecture::blackwell: return 3;
  }
  return 1;
}

/// A group as the tuner sees it; bandwidths in GB/s over the group's share of one node.
struct Group {
  int ranks = 2, nodes = 1, per_node = 1;
  double intra = 0;          ///< of a ring within a node
  double inter = 0;          ///< of all NICs that the group uses in one node; 0 within a node
  double extra_latency = 0;  ///< us between nodes beyond one leaf
  [[nodiscard]] double ring() const { return nodes == 1 ? intra : per_node == 1 ? inter : std::min(intra, inter); }
};

Group group_of(const Network& n, const Span& span, int ranks) {
  ENSURE(ranks >= 2, "a group of {} ranks", ranks);
  Group g;
  g.ranks = ranks;
  g.nodes = span.nodes;
  g.per_node = span.per_node;
  const double within = span.within_node ? span.bandwidth.value : n.intra_bandwidth;
  g.intra = within * n.intra_efficiency / kGiga;
  if (!span.within_node) {
    g.inter = span.bandwidth.value * span.per_node * n.inter_efficiency / kGiga;
    g.extra_latency = std::max(0.0, span.latency.value - n.inter_latency) / kMicro;
  }
  return g;
}

class Tuner {
 public:
  Tuner(const Network& n, const Group& g, double bytes) : n_(n), g_(g), bytes_(bytes), row_(row_of(n.architecture)) {}

  [[nodiscard]] std::vector<Choice> all(Operation operation) {
    if (operation == Operation::all_to_all) {
      pairwise();
      return std::move(found_);
    }
    for (const Protocol p : {LL, LL128, simple}) ring(operation, p);
    if (operation == Operation::all_reduce) {
      for (const Protocol p : {LL, LL128, simple}) tree(p);
    }
    if (n_.multicast && operation != Operation::broadcast && kNvlsEfficiency[row_] > 0) nvls(operation);
    if (operation == Operation::all_gather || operation == Operation::reduce_scatter) pat();
    return std::move(found_);
  }

 private:
  void add(const char* algorithm, Protocol protocol, double microseconds, double gigabytes) {
    found_.push_back({algorithm, kProtocols[protocol], microseconds * kMicro, gigabytes * kGiga});
  }
  [[nodiscard]] double ring_intra(Protocol p) const { return (n_.nvlink ? kRingNvlink : kRingPci)[p]; }
  [[nodiscard]] double tree_intra(Protocol p) const { return (n_.nvlink ? kTreeNvlink : kTreePci)[p]; }
  /// With one device a node nothing hides the network's latency: the tree's value counts for every algorithm.
  [[nodiscard]] double inter(const ByProtocol& net, Protocol p) const {
    return (g_.per_node == 1 ? kTreeNet[p] : net[p]) + g_.extra_latency;
  }
  [[nodiscard]] double net_overhead(Protocol p) const {
    if (g_.nodes == 1) return 0;
    const double once = n_.cpu == clusters::CpuVendor::amd ? kNetOverheadAmd : kNetOverheadOther;
    return p == simple ? once * kNetOverheadSimple : once;
  }
  [[nodiscard]] double ll_most() const {
    if (g_.nodes == 1) return kLlOneNode[row_];
    const auto& by_nodes = n_.cpu == clusters::CpuVendor::amd ? kLlAmd : kLlIntel;
    return by_nodes[g_.nodes == 2 ? 0 : 1];
  }

  void ring(Operation operation, Protocol p) {
    const double bus =
        p == LL ? std::min(ll_most(), kLlRingShare * g_.ring()) : g_.ring() * (p == LL128 ? kLl128RingShare : 1.0);
    if (operation == Operation::broadcast) {
      add("ring", p, kBaseRing[p] + (g_.nodes > 1 ? inter(kRingNet, p) : ring_intra(p)), bus);
      return;
    }
    const bool reduce = operation == Operation::all_reduce;
    const double steps = (reduce ? 2.0 : 1.0) * (g_.ranks - 1);
    const double between = g_.nodes == 1 ? 0.0 : (reduce ? 2.0 : 1.0) * (g_.nodes - 1);
    double latency = kBaseRing[p] + (steps - between) * std::max(ring_intra(p), net_overhead(p)) +
                     (between > 0 ? between * inter(kRingNet, p) : 0.0);
    const double channels = std::max(1.0, std::round(g_.ring() / kChannel[row_]));
    if (p == simple && reduce && g_.nodes > 1 && bytes_ / (channels * g_.ranks) >= kPlateauBytes) {
      latency *= n_.architecture == clusters::Architecture::volta ? kPlateauVolta : kPlateauAmpere;
    }
    add("ring", p, latency, bus * g_.ranks / steps);
  }

  /// Two nodes exchange halves, so that each NIC carries half of what a ring's would: the NICs count twice.
  void tree(Protocol p) {
    const double between = g_.nodes == 2 ? 2 * g_.inter : g_.inter;
    const double both = g_.per_node == 1 ? between : std::min(g_.intra, between);
    double bus = kTreeShare * (g_.nodes == 1 ? g_.intra : both);
    if (p == LL) bus = std::min(bus * kTreeLl, ll_most());
    if (p == LL128) bus *= g_.nodes == 1 ? kTreeLl128OneNode : kTreeLl128;
    const double depth = g_.nodes == 1 ? 0 : std::floor(std::log2(g_.nodes)) * inter(kTreeNet, p);
    const double latency = kBaseTree[p] + 2 * ((g_.ranks / g_.nodes - 1) * tree_intra(p) + depth);
    add("tree", p, latency, bus * correction(p) / 2);
  }

  /// The table between its powers of two.
  [[nodiscard]] double correction(Protocol p) const {
    const double at = std::clamp(std::log2(std::max(bytes_, 1.0) / 64), 0.0, kCorrections - 1.0);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min<std::size_t>(low + 1, kCorrections - 1);
    const double part = at - static_cast<double>(low);
    return kTreeCorrection[p][low] * (1 - part) + kTreeCorrection[p][high] * part;
  }

  void nvls(Operation operation) {
    const double members = g_.per_node;
    const bool reduce = operation == Operation::all_reduce;
    if (members < 2 || (g_.nodes > 1 && !reduce)) return;
    const double heads = std::min({members * kNvlsHeadMost[row_], kNvlsNodeMost[row_], g_.intra});
    const double busy = (members - 1) / members;
    const double within = heads * kNvlsEfficiency[row_] * busy * (reduce ? 2.0 : busy);
    const double steps = (reduce ? 2.0 : 1.0) * (g_.ranks - 1);
    if (g_.nodes == 1) {
      add("nvls", simple, kNvlsNvlink, within * g_.ranks / steps);
      return;
    }
    const double most = members * (g_.nodes == 2 ? kNvlsTreeTwo : kNvlsTreeMore)[row_];
    const double bus = std::min({within, g_.inter * (g_.nodes == 2 ? 2 : 1), most});
    const double latency = kNvlsTreeNvlink + 2 * std::log2(g_.nodes) * (kNvlsTreeNet + g_.extra_latency);
    add("nvls-tree", simple, latency, bus * g_.ranks / steps);
  }

  /// Only with one device a node.
  void pat() {
    if (g_.per_node != 1 || g_.nodes < 2) return;
    const double latency =
        kBasePat + std::log2(g_.nodes) * inter(kTreeNet, simple) / kPatInterDivisor + kPatPerRank * g_.ranks;
    add("pat", simple, latency, kPatShare * g_.ring());
  }

  /// Every pair at once: each NIC carries what leaves the node, each device's links what stays. NCCL has no model of
  /// its grouped sends; the latency is a ring step's.
  void pairwise() {
    const double p = g_.ranks, inside = g_.per_node;
    double seconds_per_giga = (inside - 1) / p / g_.intra;
    if (g_.nodes > 1) seconds_per_giga = std::max(seconds_per_giga, (p - inside) / p / (g_.inter / inside));
    add("pairwise", simple, kBaseRing[simple] + (g_.nodes > 1 ? inter(kRingNet, simple) : ring_intra(simple)),
        1 / seconds_per_giga);
  }

  const Network& n_;
  const Group g_;
  const double bytes_;
  const std::size_t row_;
  std::vector<Choice> found_;
};

}  // namespace

Network collective_network(const clusters::Cluster& cluster, const Calibration& c) {
  Network n;
  n.architecture = cluster.device().architecture;
  n.nvlink = cluster.intra.name == "nvlink";
  if (cluster.shape) {
    n.cpu = cluster.shape->node.cpu;
    n.multicast = cluster.shape->node.multicast;
  }
  n.intra_bandwidth = cluster.intra.bandwidth.value;
  n.inter_latency = cluster.inter.latency.value;
  n.intra_efficiency = c.at("network.intra.efficiency");
  n.inter_efficiency = c.at("network.inter.efficiency");
  n.send_efficiency = c.at("network.send.efficiency");
  n.size_half = c.at("network.size_half");
  n.size_exponent = c.at("network.size_exponent");
  return n;
}

std::vector<Choice> choices(const Network& network, Operation operation, const Span& span, int ranks, Bytes message) {
  return Tuner(network, group_of(network, span, ranks), message.value).all(operation);
}

Choice choose(const Network& network, Operation operation, const Span& span, int ranks, Bytes message) {
  const std::vector<Choice> all = choices(network, operation, span, ranks, message);
  return *std::min_element(all.begin(), all.end(), [&](const Choice& a, const Choice& b) {
    return a.time(message.value) < b.time(message.value);
  });
}

Seconds collective_time(const Network& network, Operation operation, const Span& span, int ranks, Bytes message) {
  if (ranks <= 1 || message.value <= 0) return Seconds{0};
  const std::vector<Choice> all = choices(network, operation, span, ranks, message);
  double least = all.front().time(message.value), widest = 0;
  for (const Choice& choice : all) {
    least = std::min(least, choice.time(message.value));
    // The tree's bandwidth depends on the size; what the law multiplies must not.
    if (choice.algorithm != "tree") widest = std::max(widest, choice.bandwidth);
  }
  return Seconds{least + message.value / widest * std::pow(network.size_half / message.value, network.size_exponent)};
}

Seconds send_time(const Network& network, const Span& span, Bytes message) {
  if (message.value <= 0) return Seconds{0};
  const double hop = span.within_node ? (network.nvlink ? kRingNvlink : kRingPci)[simple] : kRingNet[simple];
  const double extra = span.within_node ? 0 : std::max(0.0, span.latency.value - network.inter_latency);
  const double efficiency = span.within_node ? network.send_efficiency : network.inter_efficiency;
  return Seconds{(kBaseRing[simple] + hop) * kMicro + extra + message.value / (span.bandwidth.value * efficiency)};
}

double bus_factor(Operation operation, int ranks) {
  const double p = ranks;
  switch (operation) {
    case Operation::all_reduce: return 2 * (p - 1) / p;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all: return (p - 1) / p;
    case Operation::broadcast: return 1;
  }
  return 1;
}

}  // namespace orrery::cost
