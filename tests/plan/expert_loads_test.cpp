// Loads of experts: what a job says of them, what a run's log says, and what of it a plan takes.
#include "plan/spec/expert_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/layers/expand.h"
#include "models/layers/expert_slots.h"
#include "plan/schedule/orders.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace expert_loads_test {

using ::testing::HasSubstr;

const std::string kMixtureJob = "model: tiny-moe\ncluster: localhost-2\nbatch: 8\n";

Job loads_job(const std::string& more) {
  auto job = parse_job(kMixtureJob + more, "job.yaml");
  EXPECT_TRUE(job) << (job ? "" : base::render(job.error(), false));
  return job ? *job : Job();
}

std::string loads_error(const std::string& more) {
  const auto job = parse_job(kMixtureJob + more, "job.yaml");
  return job ? "" : base::render(job.error(), false);
}

TEST(ExpertLoads, AreBalancedALawOrARuns) {
  EXPECT_EQ(loads_job("").expert_loads, ExpertLoads());
  EXPECT_EQ(loads_job("expert_loads: balanced\n").expert_loads, ExpertLoads());
  EXPECT_EQ(loads_job("expert_loads: {zipf: 0.7}\n").expert_loads.zipf, 0.7);
  EXPECT_EQ(loads_job("expert_loads: {from: runs/first}\n").expert_loads.from, "runs/first");
  for (const char* said : {"expert_loads: {zipf: 0.7}\n", "expert_loads: {from: runs/first}\n", ""}) {
    const Job job = loads_job(said);
    const auto again = parse_job(write_job(job), "again.yaml");
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(again->expert_loads, job.expert_loads) << said;
  }
  EXPECT_THAT(loads_error("expert_loads: even\n"), HasSubstr("job.yaml:4:15"));
  EXPECT_THAT(loads_error("expert_loads: {zipf: 1, from: run}\n"), HasSubstr("E0121"));
  EXPECT_THAT(loads_error("expert_loads: {}\n"), HasSubstr("E0121"));
  EXPECT_THAT(loads_error("expert_loads: {zipf: -1}\n"), HasSubstr("job.yaml:4:22"));
}

TEST(ExpertLoads, AreTheFullestRanksOverTheMean) {
  const models::Experts four{.count = 4, .chosen = 1};
  // 1, 1/2, 1/3 and 1/4 of 25/12: an expert a rank.
  EXPECT_NEAR(fullest_of({.zipf = 1, .from = {}, .layers = {}}, four, 4).mean, 4 * 12.0 / 25, 1e-12);
  EXPECT_EQ(fullest_of({.zipf = 0, .from = {}, .layers = {}}, four, 4), (Fullest{1, 1}));
  EXPECT_EQ(fullest_of({.zipf = 1, .from = {}, .layers = {}}, four, 1), (Fullest{1, 1})) << "nobody to wait for";
  // Measured ones stand where their experts are: 3 + 1 beside 2 + 2, and all on the second rank.
  const ExpertLoads measured{.zipf = {}, .from = "run", .layers = {{3, 1, 2, 2}, {0, 0, 5, 3}}};
  EXPECT_EQ(fullest_of(measured, four, 2), (Fullest{1.5, 2}));
  EXPECT_EQ(fullest_of(measured, four, 4), (Fullest{(1.5 + 2.5) / 2, 2.5}));
}

TEST(ExpertLoads, DecideWhatAPlanTakesUnlessItIsBounded) {
  const models::Experts four{.count = 4, .chosen = 1};
  const auto taken = [&](Job job, std::vector<std::vector<double>> layers) {
    job.expert_loads.layers = std::move(layers);
    PlanSpec spec;
    spec.mesh.expert = 4;
    take_loads(spec, job, four);
    return std::pair(spec.tokens.imbalance, spec.tokens.bound);
  };
  EXPECT_EQ(taken(loads_job(""), {}), std::pair(1.0, 2.0));
  EXPECT_EQ(taken(loads_job("expert_loads: {from: run}\n"), {{1, 1, 1, 1}, {9, 1, 1, 1}}), std::pair(2.0, 3.0))
      << "there is room for the fullest";
  EXPECT_EQ(taken(loads_job("expert_loads: {from: run}\nplan: {expert_imbalance: 1.25, expert_bound: 1.5}\n"),
                  {{9, 1, 1, 1}}),
            std::pair(1.25, 1.5));
}

models::Model mixture_of(std::int64_t count, std::int64_t chosen) {
  models::Model m = samples::tiny_gpt();
  m.experts = {.count = count, .chosen = chosen, .hidden = 16};
  return m;
}

