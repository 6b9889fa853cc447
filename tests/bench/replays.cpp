// One line for each of many random plans: what the checker, the rehearsal and the replay make of it. Two builds that
// write the same lines follow the same rules. scripts/compare-replays builds and runs it.
#include <fmt/core.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cost/parameters/habits.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace {

using namespace orrery;
using sim::testing::Dice;

/// FNV-1a over 64-bit words.
class Digest {
 public:
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3ULL; }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(std::int64_t value) { add(static_cast<std::uint64_t>(value)); }
  void add(const std::string& text) {
    for (const char c : text) add(std::uint64_t{static_cast<unsigned char>(c)});
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

models::Model random_model(Dice& dice) {
  const int kind = dice.below(10);
  if (kind == 0) return *sim::testing::model("tiny-dlrm");
  models::Model model = kind == 1   ? samples::tiny_bert()
                        : kind <= 3 ? *sim::testing::model("tiny-moe")
                                    : samples::tiny_gpt(dice.of({4, 8}), 64 << dice.below(5));
  if (kind <= 3) return model;
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / 8;
  model.tied_embeddings = dice.below(2) == 1;
  return model;
}

plan::PlanSpec random_spec(Dice& dice, const models::Model& model, int ranks) {
  using plan::Order;
  plan::PlanSpec spec;
  spec.shape.sequence = 16;
  spec.numerics.vocab_multiple = 1;
  if (model.recommender) {
    spec.mesh.data = ranks;
    spec.shape.sequence = 1;
    spec.shape.micro_batch = 16;
    spec.shape.batch = spec.shape.micro_batch * ranks;
    spec.states.optimizer = plan::OptimizerKind::rowwise_adagrad;
    if (const int steps = dice.of({-1, -1, 0, 2}); steps >= 0) spec.states.staleness = steps;
    return spec;
  }
  spec.mesh.tensor = dice.of({1, 1, 2, 4});
  spec.mesh.pipeline = dice.of({1, 1, 2, 4});
  spec.mesh.context = dice.of({1, 1, 1, 2});
  if (ranks % (spec.mesh.tensor * spec.mesh.pipeline * spec.mesh.context) != 0)
    spec.mesh.tensor = spec.mesh.pipeline = spec.mesh.context = 1;
  spec.mesh.data = ranks / (spec.mesh.tensor * spec.mesh.pipeline * spec.mesh.context);
  if (model.experts.any()) spec.mesh.expert = dice.of({1, 2, 4});
  spec.shape.micro_batch = dice.of({1, 2});
  spec.shape.batch = spec.mesh.data * spec.shape.micro_batch * dice.of({1, 2, 4, 8, 60});
  spec.states.zero_stage = dice.below(4);
  spec.stages.order = dice.of({Order::gpipe, Order::one_f_one_b, Order::one_f_one_b, Order::one_f_one_b, Order::zb_h1,
                               Order::zb_h2, Order::zb_v, Order::dualpipe_v, Order::dualpipe, Order::pipedream,
                               Order::pipedream_2bw, Order::pipedream_vertical});
  if (spec.mesh.pipeline == 1) spec.stages.order = Order::one_f_one_b;
  if (spec.stages.folds()) spec.stages.virtual_stages = 2;
  if (spec.stages.asynchronous()) return spec;  // with little else
  if (spec.stages.order == Order::one_f_one_b && spec.mesh.pipeline > 1)
    spec.stages.virtual_stages = dice.of({1, 1, 2});
  spec.recomputation.what = dice.of({plan::Recompute::none, plan::Recompute::selective, plan::Recompute::full});
  spec.numerics.flash = spec.recomputation.what != plan::Recompute::selective || spec.mesh.context > 1;
  spec.states.overlap_gradients = dice.below(2) == 1;
  spec.mesh.sequence_parallel = spec.mesh.tensor > 1 && dice.below(2) == 1;
  spec.numerics.precision = dice.of({models::DType::fp32, models::DType::bf16});
  switch (dice.below(10)) {
    case 0: spec.offload.activations = plan::Space::host; break;
    case 1: spec.offload.optimizer = spec.offload.parameters = plan::Space::host; break;
    case 2: spec.offload.optimizer = plan::Space::nvme; break;
    case 3:
      spec.compression.gradients = dice.of({plan::GradientCompression::bf16, plan::GradientCompression::powersgd});
      break;
    case 4: spec.compression.activations = plan::ActivationEncoding::fp8; break;
    case 5: spec.states.staleness = dice.of({0, 2}); break;
    case 6: spec.numerics.loss_chunks = 2; break;
    default: break;
  }
  return spec;
}

std::uint64_t digest_of(const sim::Simulation& s) {
  Digest out;
  const cost::Prediction& p = s.prediction;
  const cost::Breakdown& b = p.breakdown;
  for (const double part :
       {b.forward, b.recompute, b.backward, b.optimizer, b.tensor_communication, b.exchange_communication,
        b.data_communication, b.pipeline_communication, b.copies, b.contention, b.imbalance, b.bubble, b.overhead})
    out.add(part);
  for (const cost::CommunicationRow& row : p.communication) {
    out.add(row.operation);
    for (const double value : {row.bytes, row.time_s, row.exposed_s, row.contention_s}) out.add(value);
  }
  for (const plan::Span& span : s.timeline.spans) {
    for (const std::int64_t place : {span.rank, span.at.entry, span.at.step, span.micro_batch}) out.add(place);
    for (const double time : {span.ready, span.start, span.end}) out.add(time);
  }
  out.add(s.spans_left_out);
  return out.value();
}

}  // namespace

// bench_replays [PLANS]
int main(int argc, char** argv) {
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 1000;
  const char* const stacks[] = {"orrery-cuda", "megatron-lm", "torchtitan-2024", "deepspeed"};
  double seconds = 0;
  for (std::uint64_t seed = 0, shown = 0; shown < static_cast<std::uint64_t>(wanted); ++seed) {
    Dice dice(seed);
    const auto cluster = sim::testing::make(sim::testing::random_cluster(dice));
    auto model = std::make_shared<models::Model>(random_model(dice));
    const auto plan = plan::make_plan(model, cluster, random_spec(dice, *model, cluster->size()));
    if (!plan) continue;
    const int number = dice.below(6);
    const cost::Pricing pricing(
        cluster, number < 4 ? sim::testing::stack(stacks[number]) : sim::testing::stack_that_overlaps(number == 4));
    const plan::Schedule executed = cost::lower_executed(*plan, pricing.stack());
    const std::string found =
        base::render(plan::check(executed), false) + base::render(plan::rehearse(executed), false);
    const plan::Schedule schedule = cost::lower_for(*plan, pricing.stack());
    const std::string unsound = base::render(plan::check(schedule), false);
    fmt::print("{} {} {}: {}{}", seed, pricing.stack().name, plan::describe(plan->spec()), found, unsound);
    ++shown;
    if (!unsound.empty()) continue;
    const auto begin = std::chrono::steady_clock::now();
    const sim::Simulation s = sim::simulate(*plan, schedule, pricing, {.most_spans = 20'000});
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print("{} {} {:016x}\n", s.prediction.step_time_s, s.prediction.memory_peak_bytes, digest_of(s));
    std::fflush(stdout);
  }
  fmt::print(stderr, "{} plans, {:.2f} s of replays\n", wanted, seconds);
}
