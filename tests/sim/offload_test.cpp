// Plans that leave the device, predicted: copies share PCIe, hide behind layers or show, the host holds what was
// counted, folding changes nothing, and the search says when leaving would help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clusters/host_paths.h"
#include "cost/estimate/estimate.h"
#include "cost/parameters/habits.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "sim/search/search.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace offload_test {

using plan::Space;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kGB = 1e9;

cost::Stack bare(const std::string& name) {
  cost::Stack stack = testing::stack(name);
  stack.memory = {};
  return stack;
}

plan::PlanSpec spec_on_host(int devices) {
  plan::PlanSpec spec;
  spec.mesh.data = devices;
  spec.shape.batch = 8 * devices;
  spec.shape.micro_batch = 4;
  spec.shape.sequence = 1024;
  spec.numerics.precision = models::DType::fp16;
  spec.stages.order = plan::Order::gpipe;
  spec.offload.activations = Space::host;
  return spec;
}

plan::Plan made(const std::string& model, const std::shared_ptr<const clusters::Cluster>& cluster,
                const plan::PlanSpec& spec) {
  auto plan = plan::make_plan(testing::model(model), cluster, spec);
  if (!plan) throw std::runtime_error(base::render(plan.error(), false));
  return *plan;
}

TEST(HostPaths, LeadOverPcieToTheNearestMemoryAndShareTheSwitch) {
  const auto cluster = testing::cluster("dgx-2");
  const clusters::HostPaths paths(*cluster);
  const clusters::HostPath path = paths.to_memory(0);
  EXPECT_EQ(path.links.size(), 3U) << "device, PCIe switch, socket, memory";
  EXPECT_DOUBLE_EQ(path.bandwidth.value, 15.75 * kGB);
  // Sixteen devices on eight switches; a socket's memory has 128 GB/s for eight of them.
  EXPECT_DOUBLE_EQ(paths.shared_to_memory().value, 15.75 * kGB / 2);
  EXPECT_EQ(paths.to_drives(0).links.size(), 2U) << "memory, socket, drives";
  EXPECT_DOUBLE_EQ(paths.shared_to_drives().value, 4 * 3.2 * kGB / 8) << "four drives a socket, eight devices";
}

TEST(Copies, TakeTheirLinkAloneAndTheirShareOfItTogether) {
  const cost::Pricing pricing(testing::cluster("dgx-2"), bare("megatron-lm"));
  const base::Bytes bytes{1.2e9};
  const double alone = pricing.copy_alone(plan::Stream::to_host, bytes).transfer.value;
  EXPECT_NEAR(alone, 0.1, 1e-4) << "12 of PCIe 3's 15.75 GB/s";
  EXPECT_NEAR(pricing.copy_time(plan::Stream::to_host, bytes).value, 1.2 / (15.75 / 2 * 0.96), 1e-3);
  const double read = pricing.copy_alone(plan::Stream::from_nvme, bytes).transfer.value;
  const double write = pricing.copy_alone(plan::Stream::to_nvme, bytes).transfer.value;
  EXPECT_NEAR(read, 1.2 / (4 * 3.2 * 0.9), 1e-4);
  EXPECT_NEAR(write / read, 3.2 / 2, 1e-6) << "drives write more slowly";
}

TEST(Copies, OfCpuRanksTakeTheirParameters) {
  cost::Calibration fitted;
  fitted.set("network.copy.latency", 1e-5, "test");
  fitted.set("network.copy.bandwidth", 2e9, "test");
  fitted.set("network.copy.file_bandwidth", 5e8, "test");
  const cost::Pricing pricing(testing::cluster("localhost-2"), bare("orrery-cpu"), {fitted});
  const double dispatch = pricing.calibration().at("stack.dispatch_overhead");
  EXPECT_NEAR(pricing.copy_time(plan::Stream::to_host, base::Bytes{1e6}).value, 1e-5 + 5e-4 + dispatch, 1e-12);
  EXPECT_NEAR(pricing.copy_time(plan::Stream::from_nvme, base::Bytes{1e6}).value, 1e-5 + 2e-3 + dispatch, 1e-12);
}