PlanSpec over(int expert) {
  PlanSpec spec;
  spec.mesh.data = spec.mesh.expert = expert;
  spec.shape = {.batch = 16, .micro_batch = 2, .sequence = 16};
  return spec;
}

/// Of a block under this spec: the rows of a slot, and the bytes of its activations that are in slots.
struct SlotsOfBlock {
  std::int64_t capacity = 0;
  double bytes = 0;
};
SlotsOfBlock slots_of(const models::Model& m, const PlanSpec& spec, double bound) {
  const models::LayerProgram block = models::expand(m, models::LayerKind::block, 0,
                                                    {.batch = spec.shape.micro_batch,
                                                     .sequence = spec.shape.sequence,
                                                     .expert = spec.mesh.expert,
                                                     .expert_bound = bound});
  SlotsOfBlock out;
  for (const models::Part& part : block.forward)
    for (const models::Op& op : part.ops)
      if (op.kind == models::OpKind::place_rows) out.capacity = op.capacity;
  for (const models::TensorId t : block.tensors.keys()) {
    const models::Tensor& one = block.tensors[t];
    if (one.name.starts_with("experts.") && one.role == models::TensorRole::activation &&
        one.shape.front() == spec.mesh.expert * out.capacity)
      out.bytes += static_cast<double>(one.bytes());
  }
  return out;
}

TEST(ExpertBound, AlwaysHoldsWhereEveryTokenMayChooseTheSameRank) {
  using models::expert_slot;
  const models::Experts eight{.count = 8, .chosen = 2};
  const auto bound = [&](const models::Experts& experts, int ranks) {
    return expert_slot(experts, {.rows = 32, .sequences = 2, .tokens = 16, .ranks = ranks}).bound_that_holds();
  };
  EXPECT_EQ(bound(eight, 2), 2) << "both of a token's experts may be on one rank";
  EXPECT_EQ(bound(eight, 4), 4);
  EXPECT_EQ(bound(eight, 8), 4) << "a rank has one expert, which a token chooses once";
  EXPECT_EQ(bound({.count = 8, .chosen = 1}, 4), 4);
  // An expert takes 1.5 x 2 x 16 / 8 = 6 tokens of a sequence: of two sequences a rank with two experts gets 24 rows,
  // a balanced router sends it 16.
  EXPECT_EQ(bound({.count = 8, .chosen = 2, .capacity_factor = 1.5}, 4), 1.5) << "more tokens are dropped";
  for (const int ranks : {2, 4, 8}) {
    const PlanSpec spec = over(ranks);
    const models::Model m = mixture_of(8, 2);
    const std::int64_t tokens = spec.shape.micro_batch * spec.shape.sequence;
    const std::int64_t most = tokens * std::min<std::int64_t>(2, 8 / ranks);
    EXPECT_EQ(slots_of(m, spec, bound(eight, ranks)).capacity, most);
    EXPECT_EQ(slots_of(m, spec, 1000).capacity, most) << "more is never needed";
  }
}

TEST(ExpertBound, TakesTheMemoryOfTheBlocksOwnSlots) {
  models::Model m = mixture_of(8, 2);
  for (const models::Activation activation : {models::Activation::gelu, models::Activation::swiglu}) {
    m.activation = activation;
    const double block = slots_of(m, over(4), 1000).bytes;
    EXPECT_EQ(slot_bytes_that_hold(over(4), m), block * (4 + 1)) << "four layers, and one in backward";
  }
  m.experts.capacity_factor = 1;
  EXPECT_EQ(slot_bytes_that_hold(over(4), m), slots_of(m, over(4), 1000).bytes * (4 + 1)) << "tokens are dropped";
}

TEST(ExpertBound, CountsNoFewerPassesThanAnyOrderHolds) {
  for (const Order order :
       {Order::one_f_one_b, Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v, Order::dualpipe})
    for (const int chunks : {1, 2, 3})
      for (const int pipeline : {2, 4, 8})
        for (const int micro_batches : {8, 16, 32}) {
          PlanSpec spec;
          spec.mesh.pipeline = pipeline;
          spec.shape.batch = micro_batches;
          spec.stages.order = order;
          spec.stages.virtual_stages = chunks;
          if (chunks != (spec.stages.folds() ? 2 : 1) && order != Order::one_f_one_b) continue;
          if (order == Order::one_f_one_b && chunks == 1) continue;  // orders_test has it
          const auto stages = moves_of(spec, micro_batches);
          std::int64_t most = 0;
          for (const std::vector<Move>& moves : stages) {
            std::int64_t held = 0;
            for (const Move& move : moves) {
              if (move.kind == Move::Kind::forward) most = std::max(most, ++held);
              if (move.kind == (spec.stages.splits_backward() ? Move::Kind::weights : Move::Kind::backward)) --held;
            }
          }
          EXPECT_LE(most, most_passes_held(spec)) << name_of(order) << ", " << pipeline << " stages of " << chunks
                                                  << " chunks, " << micro_batches << " micro-batches";
          EXPECT_LE(most_passes_held(spec), most + 2) << name_of(order) << ", " << pipeline << ", " << micro_batches;
        }
}

