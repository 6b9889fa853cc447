/// Compression in the search: never proposed by itself, and in each way that the job names; where it gains and where
/// not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/search/search.h"
#include "sim/search/space.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace compression_search_test {

using plan::ActivationEncoding;
using plan::GradientCompression;

TEST(CompressionInTheSearch, IsNeverProposedWhereTheJobDoesNotNameIt) {
  const auto cluster = testing::cluster("localhost-4");
  plan::Job job;
  job.batch = 16, job.sequence = 64;
  for (const plan::PlanSpec& spec : space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{}))
    ASSERT_EQ(spec.compression, plan::Compression{});
  const std::size_t without = space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{}).size();
  job.bounds.compression.gradients = {GradientCompression::none, GradientCompression::bf16};
  job.bounds.compression.activations = {ActivationEncoding::none, ActivationEncoding::fp8};
  job.bounds.compression.rank = 8;
  const std::vector<plan::PlanSpec> space = space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{});
  EXPECT_EQ(space.size(), 4 * without);
  std::set<std::pair<GradientCompression, ActivationEncoding>> seen;
  for (const plan::PlanSpec& spec : space) {
    seen.emplace(spec.compression.gradients, spec.compression.activations);
    EXPECT_EQ(spec.compression.rank, 8);
  }
  EXPECT_EQ(seen.size(), 4u);
}

/// Pure data parallelism of GPT-2 on so many devices of a cluster of the catalogue.
plan::Job job_of(int devices, models::DType precision) {
  plan::Job job;
  job.batch = devices * 4;
  job.sequence = 1024;
  job.precision = precision;
  job.bounds.mesh.data = {devices};
  job.bounds.mesh.tensor = job.bounds.mesh.pipeline = {1};
  job.bounds.states.zero_stage = {0};
  job.bounds.recomputation.what = {plan::Recompute::full};
  job.bounds.shape.micro_batch = {4};
  job.bounds.states.overlap_gradients = false;
  return job;
}

cost::SearchResult search_on(const std::string& name, int devices, const plan::Job& job, const char* model) {
  const auto cluster = testing::cluster(name, devices);
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  return search(testing::model(model), cluster, job, pricing, {.top = 20});
}

/// The best step time of each way of compression.
std::map<std::pair<GradientCompression, int>, double> times(const cost::SearchResult& found) {
  std::map<std::pair<GradientCompression, int>, double> best;
  for (const cost::Prediction& p : found.plans)
    best.try_emplace({p.spec.compression.gradients, p.spec.compression.group}, p.step_time_s);
  return best;
}

// Eight devices behind one port of 100 Gb/s (p3dn), or four (p4d): an exchange of all with all puts eight messages on
// the wire where rings put one twice as large, and loses; added up by node first, the wire carries half.
TEST(CompressionInTheSearch, GainsByNodeAndLosesAllAtOnceWhereDevicesShareANodesPorts) {
  for (const auto& [name, model, precision, how] :
       {std::tuple{"aws-p3dn", "gpt2-774m", models::DType::fp32, GradientCompression::fp16},
        std::tuple{"aws-p4d", "gpt2-1558m", models::DType::bf16, GradientCompression::bf16}}) {
    SCOPED_TRACE(name);
    plan::Job job = job_of(64, precision);
    job.bounds.compression.gradients = {GradientCompression::none, how};
    auto best = times(search_on(name, 64, job, model));
    const double plain = best.at({GradientCompression::none, 0}), by_node = best.at({how, 8});
    std::printf("[ gain     ] %s: plain %.3f s, all at once %.3f s, by node %.3f s\n", name, plain, best.at({how, 0}),
                by_node);
    EXPECT_LT(by_node, plain);
    EXPECT_GT(best.at({how, 0}), plain);
  }
}

/// Four nodes of eight V100, each node with one port of so many Gb/s. The links themselves are of that rate: it is they
/// that a replay shares out.
std::shared_ptr<const clusters::Cluster> with_ports_of(int gigabits) {
  const std::string text = fmt::format(
      "name: ports-of-{0}\nlike: aws-p3dn\nnode:\n  nics: {{count: 1, bandwidth: {0} Gb/s, latency: 5 us, at: cpu}}\n",
      gigabits);
  const auto read = clusters::parse_cluster(text, "ports.yaml", clusters::testing::from_catalog);
  if (!read) throw std::runtime_error(base::render(read.error(), false));
  return std::make_shared<const clusters::Cluster>(*clusters::resized(*read, 32));
}

struct Exchanged {
  double step = 0, bytes = 0;  ///< seconds; what a rank's share of the sums is, all-reduces counted twice
};

/// Best first, so that the search's choice is `front()`.
std::vector<std::pair<GradientCompression, Exchanged>> on_ports_of(int gigabits) {
  const auto cluster = with_ports_of(gigabits);
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  plan::Job job = job_of(32, models::DType::fp32);
  job.bounds.compression.gradients = {GradientCompression::none, GradientCompression::powersgd};
  std::vector<std::pair<GradientCompression, Exchanged>> out;
  for (const cost::Prediction& p : search(testing::model("gpt2-774m"), cluster, job, pricing, {.top = 20}).plans) {
    Exchanged one{p.step_time_s, 0};
    for (const cost::CommunicationRow& row : p.communication)
      if (row.dimension == "data") one.bytes += (row.operation == "all_reduce" ? 2 : 1) * row.bytes;
    out.emplace_back(p.spec.compression.gradients, one);
  }
  return out;
}

Exchanged of(const std::vector<std::pair<GradientCompression, Exchanged>>& plans, GradientCompression how) {
  for (const auto& [kind, exchanged] : plans)
    if (kind == how) return exchanged;
  throw std::runtime_error("no such plan");
}