TEST(Offload, TwoDevicesOnOneSwitchCopyMoreSlowlyThanOneAlone) {
  const auto one = testing::cluster("dgx-2", 1), two = testing::cluster("dgx-2", 2);
  const auto copies = [](const std::shared_ptr<const clusters::Cluster>& cluster, int devices) {
    const cost::Pricing pricing(cluster, bare("megatron-lm"));
    const Simulation run = simulate(made("gpt2-124m", cluster, spec_on_host(devices)), pricing);
    double time = 0, bytes = 0;
    for (const cost::CommunicationRow& row : run.prediction.communication)
      if (row.operation == "to_host") time = row.time_s, bytes = row.bytes;
    EXPECT_GT(bytes, 0);
    return std::make_pair(time, bytes);
  };
  const auto [alone, bytes] = copies(one, 1);
  const auto [together, same] = copies(two, 2);
  EXPECT_DOUBLE_EQ(bytes, same);
  EXPECT_GT(together, 1.3 * alone);
  EXPECT_LT(together, 2.1 * alone);
}

TEST(Offload, FoldingChangesNothing) {
  const auto cluster = testing::cluster("dgx-2", 4);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  const plan::Plan plan = made("gpt2-124m", cluster, spec_on_host(4));
  const Simulation folded = simulate(plan, pricing), all = simulate(plan, pricing, {.every_rank = true});
  EXPECT_DOUBLE_EQ(folded.prediction.step_time_s, all.prediction.step_time_s);
  EXPECT_LT(folded.classes, all.classes);
}

TEST(Offload, TheBytesThatLeaveComeBackAndTheHostHoldsThem) {
  const auto cluster = testing::cluster("dgx-2", 2);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  plan::PlanSpec spec = spec_on_host(2);
  const cost::Prediction there = simulate(made("gpt2-124m", cluster, spec), pricing).prediction;
  double out = 0, in = 0;
  for (const cost::CommunicationRow& row : there.communication) {
    if (row.operation == "to_host") out = row.bytes;
    if (row.operation == "from_host") in = row.bytes;
  }
  EXPECT_DOUBLE_EQ(out, in);
  // GPipe: both micro-batches of a rank are on the host before the first comes back.
  EXPECT_NEAR(there.memory.front().host, out, 0.001 * out);
  spec.offload = {};
  const cost::Prediction here = simulate(made("gpt2-124m", cluster, spec), pricing).prediction;
  EXPECT_LT(there.memory_peak_bytes, 0.8 * here.memory_peak_bytes);
  EXPECT_GE(there.step_time_s, here.step_time_s);
  EXPECT_EQ(here.breakdown.copies, 0);
}

TEST(Offload, TheClosedFormCountsTheHostsMemoryAsTheScheduleDoes) {
  const auto cluster = testing::cluster("dgx-2", 4);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  for (const int pipeline : {1, 2, 4}) {
    for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::full}) {
      plan::PlanSpec spec = spec_on_host(4 / pipeline);
      spec.mesh.pipeline = pipeline;
      spec.recomputation.what = recompute;
      spec.stages.order = plan::Order::one_f_one_b;
      spec.shape.batch = 64;
      const plan::Plan plan = made("gpt2-124m", cluster, spec);
      const cost::Prediction replayed = simulate(plan, pricing).prediction;
      cost::Estimator estimator(testing::model("gpt2-124m"), pricing);
      for (int stage = 0; stage < pipeline; ++stage) {
        const double host = replayed.memory[static_cast<std::size_t>(stage)].host;
        EXPECT_NEAR(estimator.memory(plan, plan::StageId(stage)).host, host, 0.01 * host)
            << plan::describe(spec) << ", " << stage;
      }
    }
  }
}

// ZeRO-Offload as it was published: fp16, all but the masters' 16-bit copies on the host.
TEST(Offload, OfTheOptimizerInFp16IsTheSameInClosedFormAndReplayed) {
  const auto cluster = testing::cluster("dgx-2", 4);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  cost::Estimator estimator(testing::model("gpt2-124m"), pricing);
  for (const Space where : {Space::host, Space::nvme})
    for (const int zero : {0, 1, 2, 3}) {
      plan::PlanSpec spec = spec_on_host(4);
      spec.stages.order = plan::Order::one_f_one_b;
      spec.offload = {Space::device, where, Space::device, 1};
      spec.states.zero_stage = zero;
      SCOPED_TRACE(plan::describe(spec));
      const plan::Plan plan = made("gpt2-124m", cluster, spec);
      const cost::Prediction replayed = simulate(plan, pricing).prediction;
      const cost::Estimate closed = estimator.estimate(plan);
      const cost::MemoryRow& row = replayed.memory.front();
      std::printf(
          "[ offload  ] %s ZeRO %d: %.1f ms, closed %+.1f %%; device %.0f MB %+.1f %%, host %.0f MB, files %.0f MB\n",
          plan::name_of(where), zero, 1e3 * replayed.step_time_s, 100 * (closed.step_time / replayed.step_time_s - 1),
          row.total / 1e6, 100 * (closed.memory_peak / row.total - 1), row.host / 1e6, row.nvme / 1e6);
      EXPECT_NEAR(closed.memory_peak, row.total, 0.02 * row.total);
      const cost::StageMemory memory = estimator.memory(plan, plan::kFirstStage);
      EXPECT_NEAR(memory.host, row.host, 0.02 * row.host);
      EXPECT_NEAR(memory.nvme, row.nvme, 0.001 * row.nvme);
      EXPECT_EQ(row.nvme > 0, where == Space::nvme);
      EXPECT_NEAR(closed.step_time, replayed.step_time_s, 0.02 * replayed.step_time_s);
      // Gradients in fp16 on the host, three states in fp32, and on their way the table's values for computing.
      if (where == Space::host && zero == 0) {
        EXPECT_NEAR(row.host, (2 + 12) * 124.5e6 + 2 * (50304 + 1024) * 768, 0.01 * row.host);
      }
    }
}