TEST(ExpertBound, LeftFreeAlwaysHoldsWhereItsSlotsFitAnEighthOfTheMemory) {
  const models::Model m = mixture_of(8, 2);
  clusters::Device device = samples::cpu_cluster(4).device();
  const auto bound = [&](const Job& job, PlanSpec spec) {
    take_loads(spec, job, m.experts);
    take_room(spec, job, m, device);
    return spec.tokens.bound;
  };
  EXPECT_EQ(bound(loads_job(""), over(4)), 4);
  EXPECT_EQ(bound(loads_job(""), over(2)), 2);
  EXPECT_EQ(bound(loads_job(""), over(1)), 2) << "all rows stay on the rank";
  EXPECT_EQ(bound(loads_job("plan: {expert_bound: 3}\n"), over(4)), 3) << "what a job bounds stays";
  const double bytes = slot_bytes_that_hold(over(4), m);
  // 32 tokens of 2 choices, 4 times as many as a balanced router sends; 4 x 32 and 2 x 16 columns in fp32; the 4
  // layers' of one micro-batch, and one that is in backward.
  EXPECT_EQ(bytes, (4 + 1) * 32 * 2 * 4 * (4 * 32 + 2 * 16) * 4);
  device.memory = base::Bytes{8 * bytes};
  EXPECT_EQ(bound(loads_job(""), over(4)), 4);
  device.memory = base::Bytes{8 * bytes - 1};
  EXPECT_EQ(bound(loads_job(""), over(4)), 2);
  PlanSpec many = over(4);
  many.stages.order = Order::gpipe, many.shape.batch = 32;
  EXPECT_EQ(slot_bytes_that_hold(many, m), bytes / 5 * (4 * 4 + 1)) << "GPipe keeps all micro-batches";
}

constexpr models::Experts kFourExperts{.count = 4, .chosen = 2, .hidden = 8};

base::Result<std::vector<std::vector<double>>> loads_in(const std::string& text) {
  return loads_of_log(text, "run/metrics.jsonl", kFourExperts, 2);
}
std::string log_fault(const std::string& text) {
  const auto loads = loads_in(text);
  return loads ? "" : base::render(loads.error(), false);
}

TEST(ExpertLoads, OfARunAreThoseOfItsLog) {
  const std::string step =
      R"({"step":1,"loss":2.5,"expert_load":{"0":{"fullest":1.5,"tokens":[3,1,2,2]},"1":{"tokens":[0,0,5,3]}}})";
  const auto loads = loads_in(step + "\n\n{\"step\":2,\"loss\":2.4}\n" + step + "\n");
  ASSERT_TRUE(loads) << base::render(loads.error(), false);
  EXPECT_EQ(*loads, (std::vector<std::vector<double>>{{3, 1, 2, 2}, {0, 0, 5, 3}, {3, 1, 2, 2}, {0, 0, 5, 3}}));
  std::string many;
  for (int i = 0; i < 200; ++i) many += step + "\n";
  EXPECT_EQ(loads_in(many)->size(), 2 * 64U) << "the last steps";

  EXPECT_THAT(log_fault("{\"step\":1}\n"), HasSubstr("none of its steps records the loads of its experts"));
  EXPECT_THAT(log_fault(step + "\n{\"step\":2,\n"), HasSubstr("run/metrics.jsonl:2:"));
  EXPECT_THAT(log_fault(R"({"expert_load":{"0":{"tokens":[1,1,1,1]}}})"), HasSubstr("loads of 1 layer,"));
  EXPECT_THAT(log_fault(R"({"expert_load":{"0":{"tokens":[1,1]},"1":{"tokens":[1,1]}}})"),
              HasSubstr("loads of 2 experts"));
  EXPECT_THAT(log_fault(R"({"expert_load":{"0":{"fullest":2},"1":{"fullest":2}}})"), HasSubstr("not per expert"));
  EXPECT_THAT(log_fault(R"({"expert_load":{"0":{"tokens":[-1,1,1,1]},"1":{"tokens":[1,1,1,1]}}})"), HasSubstr("E0128"));
}

}  // namespace expert_loads_test
}  // namespace orrery::plan
