// What the CPU backend runs, the CUDA backend runs: over plans of every kind, each operator that lowering makes of them
// is computed on both from the same random operands, and each message is one that NCCL's transport has. Operators whose
// operands are more than numbers (updates, sparse bytes) are looked up among the cases of operators_test.cpp instead.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "exec/cuda/nccl_transport.h"
#include "plan/lower/lower.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace emulated_coverage_test {

using models::DType;
using models::Op;
using models::OpKind;
using plan::OptimizerKind;
using plan::Order;
using plan::Space;
using testing::Trial;

struct Axis {
  const char* name;
  void (*set)(Trial&);
};

void optimizer(Trial& t, OptimizerKind kind) {
  t.training.optimizer.kind = t.spec.states.optimizer = kind;
}
void encoded(Trial& t, plan::ActivationEncoding how) {
  if (how == plan::ActivationEncoding::lossless) t.model.activation = models::Activation::relu;
  t.spec.compression.activations = how;
}
void compressed(Trial& t, plan::GradientCompression how, int group = 0) {
  t.spec.mesh.data = group > 0 ? 2 * group : 2;
  t.spec.compression.gradients = how;
  t.spec.compression.rank = 2, t.spec.compression.minimum_rate = 1.5, t.spec.compression.group = group;
}

const std::vector<Axis>& techniques() {
  static const std::vector<Axis> all = {
      {"serial", [](Trial&) {}},
      {"data", [](Trial& t) { t.spec.mesh.data = 2; }},
      {"zero 1", [](Trial& t) { t.spec.mesh.data = 2, t.spec.states.zero_stage = 1; }},
      {"zero 2", [](Trial& t) { t.spec.mesh.data = 2, t.spec.states.zero_stage = 2; }},
      {"zero 3", [](Trial& t) { t.spec.mesh.data = 2, t.spec.states.zero_stage = 3; }},
      {"zero 3 in groups",
       [](Trial& t) { t.spec.mesh.data = 4, t.spec.states.zero_stage = 3, t.spec.states.zero_group = 2; }},
      {"tensor", [](Trial& t) { t.spec.mesh.tensor = 2; }},
      {"sequence", [](Trial& t) { t.spec.mesh.tensor = 2, t.spec.mesh.sequence_parallel = true; }},
      {"context", [](Trial& t) { t.spec.mesh.context = 2; }},
      {"pipeline", [](Trial& t) { t.spec.mesh.pipeline = 2; }},
      {"zb-h1", [](Trial& t) { t.spec.mesh.pipeline = 2, t.spec.stages.order = Order::zb_h1; }},
      {"dualpipe",
       [](Trial& t) {
         t.model.layers = 4;
         t.spec.mesh.pipeline = t.spec.stages.virtual_stages = 2, t.spec.stages.order = Order::dualpipe;
       }},
      {"dualpipe, beside",
       [](Trial& t) {
         t.model.layers = 4, t.spec.mesh.tensor = 2;
         t.spec.mesh.pipeline = t.spec.stages.virtual_stages = 2, t.spec.stages.order = Order::dualpipe;
       }},
      {"2bw", [](Trial& t) { t.spec.mesh.pipeline = 2, t.spec.stages.order = Order::pipedream_2bw; }},
      {"server", [](Trial& t) { t.spec.mesh.data = 2, t.spec.shape.micro_batch = 1, t.spec.states.staleness = 1; }},
      {"recompute", [](Trial& t) { t.spec.recomputation.what = plan::Recompute::full; }},
      {"unfused", [](Trial& t) { t.spec.numerics.flash = false; }},
      {"selective",
       [](Trial& t) { t.spec.numerics.flash = false, t.spec.recomputation.what = plan::Recompute::selective; }},
      {"loss in chunks", [](Trial& t) { t.spec.numerics.loss_chunks = 2; }},
      {"dropout",
       [](Trial& t) {
         t.model.dropout = {0.1, 0.2, 0.15};
       }},
      {"dropout, sequence",
       [](Trial& t) {
         t.model.dropout = {0.1, 0.2, 0.15};
         t.spec.mesh.tensor = 2, t.spec.mesh.sequence_parallel = true;
       }},
      {"dropout, context",
       [](Trial& t) {
         t.model.dropout = {0.1, 0.2, 0.15}, t.spec.mesh.context = 2;
       }},
      {"relu", [](Trial& t) { t.model.activation = models::Activation::relu; }},
      {"squared relu", [](Trial& t) { t.model.activation = models::Activation::squared_relu; }},
      {"stochastic", [](Trial& t) { t.spec.numerics.rounding = plan::Rounding::stochastic; }},
      {"sgd", [](Trial& t) { optimizer(t, OptimizerKind::sgd); }},
      {"sgd, plain", [](Trial& t) { optimizer(t, OptimizerKind::sgd), t.training.optimizer.momentum = 0; }},
      {"lion", [](Trial& t) { optimizer(t, OptimizerKind::lion); }},
      {"adam", [](Trial& t) { optimizer(t, OptimizerKind::adam); }},
      {"lamb", [](Trial& t) { optimizer(t, OptimizerKind::lamb); }},
      {"adafactor", [](Trial& t) { optimizer(t, OptimizerKind::adafactor), t.spec.mesh.tensor = 2; }},
      {"adamw-8bit", [](Trial& t) { optimizer(t, OptimizerKind::adamw_8bit); }},
      {"adamw-bf16", [](Trial& t) { optimizer(t, OptimizerKind::adamw_bf16); }},
      {"adamw-8bit, zero 3",
       [](Trial& t) { optimizer(t, OptimizerKind::adamw_8bit), t.spec.mesh.data = 2, t.spec.states.zero_stage = 3; }},
      {"activations on the host", [](Trial& t) { t.spec.offload.activations = Space::host; }},
      {"optimizer on the host", [](Trial& t) { t.spec.offload.optimizer = Space::host; }},
      {"all on nvme",
       [](Trial& t) {
         t.spec.offload = {Space::host, Space::nvme, Space::nvme, 1};
       }},
      {"gradients in bf16", [](Trial& t) { compressed(t, plan::GradientCompression::bf16); }},
      {"gradients in fp16 by node", [](Trial& t) { compressed(t, plan::GradientCompression::fp16, 2); }},
      {"gradients by node, zero 1",
       [](Trial& t) { compressed(t, plan::GradientCompression::bf16, 2), t.spec.states.zero_stage = 1; }},
      {"powersgd", [](Trial& t) { compressed(t, plan::GradientCompression::powersgd); }},
      {"gist fp16", [](Trial& t) { encoded(t, plan::ActivationEncoding::fp16); }},
      {"gist fp10", [](Trial& t) { encoded(t, plan::ActivationEncoding::fp10); }},
      {"gist fp8", [](Trial& t) { encoded(t, plan::ActivationEncoding::fp8); }},
      {"gist lossless", [](Trial& t) { encoded(t, plan::ActivationEncoding::lossless); }},
  };
  return all;
}

