/// NCCL's tuning model and the bytes that its algorithms move. Formulas: docs/formulas.md.
#include "cost/network/nccl_tuner.h"

#include <algorithm>
#include <cmath>

#include "base/ensure.h"

namespace orrery::cost::nccl {

using clusters::GroupSpan;

namespace {

std::size_t row_of(clusters::Architecture architecture) {
  using A = clusters::Architecture;
  if (architecture == A::volta) return 0;
  if (architecture == A::hopper) return 2;
  if (architecture == A::blackwell) return 3;
  return 1;  // architectures in no table are tuned as Ampere
}

std::size_t column_of(int nodes) {
  return static_cast<std::size_t>(std::min(nodes, 3) - 1);
}

class Tuner {
 public:
  Tuner(const Network& n, const Group& g, double bytes) : n_(n), g_(g), bytes_(bytes), row_(row_of(n.architecture)) {}

  [[nodiscard]] std::vector<Choice> all(Operation operation) {
    const bool all_reduce = operation == Operation::all_reduce;
    const bool rooted = operation == Operation::broadcast || operation == Operation::reduce;
    for (const Protocol p : protocols()) ring(operation, p);
    if (all_reduce) {
      for (const Protocol p : protocols()) tree(p);
    }
    if (n_.multicast && !rooted && kNvlsEfficiency[row_] > 0) nvls(operation);
    if (!all_reduce && !rooted) pat();
    if (n_.collnet && !rooted && g_.nodes > 1) collnet(operation);
    if (n_.hierarchical && all_reduce && g_.nodes > 1 && g_.per_node > 1) hierarchical();
    return std::move(found_);
  }

 private:
  /// `believed` and `wire` in GB/s.
  void add(const char* algorithm, Protocol protocol, double microseconds, double believed, double wire, bool ramps) {
    const double links = g_.intra * g_.ranks / (2.0 * (g_.ranks - 1));  // an all-reduce's over a node's links only
    found_.push_back({algorithm, kProtocols[protocol], microseconds * kMicro, believed * kGiga, wire * kGiga,
                      ramps ? std::max(wire, links) * kGiga : 0});
  }
  /// LL128 needs 128-byte stores that arrive whole: NVLink, and between nodes a NIC that preserves their order.
  [[nodiscard]] std::vector<Protocol> protocols() const {
    if (n_.nvlink && (g_.nodes == 1 || n_.ll128)) return {LL, LL128, simple};
    return {LL, simple};
  }
  [[nodiscard]] double ring_intra(Protocol p) const { return (n_.nvlink ? kRingNvlink : kRingPci)[p]; }
  [[nodiscard]] double tree_intra(Protocol p) const { return (n_.nvlink ? kTreeNvlink : kTreePci)[p]; }
  /// With one device per node nothing hides the network's latency: the tree's value applies to every algorithm.
  [[nodiscard]] double inter(const ByProtocol& net, Protocol p) const {
    return hop(n_, g_, g_.per_node == 1 ? kTreeNet[p] : net[p], p);
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
  [[nodiscard]] double channels() const { return std::max(1.0, std::round(g_.ring() / kChannel[row_])); }
  [[nodiscard]] double per_channel(const std::array<ByNodes, 4>& table) const {
    return channels() * table[row_][column_of(g_.nodes)];
  }

  void ring(Operation operation, Protocol p) {
    double bus = g_.ring();
    if (p == LL) bus = std::min(ll_most(), kLlRingShare * bus);
    if (p == LL128) bus = std::min(kLl128RingShare * bus, per_channel(kRingLl128Channel));
    if (operation == Operation::broadcast || operation == Operation::reduce) {
      add("ring", p, kBaseRing[p] + (g_.nodes > 1 ? inter(kRingNet, p) : ring_intra(p)), bus, bus, false);
      return;
    }
    const bool reduce = operation == Operation::all_reduce;
    const double passes = reduce ? 2.0 : 1.0, steps = passes * (g_.ranks - 1);
    const double between = g_.nodes == 1 ? 0.0 : (reduce ? 2.0 : 1.0) * (g_.nodes - 1);
    double latency = kBaseRing[p] + (passes * g_.hops - between) * std::max(ring_intra(p), net_overhead(p)) +
                     (between > 0 ? between * inter(kRingNet, p) : 0.0);
    if (p == simple && reduce && g_.nodes > 1 && bytes_ / (channels() * g_.ranks) >= kPlateauBytes) {
      latency *= n_.architecture == clusters::Architecture::volta ? kPlateauVolta : kPlateauAmpere;
    }
    const double algorithm = bus * g_.ranks / steps;
    add("ring", p, latency, algorithm, algorithm, reduce && (p == simple || (p == LL128 && n_.ll128_ramps)));
  }

  void tree(Protocol p) {
    const double most = std::min(kTreeShare * g_.ring(), per_channel(kTreeChannel));
    double bus = most;
    if (p == LL) bus = std::min(bus * kTreeLl, ll_most());
    if (p == LL128)
      bus = std::min(bus * (g_.nodes == 1 ? kTreeLl128OneNode : kTreeLl128), per_channel(kTreeLl128Channel));
    const double depth = g_.nodes == 1 ? 0 : std::floor(std::log2(g_.nodes)) * inter(kTreeNet, p);
    const double latency = kBaseTree[p] + 2 * ((g_.ranks / g_.nodes - 1) * tree_intra(p) + depth);
    const double believed = bus * correction(p) / 2;
    // LL and LL128 are limited by flags and reach the believed bandwidth; Simple fills the links.
    const double links = g_.nodes == 1      ? kTreeShare * g_.intra
                         : g_.per_node == 1 ? g_.tree_inter()
                                            : std::min(g_.intra, g_.tree_inter());
    add("tree", p, latency, believed, p == simple ? links / 2 : believed, p == simple);
  }

  /// The correction table, interpolated between its powers of two.
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
    const double believed = heads * kNvlsEfficiency[row_] * busy * (reduce ? 2.0 : busy);
    const double scale = g_.ranks / ((reduce ? 2.0 : 1.0) * (g_.ranks - 1));
    // Each byte of a message leaves a GPU once, and each byte of its own share once more; a gather or scatter moves all
    // but its own share in one direction.
    const double wire = g_.intra * kNvlsEfficiency[row_] / (reduce ? 1 + 1 / members : busy);
    if (g_.nodes == 1) {
      add("nvls", simple, kNvlsNvlink, believed * scale, wire, reduce);
      return;
    }
    const double most = members * kNvlsTreeChannel[row_][column_of(g_.nodes)];
    const double bus = std::min({believed, g_.inter * (g_.nodes == 2 ? 2 : 1), most});
    const double latency = kNvlsTreeNvlink + 2 * std::log2(g_.nodes) * hop(n_, g_, kNvlsTreeNet, simple);
    add("nvls-tree", simple, latency, bus * scale, std::min(wire, g_.tree_inter() / 2), true);
    if (n_.collnet) {
      // The switch reduces: the NICs carry every byte once in each direction.
      add("nvls", simple, kNvlsNvlink + hop(n_, g_, kNvlsNet, simple), std::min({believed, g_.inter, most}) * scale,
          std::min(wire, g_.inter), true);
    }
  }

