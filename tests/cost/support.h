#pragma once
/// Small clusters and stacks with round numbers, for tests that work their expectations out by hand.
#include <memory>

#include "clusters/cluster.h"
#include "cost/parameters/stack.h"

namespace orrery::cost::testing {

/// CPU ranks: 100 GFLOP/s, 10 GB/s, 1 MB of cache.
inline std::shared_ptr<clusters::Cluster> cpu_cluster(int ranks) {
  auto cluster = std::make_shared<clusters::Cluster>();
  clusters::Device device;
  device.name = "test-core";
  device.kind = clusters::DeviceKind::cpu;
  device.peak["fp32"] = base::FlopsPerSecond{100e9};
  device.memory = base::Bytes{4e9};
  device.memory_bandwidth = base::BytesPerSecond{10e9};
  device.cache = base::Bytes{1e6};
  device.power = base::Watts{10};
  device.price = base::DollarsPerHour{3.6};
  cluster->name = "test";
  cluster->devices = {device};
  cluster->devices_per_node = ranks;
  cluster->intra = {"shared-memory", base::BytesPerSecond{5e9}, base::Seconds{1e-6}};
  return cluster;
}

inline Stack cpu_stack() {
  Stack stack;
  stack.name = "test-stack";
  stack.host_inline = true;
  stack.parameters = {{"stack.op_overhead", 1e-6, Unit::seconds, "test"},
                      {"stack.dispatch_overhead", 2e-6, Unit::seconds, "test"},
                      {"stack.step_overhead", 1e-4, Unit::seconds, "test"},
                      {"stack.context_memory", 5e7, Unit::bytes, "test"}};
  return stack;
}

}  // namespace orrery::cost::testing