// What lives at the end of such a step is read off its lowered block, on every stage and in every memory.
TEST(Offload, OfStatesAndParametersNeedsInClosedFormWhatIsPlaced) {
  const auto cluster = testing::cluster("dgx-2", 8);
  const cost::Pricing pricing(cluster, bare("generic-eager"));
  for (const char* name : {"gpt2-124m", "mixtral-8x7b"})
    for (const Space states : {Space::device, Space::host, Space::nvme})
      for (const Space parameters : {Space::device, Space::host, Space::nvme})
        for (const int zero : {0, 1, 3})
          for (const int pipeline : {1, 4}) {
            auto model = std::make_shared<models::Model>(*testing::model(name));
            model->layers = 12;
            model->experts.aux_coefficient = 0;
            plan::PlanSpec spec = spec_on_host(8 / pipeline);
            spec.mesh.pipeline = pipeline;
            spec.shape.micro_batch = 1;
            spec.stages.order = plan::Order::one_f_one_b;
            spec.offload = {Space::device, states, parameters, 1};
            spec.states.zero_stage = zero;
            const auto plan = plan::make_plan(model, cluster, spec);
            if (!plan || !spec.offload.any()) continue;  // a combination that is refused
            SCOPED_TRACE(std::string(name) + ", " + plan::describe(spec));
            cost::Estimator estimator(model, pricing);
            const plan::Schedule schedule = plan::lower(*plan, cost::lower_options(pricing.stack()));
            for (const plan::StageId stage : spec.mesh.stages()) {
              const plan::Placement placed = plan::sizes_of(schedule.classes[stage.index()]);
              const cost::StageMemory memory = estimator.memory(*plan, stage);
              const double device = memory.total() - memory.software;
              EXPECT_NEAR(device, static_cast<double>(placed.arena_bytes), 1e-3 * device) << stage.number();
              const auto bytes = [&](Space space) { return static_cast<double>(placed.arena_bytes_of(space)); };
              EXPECT_EQ(memory.nvme, bytes(Space::nvme)) << stage.number();
              // What passes read from files goes through the host, too, which is still a rule of thumb.
              if (parameters != Space::nvme) {
                EXPECT_EQ(memory.host, bytes(Space::host)) << stage.number();
              }
            }
          }
}

// The end of such a step is priced from its lowered block, on the clocks of one rank, so that only other ranks could
// make a difference; here all do the same.
TEST(Offload, EndsAStepInClosedFormAsReplayed) {
  const auto cluster = testing::cluster("dgx-2", 4);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  cost::Estimator estimator(testing::model("gpt2-124m"), pricing);
  for (const Space states : {Space::device, Space::host, Space::nvme})
    for (const Space parameters : {Space::device, Space::host, Space::nvme})
      for (const int zero : {0, 3}) {
        if (states == Space::device && parameters == Space::device) continue;
        plan::PlanSpec spec = spec_on_host(4);
        spec.shape.batch = 16;  // a single pass, so that its end counts
        spec.stages.order = plan::Order::one_f_one_b;
        spec.offload = {Space::device, states, parameters, 1};
        spec.states.zero_stage = zero;
        SCOPED_TRACE(plan::describe(spec));
        const plan::Plan plan = made("gpt2-124m", cluster, spec);
        const cost::Prediction replay = simulate(plan, pricing).prediction;
        const cost::Breakdown& replayed = replay.breakdown;
        const cost::Estimate closed = estimator.time(plan);
        EXPECT_NEAR(closed.step_time, replay.step_time_s, 0.02 * replay.step_time_s);
        EXPECT_NEAR(closed.breakdown.optimizer, replayed.optimizer, 0.05 * replay.step_time_s);
      }
}