  /// Only with one device per node.
  void pat() {
    if (g_.per_node != 1 || g_.nodes < 2) return;
    const double latency =
        kBasePat + std::log2(g_.nodes) * inter(kTreeNet, simple) / kPatInterDivisor + kPatPerRank * g_.ranks;
    add("pat", simple, latency, kPatShare * g_.ring(), kPatShare * g_.ring(), false);
  }

  void collnet(Operation operation) {
    const double g = g_.per_node, c = channels();
    const double latency = 2 * (std::min(1.0, g - 1) * kDirectIntra + kDirectPeer * (g - 1));
    if (operation != Operation::all_reduce) {
      const double gather = g * std::min(g_.intra, kDirectNet90 * g_.inter) / c;
      add("collnet-direct", simple, latency + hop(n_, g_, kDirectNet, simple), gather, gather, false);
      return;
    }
    const double factor = g / c;
    const double tuned = row_ >= 2 ? kDirectHopper : 1.0;
    const double direct = g_.ring() / (factor - (factor - 1) / 2) * tuned / 2;
    add("collnet-direct", simple, latency + hop(n_, g_, kDirectNet, simple), direct, std::min(direct, g_.inter), true);
    add("collnet-chain", simple, 2 * (g - 1) * kChainIntra + hop(n_, g_, kChainNet, simple), g_.ring() / 2,
        g_.ring() / 2, true);
  }

  /// Reduce-scatter in the node, all-reduce of 1/g between corresponding devices of all nodes, all-gather in the node;
  /// one ring each, one after the other.
  void hierarchical() {
    const double g = g_.per_node, n = g_.nodes;
    const double seconds_per_giga = 2 * (g - 1) / g / g_.intra + 2 * (n - 1) / n / g_.inter;
    const double latency = 3 * kBaseRing[simple] + 2 * (g - 1) * std::max(ring_intra(simple), net_overhead(simple)) +
                           2 * (n - 1) * inter(kRingNet, simple);
    add("hierarchical", simple, latency, 1 / seconds_per_giga, 1 / seconds_per_giga, true);
  }

