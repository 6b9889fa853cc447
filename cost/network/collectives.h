#pragma once
/// Seconds of collectives and messages between GPUs. The algorithm is chosen as NCCL chooses it (NCCL 2.28.9,
/// src/graph/tuning.cc: among all enabled algorithms and protocols, the least latency + bytes / bandwidth); its time
/// follows from the bytes on the wires, which the library's model neglects in three places:
///
///  1. NVLink SHARP. A switch reads each byte once from every GPU and writes it once to each, and a GPU's own share
///     crosses its links twice, so a GPU moves S (1 + 1/g) bytes in each direction.
///  2. Trees over two and three nodes. A double binary tree over n nodes has 2 (n-1) edge ends in n nodes: the NICs
///     carry n/(n-1) times less than in a ring.
///  3. Middle sizes: all-reduces in Simple lose time to chunks that do not fill their pipeline. One measured law:
///     a transfer at the speed of a node's links takes 1 + (size_half / S)^size_exponent times as long as at large
///     sizes; with slower NICs the lost time is the same.
///
/// One deviation from NCCL: the tree's correction table is interpolated between its powers of two.
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/routes.h"
#include "cost/parameters/calibration.h"

namespace orrery::cost {

/// The cluster's properties that the formulas need; built once.
struct Network {
  clusters::Architecture architecture = clusters::Architecture::ampere;
  clusters::CpuVendor cpu = clusters::CpuVendor::other;
  bool nvlink = true;              ///< else PCIe connects the devices of a node
  bool multicast = false;          ///< NVLink SHARP
  bool ll128_ramps = false;        ///< rings in LL128 lose time at middle sizes as those in Simple do
  bool ll128 = true;               ///< the network preserves the order within 128 bytes, so LL128 may leave the node
  bool collnet = false;            ///< the network's switches reduce (SHARP)
  bool hierarchical = false;       ///< reduce-scatter in the node, all-reduce between nodes, all-gather in the node
  double intra_bandwidth = 0;      ///< bytes/s per device and direction into the node's fabric, datasheet
  double inter_latency = 0;        ///< s, device to device through one leaf, datasheet
  double hop_latency = 0;          ///< extra s per message between nodes beyond NCCL's tables (InfiniBand)
  double simple_hop_latency = 0;   ///< s for Simple, beyond twice that
  double intra_efficiency = 0.8;   ///< bandwidth of large collectives over the datasheet's, within a node
  double inter_efficiency = 0.96;  ///< the same between nodes
  double send_efficiency = 0.65;   ///< one message between two devices of a node, over the datasheet's bandwidth
  double send_channel = 14e9;      ///< bytes/s of one channel of such a message
  double all_to_all_efficiency = 0.9;  ///< of the bandwidth that the NICs give to collectives
  double size_half = 8.7e6;            ///< bytes: size at which an all-reduce's transfer takes twice as long per byte
  double size_exponent = 0.61;
};

[[nodiscard]] Network collective_network(const clusters::Cluster& cluster, const Calibration& calibration);

enum class Operation { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send };
inline constexpr int kOperations = 7;
[[nodiscard]] const char* name_of(Operation operation);  ///< "all_reduce"

/// A way to do a collective.
struct Choice {
  std::string algorithm;  ///< "ring", "tree", "nvls", "nvls-tree", "pat", "collnet-direct", "collnet-chain",
                          ///< "hierarchical", "direct", "pairwise", "two-level", "send"
  std::string protocol;   ///< "LL", "LL128", "Simple"
  double latency = 0;     ///< s
  double bandwidth = 0;   ///< bytes/s of the message (algbw) in the library's model, which determines the choice
  double wire = 0;        ///< bytes/s of the message at a large size, which determines the time
  double ramp = 0;  ///< bytes/s that scales the loss at middle sizes: the links of a node, which chunks fill, or `wire`
                    ///< if that is more; 0: no loss
  [[nodiscard]] double believed(double bytes) const { return latency + bytes / bandwidth; }
};

/// The time of a choice, s. T = latency + S/wire + [ramp > 0] S/ramp (size_half/S)^size_exponent
[[nodiscard]] double time_of(const Network& network, const Choice& choice, double bytes);

/// All candidates for `ranks` ranks that see the network as `span`; at least two ranks.
[[nodiscard]] std::vector<Choice> choices(const Network& network, Operation operation, const clusters::GroupSpan& span,
                                          int ranks, base::Bytes message);
/// The candidate with the least believed time; the first of equals. `algorithm`: restricts the choice to that name, as
/// NCCL_ALGO does, if there is one.
[[nodiscard]] Choice choose(const Network& network, Operation operation, const clusters::GroupSpan& span, int ranks,
                            base::Bytes message, const std::string& algorithm = {});

/// Seconds from when the last member is ready to the end; 0 for one rank. `message`: the full vector; for all-gather
/// and reduce-scatter all ranks' parts together, for all-to-all what one rank sends in total (its own part included).
[[nodiscard]] base::Seconds collective_time(const Network& network, Operation operation,
                                            const clusters::GroupSpan& span, int ranks, base::Bytes message);

/// One message between two ranks. Latency as in the ring's Simple protocol, one hop. Within a node a message of up to
/// 64 MiB uses 4 channels, one of m MiB m/16 of them, at most 32: T stays constant until the links are full.
[[nodiscard]] base::Seconds send_time(const Network& network, const clusters::GroupSpan& span, base::Bytes message);

/// busbw / algbw (nccl-tests doc/PERFORMANCE.md), which makes bandwidths at different rank counts comparable.
[[nodiscard]] double bus_factor(Operation operation, int ranks);

}  // namespace orrery::cost
