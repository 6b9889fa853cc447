/// The closed form against the replay of the lowered schedule, over the plans of whole search spaces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/estimate/estimate.h"
#include "sim/search/space.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace search_agreement_test {

/// How far the closed form may be from the replay, as a fraction of it.
constexpr double kTime = 0.02, kMemory = 0.02;
/// The same where messages of different kinds meet on links, or a slow host decides which goes first.
constexpr double kHostTime = 0.04;

struct Space {
  const char* name;
  const char* model;
  const char* cluster;
  int devices;
  const char* stack;
  std::int64_t layers, batch, sequence;
  models::DType precision;
  int stride;  ///< every how many points of the space
  bool flash = true;
  void (*bound)(plan::Bounds&) = nullptr;
  double time = kTime;
  double memory = kMemory;
  plan::OptimizerKind optimizer = plan::OptimizerKind::adamw;
  void (*change)(models::Model&) = nullptr;
  std::vector<const char*> habits = {};  ///< numbers that the stack has as 1
};

void drop(models::Model& m) {
  m.dropout = {0.1, 0.1, 0.1};
}
void rectify(models::Model& m) {
  m.activation = models::Activation::relu;
}

void adapt(models::Model& m) {
  m.lora = {.rank = 16, .alpha = 32};
}

void mix(models::Model& m) {
  m.experts = {.count = 8, .chosen = 2, .hidden = m.ffn_hidden / 2, .normalised = true};
}
void mix_many(models::Model& m) {
  m.experts = {.count = 64, .chosen = 6, .hidden = 1408, .shared = 2816, .first_dense = 1};
}

void chunks_over_nodes(plan::Bounds& b) {
  b.mesh.tensor = {1, 2}, b.mesh.pipeline = {4, 8}, b.stages.virtual_stages = {1, 2}, b.mesh.expert = {8, 16},
  b.states.zero_stage = {0, 1};
  b.shape.micro_batch = {1}, b.stages.order = {plan::Order::one_f_one_b},
  b.recomputation.what = {plan::Recompute::none};
  b.mesh.context = {1}, b.mesh.expert_tensor = {0, 1, 2};
}
void experts_again(plan::Bounds& b) {
  b.recomputation.what = {plan::Recompute::selective};
  b.recomputation.modules = plan::Modules().with(plan::Module::experts);
}
void norms_and_activations_again(plan::Bounds& b) {
  b.recomputation.what = {plan::Recompute::selective};
  b.recomputation.modules = plan::Modules().with(plan::Module::norms).with(plan::Module::activations);
}
void divided_over_nodes(plan::Bounds& b) {
  b.mesh.tensor = {2, 4}, b.mesh.pipeline = {1}, b.mesh.expert = {8, 16}, b.states.zero_stage = {0, 1, 3},
  b.shape.micro_batch = {1, 2};
  b.recomputation.what = {plan::Recompute::none, plan::Recompute::full}, b.mesh.context = {1},
  b.mesh.expert_tensor = {0, 1, 2};
}

void PrintTo(const Space& space, std::ostream* out) {
  *out << space.name;
}

class ClosedForm : public ::testing::TestWithParam<Space> {};

