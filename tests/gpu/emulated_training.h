#pragma once
/// Models trained on emulated devices, and beside the CPU backend: what tests of whole trainings share.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "exec/cuda/nccl_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {

/// The trial with the CUDA backend in every rank and, among several, NCCL or staging through the host.
inline testing::Trial with_devices(testing::Trial trial, bool nccl, const cuda::Products::Options& products) {
  trial.devices = [nccl, products](Transport& host) {
    testing::Devices devices;
    auto backend = std::make_unique<cuda::CudaBackend>(0, make_cpu_backend(1), products);
    devices.transport = cuda::make_cuda_transport(*backend, host, {.nccl = nccl, .start_timeout_s = 20});
    EXPECT_EQ(devices.transport->name() == "nccl", nccl && host.size() > 1) << devices.transport->name();
    devices.backend = std::move(backend);
    return devices;
  };
  return trial;
}

inline const cuda::Products::Options kUntuned = {.plan_file = {}, .tune_above_flops = 1e12};

inline testing::Outcome on_devices(testing::Trial trial, bool nccl = true,
                                   const cuda::Products::Options& products = kUntuned) {
  return testing::train(with_devices(std::move(trial), nccl, products));
}

/// Its first two gradients kept, each use of memory held to what lives there.
inline testing::Trial short_trial(std::int64_t steps, testing::Trial trial = testing::golden_trial("cosine_clipped")) {
  trial.steps = steps;
  trial.gradients_at = {0, 1};
  trial.check = Arena::Check::overlaps;
  return trial;
}

/// Of relative differences.
struct Bounds {
  double loss, gradients, weights;
};

inline void expect_near(const testing::Outcome& ours, const testing::Outcome& theirs, const Bounds& bounds) {
  ASSERT_EQ(ours.steps.size(), theirs.steps.size());
  EXPECT_LE(testing::loss_distance(ours, theirs), bounds.loss);
  for (const auto& [step, gradients] : theirs.gradients)
    EXPECT_LE(testing::relative_distance(ours.gradients.at(step), gradients), bounds.gradients) << step;
  EXPECT_LE(testing::relative_distance(ours.weights, theirs.weights), bounds.weights);
}
inline void expect_same_bits(const testing::Outcome& ours, const testing::Outcome& theirs) {
  ASSERT_EQ(ours.steps.size(), theirs.steps.size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, theirs.steps[i].loss) << "step " << i;
    EXPECT_EQ(ours.steps[i].skipped, theirs.steps[i].skipped) << "step " << i;
    if (!theirs.steps[i].skipped) {
      EXPECT_EQ(ours.steps[i].gradient_norm, theirs.steps[i].gradient_norm) << "step " << i;
    }
  }
  for (const auto& [name, tensor] : theirs.weights) EXPECT_EQ(ours.weights.at(name).values, tensor.values) << name;
}

/// How streams share the emulated device, while it lives.
class OrderOfStreams {
 public:
  explicit OrderOfStreams(unsigned order) { emulation::stream_order() = order; }
  ~OrderOfStreams() { emulation::stream_order() = 0; }
  OrderOfStreams(const OrderOfStreams&) = delete;
  OrderOfStreams& operator=(const OrderOfStreams&) = delete;
};
inline constexpr unsigned kOthersFirst = 1, kByChance = 7;  ///< beside 0: what is waited for first

inline void expect_memory_as_placed(const testing::Outcome& ours) {
  for (std::size_t rank = 0; rank < ours.memory.size(); ++rank) {
    EXPECT_EQ(ours.memory[rank].peak_live, ours.placements[rank].peak_live_bytes) << rank;
    EXPECT_EQ(ours.host_memory[rank].peak_live, ours.placements[rank].host.peak_live_bytes) << rank;
    EXPECT_EQ(ours.file_memory[rank].peak_live, ours.placements[rank].nvme.peak_live_bytes) << rank;
  }
}

}  // namespace orrery::exec::gpu_test
