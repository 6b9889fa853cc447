// A probe of an emulated GPU: every operator of its workloads runs in every type, beside each other's memory, and the
// copies to the host and back are taken. Its times are not real.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "exec/cuda/backend.h"
#include "exec/engine/thread_transport.h"
#include "exec/probe/run_probe.h"

namespace orrery::exec {
namespace emulated_probe_test {

cuda::CudaBackend device() {
  return cuda::CudaBackend(0, make_cpu_backend(1), cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12});
}

TEST(EmulatedProbe, TimesLayersProductsStreamsAndCopies) {
  using D = models::DType;
  cuda::CudaBackend backend = device();
  const std::vector<Workload> workloads = {layers_workload({1, 32, 2, 256, 1, 16, 1, D::bf16}),
                                           layers_workload({1, 32, 2, 256, 1, 16, 1, D::fp16}),
                                           layers_workload({1, 32, 2, 256, 1, 16, 2, D::fp32}),
                                           matmul_workload(64, 64, 32, false, true, 2, D::bf16),
                                           matmul_workload(32, 32, 32, true, false, 1, D::tf32),
                                           matmul_workload(32, 32, 32, true, false, 1, D::fp8),
                                           streams_workload(4096, 1),
                                           optimizer_workload(1000, 2)};
  ThreadWorld world(1);
  const auto transport = world.transport(0);
  ProbeOptions options;
  options.budget_s = 0.01;
  options.rounds = 1;
  options.least_passes = 1;
  options.stream_bytes = 4096;
  options.most_bytes = 1 << 20;
  const Waiter waiter(wait_policy(1, 1, std::chrono::seconds(60)));
  const Measured measured = run_probe(workloads, {}, backend, *transport, waiter, options);
  EXPECT_EQ(measured.backend, "cuda");
  ASSERT_EQ(measured.workloads.size(), workloads.size());
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    double operators = 0;
    for (const OpTime& one : measured.workloads[i].ops) operators += one.count;
    EXPECT_EQ(operators, static_cast<double>(workloads[i].ops.size())) << workloads[i].name;
  }
  EXPECT_EQ(measured.copies.size(), 4U);
}

TEST(EmulatedProbe, ComputesWhatTrainingComputes) {
  for (const auto dtype : {models::DType::fp32, models::DType::bf16, models::DType::fp16}) {
    const Workload w = layers_workload({1, 32, 2, 256, 1, 16, 1, dtype});
    cuda::CudaBackend backend = device();
    const auto reference = make_cpu_backend(1);
    LoadedWorkload ours(w, backend), theirs(w, *reference);
    for (LoadedWorkload* one : {&ours, &theirs}) {
      one->fill();
      one->pass(nullptr);
    }
    const float loss = theirs.value_of("cross_entropy");
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_NEAR(ours.value_of("cross_entropy"), loss, 2e-2 * loss) << models::name_of(dtype);
  }
}

}  // namespace emulated_probe_test
}  // namespace orrery::exec