TEST_P(ClosedForm, AgreesWithTheReplay) {
  const Space& s = GetParam();
  auto model = std::make_shared<models::Model>(*testing::model(s.model));
  if (s.layers > 0) model->layers = s.layers;
  if (s.change) s.change(*model);
  const auto cluster = testing::cluster(s.cluster, s.devices);
  cost::Stack stack = testing::stack(s.stack);
  stack.memory = {};  // what a framework keeps besides has only the closed form; here the schedule's buffers agree
  for (const char* habit : s.habits) stack.parameters.push_back({habit, 1, cost::Unit::number, "test"});
  const cost::Pricing pricing(cluster, stack);
  plan::Job job;
  job.batch = s.batch;
  job.sequence = s.sequence;
  job.precision = s.precision;
  if (s.bound) s.bound(job.bounds);
  job.training.optimizer.kind = s.optimizer;
  cost::Estimator estimator(model, pricing, shared_links(pricing));
  int compared = 0;
  double worst_time = 0, worst_memory = 0;
  std::string worst_time_plan, worst_memory_plan;
  cost::Stack open = stack;  // all that is modelled, whatever this software can do
  open.flash = s.flash, open.overlap_gradients = false, open.can = {};
  const std::vector<plan::PlanSpec> space = space_of(*cluster, *model, job, open);
  for (std::size_t i = 0; i < space.size(); i += static_cast<std::size_t>(s.stride)) {
    const auto made = plan::make_plan(model, cluster, space[i]);
    if (!made) continue;
    ++compared;
    const cost::Estimate estimate = estimator.estimate(*made);
    const cost::Prediction replayed = simulate(*made, pricing, {.spans = false}).prediction;
    const double time = estimate.step_time / replayed.step_time_s - 1;
    const double memory = estimate.memory_peak / replayed.memory_peak_bytes - 1;
    if (std::abs(time) > std::abs(worst_time)) worst_time = time, worst_time_plan = plan::describe(made->spec());
    if (std::abs(memory) > std::abs(worst_memory))
      worst_memory = memory, worst_memory_plan = plan::describe(made->spec());
    EXPECT_LT(std::abs(time), s.time) << plan::describe(made->spec()) << ": closed form " << estimate.step_time
                                      << " s, replay " << replayed.step_time_s << " s";
    for (const double least : {estimator.least_rate(*made), estimator.least_work(*made), estimator.least_time(*made)})
      EXPECT_LE(least, (1 + 1e-9) * estimate.step_time) << plan::describe(made->spec());
    for (const double least : {estimator.least_states(*made), estimator.least_memory(*made)})
      EXPECT_LE(least, (1 + 1e-9) * estimate.memory_peak) << plan::describe(made->spec());
    EXPECT_GE((1 + 1e-9) * estimator.most_memory(*made), estimate.memory_peak) << plan::describe(made->spec());
    EXPECT_LT(std::abs(memory), s.memory) << plan::describe(made->spec()) << ": closed form " << estimate.memory_peak
                                          << " bytes, replay " << replayed.memory_peak_bytes;
  }
  EXPECT_GT(compared, 20);
  fmt::print("{} plans: time at worst {:+.1f} % ({}), memory {:+.1f} % ({})\n", compared, 100 * worst_time,
             worst_time_plan, 100 * worst_memory, worst_memory_plan);
}