std::vector<Trial> family_trials() {
  const Trial gpt = testing::golden_trial("cosine_clipped");
  std::vector<Trial> out = {gpt, gpt, gpt, testing::golden_bert(), gpt};
  testing::make_llama(out[1].model);
  testing::make_encoder(out[2].model);
  testing::make_family(out[4].model, models::Family::gemma2);
  out[4].model.qk_norm = true;
  return out;
}

constexpr DType kPrecisions[] = {DType::fp32, DType::tf32, DType::bf16, DType::fp16, DType::fp8};

/// An operator as a plan has it: which class's views its operands are.
struct Place {
  Op op;
  const plan::RankClass* of = nullptr;
  plan::PlanSpec spec;
};

std::string types_of(const std::vector<int>& views, const plan::RankClass& c) {
  std::string text;
  for (const int view : views)
    text += view < 0
                ? "-,"
                : fmt::format("{},", models::name_of(c.buffers[c.views[static_cast<std::size_t>(view)].buffer].dtype));
  return text;
}

std::string flags_of(const Op& op) {
  std::string text;
  const auto flag = [&](bool on, const char* name) { text += on ? fmt::format(" {}", name) : ""; };
  const bool always = op.kind == OpKind::norm_squared;  // it has no other way
  flag(op.trans_a, "trans_a"), flag(op.trans_b, "trans_b"), flag(op.accumulate && !always, "accumulate");
  flag(op.causal, "causal"), flag(op.flash, "flash"), flag(op.rounded, "rounded"), flag(op.row_shard, "row_shard");
  flag(op.context > 1, "context"), flag(op.ring_step > 0, "ring_step"), flag(op.dropout > 0, "dropout");
  flag(op.stochastic, "stochastic"), flag(op.kv_heads < op.heads, "grouped"), flag(op.turns > 1, "turns");
  return text;
}

