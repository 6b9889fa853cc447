#pragma once
/// Seconds of collectives and messages between GPUs, after NCCL's own tuning model (NCCL 2.28.9, src/graph/tuning.cc):
/// for each algorithm and protocol that the library would consider, latency + bytes / bandwidth; the library takes the
/// least, and so do we. To that comes what the model leaves out at middle sizes, as one measured law of the size.
///
/// Two deviations from the source, both so that time never falls when bytes grow: the tree's correction table is
/// interpolated between its powers of two, and channels are not dropped for small messages.
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/routes.h"
#include "cost/calibration.h"

namespace orrery::cost {

/// What the formulas ask of a cluster; built once.
struct Network {
  clusters::Architecture architecture = clusters::Architecture::ampere;
  clusters::CpuVendor cpu = clusters::CpuVendor::other;
  bool nvlink = true;              ///< else PCIe joins the devices of a node
  bool multicast = false;          ///< NVLink SHARP
  double intra_bandwidth = 0;      ///< bytes/s per device and direction into the node's fabric, datasheet
  double inter_latency = 0;        ///< s, device to device through one leaf, datasheet
  double intra_efficiency = 0.8;   ///< large collectives over datasheet, within a node
  double inter_efficiency = 0.96;  ///< the same between nodes
  double send_efficiency = 0.65;   ///< one message between two devices of a node over datasheet
  double size_half = 8.7e6;        ///< bytes: where the transfer takes twice what it does at a large size
  double size_exponent = 0.61;
};

[[nodiscard]] Network collective_network(const clusters::Cluster& cluster, const Calibration& calibration);

enum class Operation { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all };

/// A way to do a collective, as NCCL's tuner sees it.
struct Choice {
  std::string algorithm;  ///< "ring", "tree", "nvls", "nvls-tree", "pat", "pairwise"
  std::string protocol;   ///< "LL", "LL128", "Simple"
  double latency = 0;     ///< s
  double bandwidth = 0;   ///< bytes/s of the message (algbw)
  [[nodiscard]] double time(double bytes) const { return latency + bytes / bandwidth; }
};

/// Everything the tuner considers for `ranks` ranks that see the network as `span`; two ranks or more.
[[nodiscard]] std::vector<Choice> choices(const Network& network, Operation operation, const clusters::Span& span,
                                          int ranks, base::Bytes message);
/// What it takes: the least time, the first of equals.
[[nodiscard]] Choice choose(const Network& network, Operation operation, const clusters::Span& span, int ranks,
                            base::Bytes message);

/// From the moment the last member is ready to the end; 0 for one rank. `message`: the full vector, of all-gather and
/// reduce-scatter all ranks' parts together, of all-to-all what one rank sends in total (its own part included).
/// T = min over choices (latency + S/algbw) + (S/best algbw) (size_half/S)^size_exponent
[[nodiscard]] base::Seconds collective_time(const Network& network, Operation operation, const clusters::Span& span,
                                            int ranks, base::Bytes message);

/// One message between two ranks. Latency as the ring's Simple protocol, one hop.
[[nodiscard]] base::Seconds send_time(const Network& network, const clusters::Span& span, base::Bytes message);

/// busbw / algbw, nccl-tests doc/PERFORMANCE.md: what makes bandwidths of different rank counts comparable.
[[nodiscard]] double bus_factor(Operation operation, int ranks);

}  // namespace orrery::cost