// These stacks move no gradient until it is needed: copies that wait for sums are what needs them.
TEST(Offload, OfTheOptimizerEndsAStepWhereNoSumMovesByItself) {
  const auto cluster = testing::cluster("hgx-h100-roce", 16);
  for (const char* stack : {"deepspeed", "megatron-zero-2020", "megatron-deepspeed-2022"}) {
    SCOPED_TRACE(stack);
    const cost::Pricing pricing(cluster, bare(stack));
    EXPECT_FALSE(pricing.overlaps(plan::Stream::data));
    plan::PlanSpec spec = spec_on_host(16);
    spec.numerics.precision = models::DType::bf16;
    spec.stages.order = plan::Order::one_f_one_b;
    spec.states.zero_stage = 1;
    spec.states.zero_group = 8;
    spec.offload = {Space::device, Space::host, Space::device, 1};
    const plan::Plan plan = made("gpt2-124m", cluster, spec);
    const double replayed = simulate(plan, pricing).prediction.step_time_s;
    cost::Estimator estimator(testing::model("gpt2-124m"), pricing, shared_links(pricing));
    EXPECT_NEAR(estimator.time(plan).step_time, replayed, 0.05 * replayed);
  }
}

// Where copies take longer than computing, one pass's still leave while the next one's come.
TEST(Offload, TakesNoLessThanItsBoundWhereCopiesOfTwoPassesCross) {
  const auto cluster = testing::cluster("dgx-2", 8);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  double tightest = 0;
  for (const char* name : {"gpt2-124m", "llama3-8b"})
    for (const int pipeline : {1, 2, 4})
      for (const plan::Order order : {plan::Order::gpipe, plan::Order::one_f_one_b})
        for (const Space parameters : {Space::device, Space::host}) {
          auto model = std::make_shared<models::Model>(*testing::model(name));
          model->layers = 8;
          plan::PlanSpec spec = spec_on_host(8 / pipeline);
          spec.mesh.pipeline = pipeline;
          spec.shape.batch = 64;
          spec.shape.micro_batch = 1;
          spec.stages.order = order;
          spec.offload.parameters = parameters;
          const auto plan = plan::make_plan(model, cluster, spec);
          ASSERT_TRUE(plan) << base::render(plan.error(), false);
          cost::Estimator estimator(model, pricing);
          const double least = estimator.least_time(*plan), time = estimator.time(*plan).step_time;
          EXPECT_LE(least, (1 + 1e-9) * time) << name << ", " << plan::describe(spec);
          tightest = std::max(tightest, least / time);
          std::printf("[ bound    ] %s, %s: %.3f\n", name, plan::describe(spec).c_str(), least / time);
        }
  EXPECT_GT(tightest, 0.9) << "a bound that says nothing never exceeds";
}

// Eight stages of one node share what leads to its memory: alone, each would copy several times as fast.
TEST(Offload, OfStagesThatShareANodesLinksTakesAsLongInClosedFormAsReplayed) {
  const auto cluster = testing::cluster("pcie-a100-80gb", 8);
  const cost::Pricing pricing(cluster, bare("megascale-2024"));
  for (const char* name : {"falcon-h1-0.5b", "llama3-8b"})
    for (const Space states : {Space::device, Space::host})
      for (const Space parameters : {Space::device, Space::host}) {
        auto model = std::make_shared<models::Model>(*testing::model(name));
        model->layers = 8;
        plan::PlanSpec spec = spec_on_host(1);
        spec.mesh.pipeline = 8;
        spec.shape.batch = 96;
        spec.numerics.precision = models::DType::bf16;
        spec.stages.order = plan::Order::one_f_one_b;
        spec.offload = {Space::host, states, parameters, 1};
        const auto plan = plan::make_plan(model, cluster, spec);
        ASSERT_TRUE(plan) << base::render(plan.error(), false);
        SCOPED_TRACE(std::string(name) + ", " + plan::describe(spec));
        const double replayed = simulate(*plan, pricing, {.spans = false}).prediction.step_time_s;
        cost::Estimator estimator(model, pricing, shared_links(pricing));
        EXPECT_NEAR(estimator.time(*plan).step_time, replayed, 0.03 * replayed);
        std::printf("[ closed   ] %s, %s: %+.1f %%\n", name, plan::describe(spec).c_str(),
                    100 * (estimator.time(*plan).step_time / replayed - 1));
        EXPECT_LE(estimator.least_time(*plan), (1 + 1e-9) * estimator.time(*plan).step_time);
      }
}