/// Types of operands; what is absent at the end is not said.
std::string signature(const Op& op, std::string in, std::string out) {
  for (std::string* side : {&in, &out})
    while (side->ends_with("-,")) side->resize(side->size() - 2);
  return fmt::format("{} ({}) -> ({}){}", models::name_of(op.kind), in, out, flags_of(op));
}
std::string signature(const Place& place) {
  return signature(place.op, types_of(place.op.in, *place.of), types_of(place.op.out, *place.of));
}
std::string signature(const Case& c) {
  const auto types = [](const std::vector<Slot>& slots, const std::vector<Slot>& in) {
    std::string text;
    for (const Slot& slot : slots) {
      const Slot& own = slot.same_as_input >= 0 ? in[static_cast<std::size_t>(slot.same_as_input)] : slot;
      text +=
          own.elements() == 0 ? "-," : fmt::format("{},", models::name_of(own.ids.empty() ? own.dtype : DType::int32));
    }
    return text;
  };
  return signature(c.op, types(c.in, c.in), types(c.out, c.in));
}

/// Operands that random numbers are not: of updates, which come with ranges of parameters; of what is stored in bytes.
bool looked_up(OpKind kind) {
  using K = OpKind;
  constexpr OpKind kOthers[] = {K::norm_squared, K::lamb_moments, K::factor_sums,   K::factor_moments,
                                K::factor_norms, K::decode,       K::sparse_encode, K::sparse_decode};
  return models::updates_parameters(kind) ||
         std::find(std::begin(kOthers), std::end(kOthers), kind) != std::end(kOthers);
}

/// Everything that plans of all techniques, families and precisions have.
struct Enumerated {
  std::vector<std::unique_ptr<plan::Schedule>> schedules;
  std::map<std::string, Place> operators;  ///< by signature, each once
  std::set<OpKind> kinds;
  std::set<plan::StepKind> step_kinds;
  std::set<plan::Stream> streams;
  std::set<std::pair<plan::CollectiveKind, DType>> collectives;
  std::set<DType> messages;
  std::set<OptimizerKind> optimizers;
  int plans = 0, refused = 0;

  void take(const plan::Schedule& schedule) {
    optimizers.insert(schedule.spec.states.optimizer);
    for (const plan::RankClass& c : schedule.classes)
      for (const plan::Block& block : c.blocks)
        for (const plan::Step& step : block.steps) {
          step_kinds.insert(step.kind);
          streams.insert(step.stream);
          const plan::View& view = step.kind == plan::StepKind::send ? step.source : step.target;
          const auto moved = [&] { return c.buffers[view.buffer].dtype; };
          if (step.kind == plan::StepKind::collective) collectives.insert({step.collective, moved()});
          if (step.kind == plan::StepKind::send || step.kind == plan::StepKind::recv) messages.insert(moved());
          for (const Op& op : step.ops) {
            kinds.insert(op.kind);
            Place place{op, &c, schedule.spec};
            if (!step.on_host) operators.try_emplace(signature(place), place);
          }
        }
  }
};

const Enumerated& enumerated() {
  static const Enumerated all = [] {
    Enumerated out;
    for (const Trial& family : family_trials())
      for (const Axis& axis : techniques())
        for (const DType precision : kPrecisions) {
          Trial trial = family;
          trial.spec.numerics.precision = precision;
          axis.set(trial);
          try {
            out.schedules.push_back(std::make_unique<plan::Schedule>(plan::lower(testing::plan_of(trial))));
          } catch (const std::runtime_error&) {  // a rule's refusal
            ++out.refused;
            continue;
          }
          ++out.plans;
          out.take(*out.schedules.back());
        }
    return out;
  }();
  return all;
}

// A list that forgets a kind would prove nothing of it.
TEST(Coverage, PlansHaveEveryKindOfOperatorStepStreamAndOptimizer) {
  const Enumerated& all = enumerated();
  std::printf("[ plans    ] %d lowered, %d refused by a rule, %zu operators of different kinds, types and flags\n",
              all.plans, all.refused, all.operators.size());
  // From the mixtures' router on operators and their messages are those of models that are none of these: their cases
  // are in operators_test.cpp, which sees that the backend refuses the others by name, and emulated_experts_test.cpp
  // and emulated_recommender_test.cpp train them.
  for (int kind = 0; kind < static_cast<int>(OpKind::route); ++kind)
    EXPECT_TRUE(all.kinds.contains(static_cast<OpKind>(kind))) << models::name_of(static_cast<OpKind>(kind));
  EXPECT_EQ(all.step_kinds.size(), 5U);
  EXPECT_FALSE(all.streams.contains(plan::Stream::exchange));
  EXPECT_EQ(all.streams.size(), plan::kStreams - 1);
  EXPECT_FALSE(all.optimizers.contains(plan::OptimizerKind::rowwise_adagrad));
  EXPECT_FALSE(all.optimizers.contains(plan::OptimizerKind::muon));
  EXPECT_EQ(all.optimizers.size(), plan::kOptimizers.size() - 2);
  std::set<plan::CollectiveKind> collectives;
  for (const auto& [kind, type] : all.collectives) collectives.insert(kind);
  EXPECT_EQ(collectives.size(), 5U);
}

