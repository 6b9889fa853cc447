#pragma once
/// Small GPU clusters written as YAML, and random ones with plans that fill them.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>

#include "base/random.h"
#include "plan/spec/plan.h"
#include "tests/plan/samples.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim::testing {

struct SmallCluster {
  int nodes = 2, devices = 2, nics = 2, pcie_switches = 2;
  int leaf_nodes = 0, pod_nodes = 0;
  double oversubscription = 1, core_oversubscription = 1;
  bool rails = false;
  double nic_gbps = 100;
  double nvlink_gbytes = 25;  ///< of a device
};

inline std::shared_ptr<const clusters::Cluster> make(const SmallCluster& c) {
  std::string levels;
  if (c.leaf_nodes > 0) levels += fmt::format("leaf_nodes: {}, ", c.leaf_nodes);
  if (c.pod_nodes > 0) levels += fmt::format("pod_nodes: {}, ", c.pod_nodes);
  const std::string text = fmt::format(
      "name: small\ndevice: a100-sxm4-80gb\nnode:\n  devices: {}\n"
      "  fabric: {{kind: nvswitch, latency: 0.3 us, link_bandwidth: {} GB/s, links: 1}}\n"
      "  host: {{cpu: amd, sockets: 1, memory_bandwidth: 200 GB/s}}\n"
      "  pcie: {{switches: {}, bandwidth: 64 GB/s, latency: 0.4 us}}\n"
      "  nics: {{count: {}, bandwidth: {} Gb/s, latency: 0.6 us}}\n"
      "fabric: {{kind: infiniband, rails: {}, {}oversubscription: {}, "
      "core_oversubscription: {}, hop_latency: 0.1 us}}\nnodes: {}\nstack: orrery-cuda\nsources: [\"test\"]\n",
      c.devices, c.nvlink_gbytes, c.pcie_switches, c.nics, c.nic_gbps, c.rails, levels, c.oversubscription,
      c.core_oversubscription, c.nodes);
  const auto read = clusters::parse_cluster(text, "small.yaml", clusters::testing::from_catalog);
  if (!read) throw std::runtime_error(base::render(read.error(), false) + text);
  return std::make_shared<clusters::Cluster>(*read);
}

/// A number of the test's own stream: the k-th choice of `seed`, below `bound`.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  int below(int bound) { return static_cast<int>(base::below(static_cast<std::uint64_t>(bound), seed_, 77, next_++)); }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<int>(choices.size())));
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

inline SmallCluster random_cluster(Dice& dice) {
  SmallCluster c;
  c.nodes = dice.of({1, 2, 3, 4, 4, 6, 8});
  c.devices = dice.of({1, 2, 4, 4, 8});
  c.nics = std::min(dice.of({1, 2, 4}), c.devices);
  c.pcie_switches = dice.of({1, c.nics});
  c.rails = dice.below(2) == 1;
  c.leaf_nodes = dice.of({0, 1, 2, 3});
  if (c.leaf_nodes == 1 || c.leaf_nodes == 2) c.pod_nodes = dice.of({0, c.leaf_nodes, 2 * c.leaf_nodes});
  c.oversubscription = dice.of({1.0, 2.0, 3.0, 7.0});
  c.core_oversubscription = dice.of({1.0, 4.0});
  c.nic_gbps = dice.of({25.0, 100.0, 200.0});
  c.nvlink_gbytes = dice.of({20.0, 50.0, 250.0});
  return c;
}

/// A random mesh that fills `ranks` devices with a small model; nothing when the dice propose one that does not fit.
inline std::optional<plan::Plan> random_plan(Dice& dice, std::shared_ptr<const clusters::Cluster> cluster) {
  models::Model model = samples::tiny_gpt(4, 64 << dice.below(4));
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / 8;
  plan::PlanSpec spec;
  spec.mesh.tensor = dice.of({1, 2, 3, 4, 8});
  spec.mesh.pipeline = dice.of({1, 2, 3, 4});
  if (cluster->size() % (spec.mesh.tensor * spec.mesh.pipeline) != 0) return std::nullopt;
  spec.mesh.data = cluster->size() / (spec.mesh.tensor * spec.mesh.pipeline);
  spec.shape.micro_batch = dice.of({1, 2});
  spec.shape.batch = spec.mesh.data * spec.shape.micro_batch * dice.of({1, 2, 4});
  spec.shape.sequence = 16;
  spec.numerics.vocab_multiple = 1;
  spec.states.zero_stage = dice.below(4);
  spec.stages.order = dice.of({plan::Order::gpipe, plan::Order::one_f_one_b});
  spec.numerics.precision = dice.of({models::DType::fp32, models::DType::bf16});
  const auto made = plan::make_plan(std::make_shared<models::Model>(std::move(model)), std::move(cluster), spec);
  if (!made) return std::nullopt;
  return *made;
}

/// Every transfer overlaps with compute, or none does.
inline cost::Stack stack_that_overlaps(bool all) {
  cost::Stack stack = testing::stack("orrery-cuda");
  stack.overlap_tensor = stack.overlap_data = stack.overlap_pipeline = all;
  return stack;
}

}  // namespace orrery::sim::testing
