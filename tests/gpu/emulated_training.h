#pragma once
/// Models trained on emulated devices, and beside the CPU backend: what tests of whole trainings share.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "exec/cuda/nccl_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {

/// The trial with the CUDA backend in every rank and, among several, NCCL or staging through the host.
inline testing::Outcome on_devices(testing::Trial trial, bool nccl = true,
                                   const cuda::Products::Options& products = {.plan_file = {},
                                                                              .tune_above_flops = 1e12}) {
  trial.devices = [nccl, products](Transport& host) {
    testing::Devices devices;
    auto backend = std::make_unique<cuda::CudaBackend>(0, make_cpu_backend(1), products);
    devices.transport = cuda::make_cuda_transport(*backend, host, {.nccl = nccl, .start_timeout_s = 20});
    EXPECT_EQ(devices.transport->name() == "nccl", nccl && host.size() > 1) << devices.transport->name();
    devices.backend = std::move(backend);
    return devices;
  };
  return testing::train(trial);
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
inline void expect_memory_as_placed(const testing::Outcome& ours) {
  for (std::size_t rank = 0; rank < ours.memory.size(); ++rank) {
    EXPECT_EQ(ours.memory[rank].peak_live, ours.placements[rank].peak_live_bytes) << rank;
    EXPECT_EQ(ours.host_memory[rank].peak_live, ours.placements[rank].host.peak_live_bytes) << rank;
  }
}

}  // namespace orrery::exec::gpu_test