TEST(Coverage, EveryMessageOfAPlanIsOneThatNcclHas) {
  for (const auto& [kind, type] : enumerated().collectives)
    EXPECT_TRUE(cuda::NcclTransport::communicates(type)) << plan::name_of(kind) << " of " << models::name_of(type);
  for (const DType type : enumerated().messages)
    EXPECT_TRUE(cuda::NcclTransport::communicates(type)) << models::name_of(type);
  EXPECT_FALSE(cuda::NcclTransport::communicates(DType::fp8)) << "an operand's type alone";
}

TEST(Coverage, EveryUpdateAndEverySparseOperatorOfAPlanIsACaseOfTheOperatorTests) {
  std::set<std::string> tested;
  for (const Case& c : all_cases()) tested.insert(signature(c));
  for (const auto& [name, place] : enumerated().operators) {
    if (looked_up(place.op.kind)) {
      EXPECT_TRUE(tested.contains(name)) << name;
    }
  }
}

Case case_of(const std::string& name, const Place& place, std::mt19937& random) {
  Case c;
  c.name = name;
  c.op = place.op;
  c.context.tensor_ways = place.spec.mesh.tensor;
  c.context.step = 3;
  const bool positive = c.op.kind == OpKind::cross_entropy || c.op.kind == OpKind::cross_entropy_grad ||
                        c.op.kind == OpKind::clip_coefficient || c.op.kind == OpKind::loss_scale;
  const auto slot = [&](int view) {
    if (view < 0) return Slot{};
    const plan::View& v = place.of->views[static_cast<std::size_t>(view)];
    const DType type = place.of->buffers[v.buffer].dtype;
    if (type == DType::int32) {
      Slot ids = random_ids(random, v.elements, 2);  // token types, classes, words of any vocabulary
      const bool rows = c.op.kind == OpKind::gather_rows || c.op.kind == OpKind::scatter_rows;
      for (std::size_t i = 0; rows && i < ids.ids.size(); ++i) ids.ids[i] = static_cast<std::int32_t>(i);
      return ids;
    }
    Slot values = random_floats(random, v.elements);
    for (float& x : values.floats) x = positive ? 1 + std::abs(x) : type == DType::uint8 ? 0 : x;
    // Rounded once here, so that both read the same.
    return of(std::move(values), type);
  };
  for (const int view : c.op.in) c.in.push_back(slot(view));
  if (c.op.kind == OpKind::attention_grad && !c.op.flash && c.op.causal) {  // probabilities of later keys are none
    const auto t = static_cast<std::size_t>(c.op.sequence);
    for (std::size_t i = 0; i < c.in[3].floats.size(); ++i)
      if (i % t > i / t % t) c.in[3].floats[i] = 0;
  }
  for (const int view : c.op.out) {
    const auto same = std::find(c.op.in.begin(), c.op.in.end(), view);
    c.out.push_back(view >= 0 && same != c.op.in.end() ? in_place(static_cast<int>(same - c.op.in.begin()))
                                                       : slot(view));
  }
  return c;
}

double tolerance_of(const Op& op) {
  if (op.rounded) return op.dtype == DType::fp32 ? 2e-3 : 5e-2;
  return op.dtype == DType::bf16 ? 1e-2 : op.dtype == DType::fp16 ? 2e-3 : 2e-5;
}

TEST(Coverage, EveryOtherOperatorOfAPlanIsComputedAsOnTheCpuBackend) {
  const auto cpu = make_cpu_backend(1);
  constexpr std::int64_t kBytes = std::int64_t{8} << 20;
  std::byte* const host = cpu->allocate_arena(kBytes);
  std::byte* const device = cuda_backend().allocate_arena(kBytes);
  std::mt19937 random(11);
  int computed = 0;
  for (const auto& [name, place] : enumerated().operators) {
    if (looked_up(place.op.kind) || place.op.kind == OpKind::load_tokens) continue;
    const Case c = case_of(name, place, random);
    ASSERT_LE(arena_bytes(c), kBytes) << name;
    try {
      const auto expected = run_on(*cpu, host, c);
      const auto got = run_on(cuda_backend(), device, c);
      ++computed;
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i < c.in.size() && !c.in[i].ids.empty()) continue;
        EXPECT_LE(relative_difference(got[i], expected[i]), tolerance_of(c.op)) << name << ", operand " << i;
      }
    } catch (const std::exception& failure) {
      ADD_FAILURE() << name << ": " << failure.what();
    }
  }
  EXPECT_GT(computed, 100);
}

}  // namespace emulated_coverage_test
}  // namespace orrery::exec::gpu_test