INSTANTIATE_TEST_SUITE_P(
    Spaces, ClosedForm,
    ::testing::Values(
        Space{"tiny on 4 CPU ranks", "tiny-gpt", "localhost-4", 0, "orrery-cpu", 0, 16, 64, models::DType::fp32, 3},
        Space{"tiny on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 7},
        Space{"SGD on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 17, true,
              nullptr, kTime, kMemory, plan::OptimizerKind::sgd},
        Space{"LAMB on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 11,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::lamb},
        Space{"Adafactor on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32,
              11, true, nullptr, kTime, kMemory, plan::OptimizerKind::adafactor},
        Space{"Muon on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 11,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::muon},
        Space{"Muon in bf16 on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "megatron-lm", 8, 64, 4096,
              models::DType::bf16, 61, true, nullptr, kTime, 0.05, plan::OptimizerKind::muon},
        Space{"adapters on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 11,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::adamw, adapt},
        Space{"adapters in bf16 on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "megatron-lm", 8, 64, 4096,
              models::DType::bf16, 61, true, nullptr, kTime, 0.05, plan::OptimizerKind::adamw, adapt},
        Space{"8-bit Adam on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32,
              13, true, nullptr, kTime, kMemory, plan::OptimizerKind::adamw_8bit},
        Space{"AdamW with moments in bf16 on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 13, true, nullptr, kTime, kMemory, plan::OptimizerKind::adamw_bf16},
        Space{"a mixture of experts on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 4, 16, 32,
              models::DType::fp32, 11, true, nullptr, kHostTime, 0.05, plan::OptimizerKind::adamw, mix},
        Space{"many experts on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "megatron-lm", 8, 64, 4096,
              models::DType::bf16, 61, true, nullptr, 0.06, 0.05, plan::OptimizerKind::adamw, mix_many},
        Space{"a mixture that runs its experts again on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 4, 16,
              32, models::DType::fp32, 11, true, experts_again, kHostTime, 0.05, plan::OptimizerKind::adamw, mix},
        Space{"a mixture whose norms and activations run again on 8 CPU ranks", "tiny-gpt", "localhost-8", 0,
              "orrery-cpu", 4, 16, 32, models::DType::fp32, 11, true, norms_and_activations_again, kHostTime, 0.05,
              plan::OptimizerKind::adamw, mix},
        // The closed form counts what it keeps of q, k and v and of the gate; the schedule keeps whole buffers or none.
        Space{"blocks run again by operator on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "torchtitan-2024", 8, 32,
              2048, models::DType::bf16, 7, true,
              [](plan::Bounds& b) { b.recomputation.what = {plan::Recompute::selective}; }, kHostTime, 0.4},
        Space{"a mixture over nodes in chunks, two hops, beside compute", "qwen3-30b-a3b", "hgx-h100-1024", 64,
              "megatron-core", 16, 256, 4096, models::DType::bf16, 1, true, chunks_over_nodes, 0.01, 0.03,
              plan::OptimizerKind::adamw, nullptr,
              {"stack.exchange_two_hop", "stack.exchange_hidden", "stack.graphed"}},
        Space{"experts run again over nodes in chunks, each copy by itself", "qwen3-30b-a3b", "hgx-h100-1024", 64,
              "megatron-core", 16, 256, 4096, models::DType::bf16, 1, true,
              [](plan::Bounds& b) { chunks_over_nodes(b), experts_again(b); }, 0.01, 0.25,
              plan::OptimizerKind::adamw, nullptr, {"stack.graphed"}},
        Space{"a mixture over nodes in chunks that the host issues too slowly", "qwen3-30b-a3b", "hgx-h100-1024", 64,
              "megatron-core", 16, 256, 4096, models::DType::bf16, 1, true, chunks_over_nodes, 0.01, 0.03,
              plan::OptimizerKind::adamw, nullptr, {"stack.exchange_two_hop"}},
        // Exchanges of tokens and gathers of ZeRO 3 share the NICs: 2.9 %.
        Space{"experts that tensor ranks divide over nodes, with ZeRO", "qwen3-30b-a3b", "hgx-h100-1024", 64,
              "megatron-core", 8, 256, 4096, models::DType::bf16, 1, true, divided_over_nodes, kHostTime, 0.08,
              plan::OptimizerKind::adamw, nullptr, {"stack.exchange_two_hop"}},
        Space{"gathers of fp8 rows, and of parameters beside the next step, on 64 H100", "llama2-7b", "hgx-h100-1024", 64,
              "megatron-core", 16, 256, 4096, models::DType::fp8, 31, true,
              [](plan::Bounds& b) {
                b.states.zero_stage = {0, 1}, b.mesh.context = {1}, b.mesh.tensor = {1, 2, 4, 8};
              }, kHostTime},
        Space{"BERT on 8 CPU ranks", "tiny-bert", "localhost-8", 0, "orrery-cpu", 8, 16, 64, models::DType::fp32, 13,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::lamb},
        Space{"an eager framework on 16 H100, stages waiting for its messages", "llama2-7b", "hgx-h100-1024", 16,
              "generic-eager", 8, 32, 2048, models::DType::bf16, 7, true,
              [](plan::Bounds& b) {
                b.mesh.tensor = {2, 4, 8, 16}, b.mesh.sequence_parallel = {true}, b.stages.virtual_stages = {1};
                b.states.zero_stage = {0, 1};
              }, kHostTime},
        Space{"BERT with sequence parallelism on 8 A100", "bert-large", "dgx-a100", 0, "megatron-lm", 0, 64, 512,
              models::DType::bf16, 5, true,
              [](plan::Bounds& b) { b.mesh.sequence_parallel = {true}, b.stages.virtual_stages = {1}; }, kHostTime},
        Space{"LAMB in bf16 on 8 A100", "gpt2-124m", "dgx-a100", 0, "orrery-cuda", 0, 64, 1024, models::DType::bf16, 19,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::lamb},
        Space{"GPT-2 on 8 A100", "gpt2-124m", "dgx-a100", 0, "orrery-cuda", 0, 64, 1024, models::DType::bf16, 13,
              true, nullptr, kHostTime},
        // Large pieces of one recomputed layer leave a hole in the scratch of sequence-parallel plans: 4.6 %.
        Space{"Llama-2 on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "megatron-lm", 8, 64, 4096, models::DType::bf16,
              37, true, nullptr, kTime, 0.05},
        Space{"sequence parallelism on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 5, true,
              [](plan::Bounds& b) { b.mesh.sequence_parallel = {true}, b.stages.virtual_stages = {1}; }, kHostTime},
        Space{"selective recomputation on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 5, false,
              [](plan::Bounds& b) {
                b.recomputation.what = {plan::Recompute::selective}, b.stages.virtual_stages = {1};
              }, kHostTime},
        Space{"context parallelism on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 3, true,
              [](plan::Bounds& b) {
                b.mesh.context = {2, 4}, b.stages.virtual_stages = {1}, b.recomputation.what = {plan::Recompute::none};
              }},
        Space{"context parallelism over nodes", "llama2-7b", "hgx-h100-1024", 32, "megatron-lm", 8, 32, 8192,
              models::DType::bf16, 3, true,
              // ZeRO-3 would gather through the NICs while the ring passes: the replay shares them, a sum does not.
              [](plan::Bounds& b) {
                b.mesh.context = {2, 4, 8}, b.mesh.tensor = {4, 8}, b.stages.virtual_stages = {1};
                b.states.zero_stage = {0, 1};
                b.recomputation.what = {plan::Recompute::none};
              }},
        Space{"context parallelism on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 64,
              models::DType::fp32, 3, true,
              [](plan::Bounds& b) { b.mesh.context = {2, 4}, b.stages.virtual_stages = {1}; }},
        Space{"zero bubble on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 16, 64, 1024, models::DType::bf16, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::zb_h1, plan::Order::zb_h2, plan::Order::zb_v, plan::Order::dualpipe_v};
              }, kHostTime},
        // Transfers move while a rank waits: which rank waits first decides what moves.
        Space{"zero bubble on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 16, 32, 32, models::DType::fp32,
              1, true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::zb_h1, plan::Order::zb_h2, plan::Order::zb_v};
              }},
        Space{"DualPipeV on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 16, 32, 32, models::DType::fp32, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1}, b.stages.order = {plan::Order::dualpipe_v};
              }},
        Space{"gradients reduced within backward on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 3, true,
              [](plan::Bounds& b) {
                b.states.overlap_gradients = true, b.mesh.data = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::one_f_one_b};
              }, kHostTime},
        Space{"gradients reduced within backward across nodes", "gpt2-1558m", "hgx-h100-1024", 64, "megatron-lm", 0, 64,
              1024, models::DType::bf16, 1, true,
              [](plan::Bounds& b) {
                b.states.overlap_gradients = true, b.mesh.data = {8, 16, 32, 64}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::one_f_one_b}, b.stages.virtual_stages = {1};
              }, kHostTime},
        Space{"sub-groups of a node's ranks across nodes", "gpt2-1558m", "hgx-h100-1024", 64, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 1, true,
              [](plan::Bounds& b) {
                b.mesh.data = {16, 32, 64}, b.states.zero_stage = {1, 2, 3}, b.states.zero_group = {8};
                b.stages.virtual_stages = {1};
                b.stages.order = {plan::Order::one_f_one_b};
              }, kHostTime},
        // Under ZeRO 2 and 3 the copies' sums wait behind the gathers on one stream, which the closed form does not
        // see: up to 30 % fast, so they are left out here.
        Space{"sub-groups added up within backward", "gpt2-1558m", "hgx-h100-1024", 64, "megatron-lm", 0, 128, 1024,
              models::DType::bf16, 1, true,
              [](plan::Bounds& b) {
                b.states.overlap_gradients = true, b.mesh.data = {8, 16, 32, 64}, b.states.zero_stage = {1};
                b.states.zero_group = {8};
                b.stages.order = {plan::Order::one_f_one_b}, b.stages.virtual_stages = {1};
              }, kHostTime},
        Space{"sub-groups on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.data = {4, 8}, b.states.zero_stage = {1, 2, 3}, b.states.zero_group = {2};
                b.stages.virtual_stages = {1};
              }},
        Space{"DualPipe on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 16, 64, 1024, models::DType::bf16, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1}, b.stages.order = {plan::Order::dualpipe};
              }, kHostTime},
        // With 8 stages of a model of 4 layers memory is up to 14 % more than the closed form says.
        Space{"DualPipe on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 16, 32, 32, models::DType::fp32, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4}, b.states.zero_stage = {0, 1}, b.stages.order = {plan::Order::dualpipe};
              }},
        // 0.1 % on GPUs, 2.2 % on CPU ranks, which receive only while they wait.
        Space{"asynchronous on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 16, 64, 1024, models::DType::bf16, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::pipedream, plan::Order::pipedream_vertical, plan::Order::pipedream_2bw};
              }},
        Space{"asynchronous on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 16, 32, 32, models::DType::fp32,
              1, true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.stages.order = {plan::Order::pipedream, plan::Order::pipedream_vertical, plan::Order::pipedream_2bw};
              }, kHostTime},
        Space{"interleaved on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 24, 64, 1024, models::DType::bf16, 5,
              true, [](plan::Bounds& b) { b.mesh.pipeline = {2, 4, 8}, b.stages.virtual_stages = {2, 3}; }, kHostTime},
        Space{"interleaved on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 16, 32, 32,
              models::DType::fp32, 3, true,
              [](plan::Bounds& b) { b.mesh.pipeline = {2, 4, 8}, b.stages.virtual_stages = {2}; }},
        Space{"uneven stages on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 22, 64, 1024, models::DType::bf16,
              3, true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {4}, b.stages.virtual_stages = {1}, b.stages.layers_per_stage = {4, 7, 5, 6};
              }, kHostTime},
        Space{"uneven chunks, one recomputed layer each", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 22, 64, 1024,
              models::DType::bf16, 1, true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {4}, b.stages.virtual_stages = {2};
                b.stages.layers_per_stage = {2, 3, 3, 3, 3, 3, 3, 2};
                b.recomputation.what = {plan::Recompute::full}, b.recomputation.layers = 1;
              }, kHostTime},
        Space{"the ends count as layers", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 22, 64, 1024, models::DType::bf16,
              3, true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {4, 8}, b.stages.virtual_stages = {1}, b.stages.ends_as_layers = true;
              }, kHostTime},
        // The closed form has all devices of a node copy at once. Stages of a pipeline and shards of tensors do not,
        // and the replay knows: there it is up to 28 % (tensor 4) and 131 % (8 stages) below.
        Space{"activations on the host of a DGX-2", "gpt2-124m", "dgx-2", 0, "megatron-lm", 0, 64, 1024,
              models::DType::fp16, 1, true,
              [](plan::Bounds& b) {
                b.offload.activations = {plan::Space::host}, b.mesh.pipeline = {1}, b.mesh.tensor = {1};
              }, kHostTime, 0.04},
        // Time 5.0 %. Small buffers leave holes beside gathered parameters: 6.7 %.
        Space{"activations on the host of 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 1, true,
              [](plan::Bounds& b) {
                b.offload.activations = {plan::Space::host}, b.mesh.pipeline = {1}, b.mesh.tensor = {1, 2};
              }, 0.06, 0.08},
        Space{"gradients in 16 bits on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 5, true,
              [](plan::Bounds& b) {
                b.mesh.data = {2, 4, 8}, b.compression.gradients = {plan::GradientCompression::bf16};
              }},
        Space{"gradients in 16 bits on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 3, true,
              [](plan::Bounds& b) {
                b.mesh.data = {2, 4, 8}, b.compression.gradients = {plan::GradientCompression::bf16};
                b.stages.order = {plan::Order::one_f_one_b}, b.states.overlap_gradients = true;
              }, kTime, 0.03},
        Space{"gradients in 16 bits by node on 32 V100", "gpt2-124m", "aws-p3dn", 32, "megatron-lm", 0, 128, 1024,
              models::DType::fp32, 1, true,
              [](plan::Bounds& b) {
                b.mesh.data = {16, 32}, b.states.zero_stage = {0};
                b.compression.gradients = {plan::GradientCompression::fp16};
                b.compression.group = {4, 8}, b.stages.order = {plan::Order::one_f_one_b};
                b.stages.virtual_stages = {1};
                b.states.overlap_gradients = false;
              }, kHostTime, 0.03},
        Space{"gradients in 16 bits by node and ZeRO 1 on 32 V100", "gpt2-124m", "aws-p3dn", 32, "megatron-lm", 0, 128,
              1024, models::DType::fp32, 1, true,
              [](plan::Bounds& b) {
                b.mesh.data = {16, 32}, b.states.zero_stage = {1};
                b.compression.gradients = {plan::GradientCompression::fp16};
                b.compression.group = {4, 8}, b.stages.order = {plan::Order::one_f_one_b};
                b.stages.virtual_stages = {1};
                b.states.overlap_gradients = false;
              }, kHostTime, 0.03},
        // Direct links are unequal: 5.9 %.
        Space{"gradients in 16 bits by node and ZeRO 2 on 32 V100", "gpt2-124m", "aws-p3dn", 32, "megatron-lm", 0, 128,
              1024, models::DType::fp32, 1, true,
              [](plan::Bounds& b) {
                b.mesh.data = {16, 32}, b.states.zero_stage = {2};
                b.compression.gradients = {plan::GradientCompression::fp16};
                b.compression.group = {4, 8}, b.stages.order = {plan::Order::one_f_one_b};
                b.stages.virtual_stages = {1};
                b.states.overlap_gradients = false;
              }, 0.07, 0.03},
        Space{"PowerSGD that starts late on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 3, true,
              [](plan::Bounds& b) {
                b.mesh.data = {2, 4, 8}, b.states.zero_stage = {1}, b.compression.start = 100;
                b.compression.gradients = {plan::GradientCompression::powersgd};
              }},
        Space{"dropout on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 17,
              true, nullptr, kTime, kMemory, plan::OptimizerKind::adamw, drop},
        Space{"dropout with sequence parallelism on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024,
              models::DType::bf16, 7, true,
              [](plan::Bounds& b) {
                b.mesh.sequence_parallel = {true}, b.stages.virtual_stages = {1};
              }, kHostTime, kMemory,
              plan::OptimizerKind::adamw, drop},
        Space{"activations without zeros on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 5, true,
              [](plan::Bounds& b) { b.compression.activations = {plan::ActivationEncoding::lossless}; }, kTime, 0.08,
              plan::OptimizerKind::adamw, rectify},
        Space{"PowerSGD on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32, models::DType::fp32, 3,
              true,
              [](plan::Bounds& b) {
                b.mesh.data = {2, 4, 8}, b.states.zero_stage = {0, 1};
                b.compression.gradients = {plan::GradientCompression::powersgd};
              }},
        Space{"PowerSGD on 8 A100", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 1024, models::DType::bf16, 3, true,
              [](plan::Bounds& b) {
                b.mesh.data = {2, 4, 8}, b.states.zero_stage = {0, 1}, b.stages.order = {plan::Order::one_f_one_b};
                b.compression.gradients = {plan::GradientCompression::powersgd}, b.states.overlap_gradients = true;
              }, kHostTime},
        // Interleaved chunks beside gathered parameters: 6.4 %.
        Space{"encoded activations on 8 CPU ranks", "tiny-gpt", "localhost-8", 0, "orrery-cpu", 8, 16, 32,
              models::DType::fp32, 7, true,
              [](plan::Bounds& b) { b.compression.activations = {plan::ActivationEncoding::fp10}; }, kTime, 0.08},
        Space{"embedding and head alone", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 6, 64, 1024, models::DType::bf16, 1,
              true,
              [](plan::Bounds& b) {
                b.mesh.pipeline = {8}, b.stages.virtual_stages = {1}, b.stages.ends_as_layers = true;
              },
              kHostTime},
        Space{"fp8, tensor messages half hidden, on 16 H100", "llama2-7b", "hgx-h100-1024", 16, "megascale-2024", 8, 64,
              2048, models::DType::fp8, 41, true, nullptr, kHostTime, 0.03},
        Space{"DeepSpeed across nodes: no overlap, part of the network", "gpt2-124m", "jean-zay-a100", 32,
              "megatron-deepspeed-2022", 24, 64, 1024, models::DType::fp16, 29, false,
              [](plan::Bounds& b) { b.stages.virtual_stages = {1}; }, kHostTime},
        Space{"GPT-2 that the host issues too slowly", "gpt2-124m", "dgx-a100", 0, "megatron-lm", 0, 64, 512,
              models::DType::bf16, 9, true, nullptr, kHostTime}),
                         [](const auto& one) { return "space" + std::to_string(one.index); });

}  // namespace search_agreement_test
}  // namespace orrery::sim