  const Network& n_;
  const Group& g_;
  const double bytes_;
  const std::size_t row_;
  std::vector<Choice> found_;
};

}  // namespace

double Group::ring() const {
  return nodes == 1 ? intra : per_node == 1 ? inter : std::min(intra, inter);
}

double Group::tree_inter() const {
  return nodes == 2 ? 2 * inter : nodes == 3 ? inter * 4 / 3 : inter;
}

Group group_of(const Network& n, const GroupSpan& span, int ranks) {
  ENSURE(ranks >= 2, "a group of {} ranks", ranks);
  Group g;
  g.ranks = ranks;
  g.nodes = span.nodes;
  g.per_node = span.per_node;
  const double within = span.within_node ? span.bandwidth.value : n.intra_bandwidth;
  g.intra = within * n.intra_efficiency / kGiga;
  g.hops = span.hops > 0 ? span.hops : ranks - 1;
  g.exchange = span.exchange.value > 0 ? span.exchange.value * n.intra_efficiency / kGiga : g.intra;
  if (!span.within_node) {
    g.inter = span.bandwidth.value * span.per_node * n.inter_efficiency / kGiga;
    g.extra_latency = std::max(0.0, span.latency.value - n.inter_latency) / kMicro;
  }
  return g;
}

double hop(const Network& n, const Group& g, double table, Protocol p) {
  const double beyond = g.extra_latency + n.hop_latency / kMicro;
  return table + (p == simple ? 2 * beyond + n.simple_hop_latency / kMicro : beyond);
}

std::vector<Choice> reductions(const Network& network, const Group& group, Operation operation, double bytes) {
  return Tuner(network, group, bytes).all(operation);
}

namespace {

/// GB/s that one member sends into its node's fabric when all send to all.
double exchange_most(const Network& n, const Group& g) {
  return g.per_node == n.mesh ? g.exchange * n.mesh_exchange : g.exchange;
}

/// The same with `message` bytes to each of `peers`.
double exchange_intra(const Network& n, const Group& g, double message, double peers) {
  const double channels = std::clamp(message / (kSlot * kSlotsPerChannel), kSendChannelsLeast, kSendChannelsMost);
  const double fabric = exchange_most(n, g);
  return n.nvlink ? std::min(fabric, peers * channels * n.send_channel / kGiga) : fabric;
}

}  // namespace

std::vector<Choice> exchanges(const Network& n, const Group& g, double bytes) {
  const double p = g.ranks, inside = g.per_node, message = bytes / p;
  const double base = kBaseRing[simple];
  const double near = n.nvlink ? kRingNvlink[simple] : kRingPci[simple];
  const double far = g.nodes > 1 ? hop(n, g, kRingNet[simple], simple) : 0;
  const double fabric = inside > 1 ? exchange_intra(n, g, message, inside - 1) : g.intra;
  const double nic = g.nodes > 1 ? g.inter / inside * n.all_to_all_efficiency : 0;
  // Seconds per gigabyte of the vector, within the node and between nodes.
  const double within = (inside - 1) / p / fabric;
  const double between = g.nodes > 1 ? (p - inside) / p / nic : 0;
  // The first slot of every message waits for its partner while it occupies the link.
  const double slowest = g.nodes > 1 ? nic : fabric;
  const double ramp = (p - 1) * std::min(message, kSlot / 2) / slowest / bytes;  // in seconds per gigabyte
  std::vector<Choice> found;
  const auto add = [&](const char* algorithm, double microseconds, double seconds_per_giga) {
    const double rate = kGiga / seconds_per_giga;
    found.push_back({algorithm, kProtocols[simple], microseconds * kMicro, rate, rate, 0});
  };
  add("direct", base + std::max(near, far), ramp + std::max(within, between));
  add("pairwise", base + (inside - 1) * near + (p - inside) * far, ramp + within + between);
  if (n.hierarchical && g.nodes > 1 && inside > 1) {
    // First within the node, by destination node; then between corresponding devices: n-1 messages of g times the size.
    add("two-level", 2 * base + near + (g.nodes - 1) * far, (inside - 1) / inside / exchange_most(n, g) + between);
  }
  return found;
}

}  // namespace orrery::cost::nccl