// What compression saves is time on the wire, which is as much longer as the wire is slower, and as there are bytes to
// send, whole or in a few columns.
TEST(CompressionInTheSearch, SavesTheTimeOfTheBytesThatItDoesNotSend) {
  const auto fast = on_ports_of(20), slow = on_ports_of(10), slower = on_ports_of(5);
  const auto longer = [](const auto& than, const auto& those, GradientCompression how) {
    return of(those, how).step - of(than, how).step;
  };
  const Exchanged whole = of(slow, GradientCompression::none), few = of(slow, GradientCompression::powersgd);
  const double wire = longer(slow, slower, GradientCompression::none);
  const double wire_of_few = longer(slow, slower, GradientCompression::powersgd);
  std::printf("[ gain     ] 10 Gb/s: plain %.3f s, PowerSGD %.3f s; half of it takes %.3f s and %.3f s more\n",
              whole.step, few.step, wire, wire_of_few);
  EXPECT_NEAR(wire, 2 * longer(fast, slow, GradientCompression::none), 0.02 * wire);
  // A ring over n nodes of one port each: 2 (n - 1)/n of the message leaves and enters every node, and no link gives
  // all of its rate.
  const double ideal = 2.0 * 3 / 4 * (whole.bytes / 2) / (10e9 / 8);
  EXPECT_GT(wire, ideal);
  EXPECT_LT(wire, 1.5 * ideal);
  EXPECT_EQ(slow.front().first, GradientCompression::powersgd);
  EXPECT_LT(few.bytes, 0.05 * whole.bytes) << "four columns of a matrix";
  EXPECT_NEAR(wire_of_few / wire, few.bytes / whole.bytes, 0.005);
  EXPECT_NEAR(whole.step - few.step, wire - wire_of_few, 0.02 * wire);
}

// In half the bits saved activations take half the memory, but for statistics, what is not a block's and the one layer
// that is decoded; a device that lacks just that much runs the plan with them alone.
TEST(CompressionInTheSearch, FitsMoreWhereActivationsWaitInFewerBits) {
  const auto found = [](double memory, ActivationEncoding how) {
    auto cluster = std::make_shared<clusters::Cluster>(*testing::cluster("dgx-a100", 8));
    if (memory > 0) cluster->devices.front().memory = base::Bytes{memory};
    const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
    plan::Job job = job_of(8, models::DType::bf16);
    job.batch = 80;
    job.bounds.shape.micro_batch = {10};
    job.bounds.recomputation.what = {plan::Recompute::none};
    job.bounds.compression.activations = {how};
    return search(testing::model("gpt2-774m"), cluster, job, pricing, {.top = 1}).plans;
  };
  const auto saved = [](const cost::Prediction& p) { return p.memory.front().by_purpose.at("activations"); };
  const auto full = found(0, ActivationEncoding::none), narrow = found(0, ActivationEncoding::fp8);
  ASSERT_FALSE(full.empty() || narrow.empty());
  EXPECT_GT(saved(full.front()), 0.4 * full.front().memory_peak_bytes) << "the case is to be one of activations";
  EXPECT_LT(saved(narrow.front()), 0.65 * saved(full.front()));
  EXPECT_GT(saved(narrow.front()), 0.5 * saved(full.front()));
  const double between = (full.front().memory_peak_bytes + narrow.front().memory_peak_bytes) / 2;
  EXPECT_TRUE(found(between, ActivationEncoding::none).empty());
  EXPECT_FALSE(found(between, ActivationEncoding::fp8).empty());
}

// The steps before PowerSGD starts are those of the plan without it, and those behind are as if it had been there from
// the start; each takes the same to the picosecond, and memory is the larger of both.
TEST(PowerSgdThatStartsLate, IsPredictedByPhase) {
  const auto cluster = testing::cluster("localhost-4");
  const cost::Pricing pricing(cluster, testing::stack("orrery-cpu"));
  for (const int zero : {0, 1})
    for (const bool early : {false, true}) {
      plan::PlanSpec spec;
      spec.mesh.data = 4, spec.shape.batch = 8, spec.shape.sequence = 32;
      spec.states.zero_stage = zero, spec.states.overlap_gradients = early;
      plan::PlanSpec plain = spec, at_once = spec;
      at_once.compression = {GradientCompression::powersgd, ActivationEncoding::none, 2, 1.5};
      spec.compression = at_once.compression;
      spec.compression.start = 50;
      SCOPED_TRACE(plan::describe(spec));
      const auto simulated = [&](const plan::PlanSpec& one, std::int64_t step) {
        const auto made = plan::make_plan(testing::model("tiny-gpt"), cluster, one);
        if (!made) throw std::runtime_error(base::render(made.error(), false));
        return simulate(*made, pricing, {.training_step = step}).prediction;
      };
      const auto first = simulated(spec, 49), late = simulated(spec, 50), steady = simulated(spec, plan::kLateStep);
      EXPECT_EQ(first.step_time_s, simulated(plain, 49).step_time_s);
      EXPECT_EQ(late.step_time_s, simulated(at_once, 0).step_time_s);
      EXPECT_EQ(steady.step_time_s, late.step_time_s);
      EXPECT_NE(first.step_time_s, late.step_time_s);
      EXPECT_EQ(first.memory_peak_bytes, late.memory_peak_bytes);
      EXPECT_GE(late.memory_peak_bytes, simulated(at_once, 0).memory_peak_bytes);
      EXPECT_GE(late.memory_peak_bytes, simulated(plain, 0).memory_peak_bytes);
    }
}

}  // namespace compression_search_test
}  // namespace orrery::sim