// A stage of four nodes reduces its gradients over trees, of whose links each node has other shares: ranks copy most
// slowly where most of them cross their PCIe, and all wait for these in the next reduction.
TEST(Offload, BesideReductionsOverTreesIsAsSlowAsOnTheNodeThatTheyCrossMost) {
  const auto cluster = testing::cluster("hgx-h100-roce", 64);
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  auto model = std::make_shared<models::Model>(*testing::model("gptj-6b"));
  model->layers = 12;
  for (const bool overlap : {false, true}) {
    plan::PlanSpec spec = spec_on_host(32);
    spec.mesh.pipeline = 2;
    spec.shape.batch = 32;
    spec.shape.micro_batch = 1;
    spec.shape.sequence = 2048;
    spec.numerics.precision = models::DType::bf16;
    spec.states.overlap_gradients = overlap;
    spec.offload = {Space::device, Space::device, Space::host, 1};
    const auto plan = plan::make_plan(model, cluster, spec);
    ASSERT_TRUE(plan) << base::render(plan.error(), false);
    SCOPED_TRACE(plan::describe(spec));
    const double replayed = simulate(*plan, pricing, {.spans = false}).prediction.step_time_s;
    cost::Estimator estimator(model, pricing, shared_links(pricing));
    EXPECT_NEAR(estimator.time(*plan).step_time, replayed, 0.01 * replayed);
  }
}

// The gradients of a layer's experts are much larger than what stages send: beside these they leave no holes as large.
TEST(Offload, OfActivationsAndStatesNeedsLittleMoreThanLivesAndTheClosedFormSaysSo) {
  const auto cluster = testing::cluster("gb200-nvl64", 32);
  const cost::Pricing pricing(cluster, bare("generic-eager"));
  for (const char* name : {"glm-5", "deepseek-v3"})
    for (const int modules : {0, 1}) {
      auto model = std::make_shared<models::Model>(*testing::model(name));
      model->layers = 12;
      model->experts.aux_coefficient = 0;
      model->further.modules = modules;
      plan::PlanSpec spec = spec_on_host(1);
      spec.mesh.tensor = 4, spec.mesh.pipeline = 8, spec.mesh.expert = 2, spec.mesh.expert_tensor = 1;
      spec.mesh.sequence_parallel = true;
      spec.shape.batch = 16;
      spec.numerics.precision = models::DType::bf16;
      spec.stages.order = plan::Order::one_f_one_b;
      spec.offload.optimizer = Space::host;
      const auto plan = plan::make_plan(model, cluster, spec);
      ASSERT_TRUE(plan) << base::render(plan.error(), false);
      SCOPED_TRACE(std::string(name) + ", " + plan::describe(spec));
      const double replayed = simulate(*plan, pricing, {.spans = false}).prediction.memory_peak_bytes;
      cost::Estimator estimator(model, pricing, shared_links(pricing));
      EXPECT_NEAR(estimator.memory_peak(*plan) / replayed, 1, 1e-6);
      for (const plan::RankClass& stage : plan::lower(*plan, cost::lower_options(pricing.stack())).classes) {
        const plan::Placement placed = plan::sizes_of(stage);
        EXPECT_LT(10 * placed.arena_bytes, 11 * placed.peak_live_bytes) << "stage " << stage.stage.number();
      }
    }
}

TEST(Search, LeavesTheDeviceOnlyWhenAskedAndSaysWhenItWouldHelp) {
  const auto cluster = testing::cluster("dgx-2", 1);
  auto model = std::make_shared<models::Model>(*testing::model("gpt2-124m"));
  const cost::Pricing pricing(cluster, bare("megatron-lm"));
  plan::Job job;
  job.batch = 64;
  job.sequence = 1024;
  job.precision = models::DType::fp16;
  job.bounds.shape.micro_batch = {64};
  job.bounds.recomputation.what = {plan::Recompute::none};
  model->layers = 24;
  const cost::SearchResult closed = search(model, cluster, job, pricing);
  ASSERT_TRUE(closed.plans.empty()) << "the case is to be too large for the device";
  EXPECT_THAT(closed.nearest,
              Contains(::testing::AllOf(HasSubstr("offload would make a plan possible"), HasSubstr("activations"))));
  job.bounds.offload.activations = {Space::device, Space::host};
  const cost::SearchResult open = search(model, cluster, job, pricing);
  ASSERT_FALSE(open.plans.empty());
  EXPECT_EQ(open.plans.front().spec.offload.activations, Space::host);
}

}  // namespace offload_test
}  // namespace orrery::sim
