#pragma once
/// Seconds of collectives and messages between GPUs. What runs is chosen as NCCL chooses (NCCL 2.28.9,
/// src/graph/tuning.cc: of every algorithm and protocol that is enabled, the least latency + bytes / bandwidth); how
/// long it takes follows from what it moves over the wires, which the library's model leaves out in three places:
///
///  1. NVLink SHARP. A switch reads each byte once from every GPU and writes it once to each, and a GPU's own share
///     passes its links twice, so that a GPU moves S (1 + 1/g) bytes each way.
///  2. Trees over two and three nodes. A node of a double binary tree over n nodes has 2 (n-1) edges' ends in n nodes:
///     the NICs carry n/(n-1) times less than a ring's.
///  3. Middle sizes: all-reduces in Simple lose time to chunks that do not fill their pipeline. One measured law of
///  size:
///     a transfer at the speed of a node's links takes 1 + (size_half / S)^size_exponent times as long as at large
///     sizes; where NICs are slower the same time is lost.
///
/// One deviation from the source: the tree's correction table is interpolated between its powers of two.
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/routes.h"
#include "cost/parameters/calibration.h"

namespace orrery::cost {

/// What the formulas ask of a cluster; built once.
struct Network {
  clusters::Architecture architecture = clusters::Architecture::ampere;
  clusters::CpuVendor cpu = clusters::CpuVendor::other;
  bool nvlink = true;              ///< else PCIe joins the devices of a node
  bool multicast = false;          ///< NVLink SHARP
  bool ll128_ramps = false;        ///< rings in LL128 lose time at middle sizes as Simple ones do
  bool ll128 = true;               ///< the network keeps the order of 128 bytes: LL128 may leave the node
  bool collnet = false;            ///< switches of the network reduce (SHARP)
  bool hierarchical = false;       ///< reduce-scatter in the node, all-reduce between nodes, all-gather in the node
  double intra_bandwidth = 0;      ///< bytes/s per device and direction into the node's fabric, datasheet
  double inter_latency = 0;        ///< s, device to device through one leaf, datasheet
  double hop_latency = 0;          ///< s that a message between nodes takes beyond what NCCL's tables hold (InfiniBand)
  double simple_hop_latency = 0;   ///< s, of Simple, beyond twice that
  double intra_efficiency = 0.8;   ///< large collectives over datasheet, within a node
  double inter_efficiency = 0.96;  ///< the same between nodes
  double send_efficiency = 0.65;   ///< one message between two devices of a node over datasheet
  double send_channel = 14e9;      ///< bytes/s of one channel of such a message
  double all_to_all_efficiency = 0.9;  ///< of what the NICs give to collectives
  double size_half = 8.7e6;  ///< bytes: where an all-reduce's transfer takes twice what it does at a large size
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
  double bandwidth = 0;   ///< bytes/s of the message (algbw), as the library believes: by this it chooses
  double wire = 0;        ///< bytes/s of the message at a large size: by this it takes its time
  double ramp = 0;  ///< bytes/s that the loss at middle sizes goes by: the links of a node, which the chunks fill,
                    ///< or `wire` where that is more; 0: there is none
  [[nodiscard]] double believed(double bytes) const { return latency + bytes / bandwidth; }
};

/// What a choice takes, s. T = latency + S/wire + [ramp > 0] S/ramp (size_half/S)^size_exponent
[[nodiscard]] double time_of(const Network& network, const Choice& choice, double bytes);

/// Everything that is considered for `ranks` ranks that see the network as `span`; two ranks or more.
[[nodiscard]] std::vector<Choice> choices(const Network& network, Operation operation, const clusters::Span& span,
                                          int ranks, base::Bytes message);
/// What is taken: the least believed time, the first of equals. `algorithm`: as if NCCL_ALGO had forced it (of that
/// name where there is one).
[[nodiscard]] Choice choose(const Network& network, Operation operation, const clusters::Span& span, int ranks,
                            base::Bytes message, const std::string& algorithm = {});

/// From the moment the last member is ready to the end; 0 for one rank. `message`: the full vector, of all-gather and
/// reduce-scatter all ranks' parts together, of all-to-all what one rank sends in total (its own part included).
[[nodiscard]] base::Seconds collective_time(const Network& network, Operation operation, const clusters::Span& span,
                                            int ranks, base::Bytes message);

/// All-to-all with unequal parts: `bytes[i][j]` goes from the i-th member to the j-th; `node[i]` is the i-th member's
/// node. The transfer ends with the busiest member, whichever of its links and directions that is. With equal parts the
/// same as the even one's "direct".
[[nodiscard]] base::Seconds all_to_all_time(const Network& network, const clusters::Span& span,
                                            const std::vector<std::vector<double>>& bytes,
                                            const std::vector<int>& node);

/// One message between two ranks. Latency as the ring's Simple protocol, one hop. Within a node a message of
/// up to 64 MiB takes 4 channels, one of m MiB m/16 of them, at most 32: T does not grow until the links are full.
[[nodiscard]] base::Seconds send_time(const Network& network, const clusters::Span& span, base::Bytes message);

/// busbw / algbw, nccl-tests doc/PERFORMANCE.md: what makes bandwidths of different rank counts comparable.
[[nodiscard]] double bus_factor(Operation operation, int ranks);

}  // namespace orrery::cost
