// Selective recomputation by modules: what waits for backward, and what runs again where.
#include "plan/lower/repeated_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "models/operators/operators.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace repeated_modules_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Modules modules(std::initializer_list<Module> some) {
  Modules out;
  for (const Module one : some) out = out.with(one);
  return out;
}

/// Latent attention with an MLP (layer 0), or with experts of which all tokens take one (layer 1).
models::LayerProgram latent_block(std::int64_t layer) {
  models::Model m = samples::tiny_gpt();
  m.head_dim = 10;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = m.tied_embeddings = false;
  m.latent = {.q_rank = 20, .kv_rank = 12, .nope = 6, .rope = 4, .value = 8};
  m.experts = {.count = 8, .chosen = 3, .hidden = 24, .shared = 16, .first_dense = 1};
  models::ExpandOptions options;
  options.batch = 2, options.sequence = 16;
  return models::expand(m, models::LayerKind::block, layer, options);
}

std::vector<std::string> names(const models::LayerProgram& program, const Repeats& repeats) {
  std::vector<std::string> out;
  for (const models::TensorId t : made_again(program, repeats)) out.push_back(program.tensors[t].name);
  return out;
}

TEST(RecomputedModules, AreReadInTheirOwnWordsAndInMegatrons) {
  const auto parse = [](std::initializer_list<const char*> words) {
    std::vector<Modules::Cell> cells;
    for (const char* word : words) cells.push_back({word, {"job.yaml", 3, 5, 1}});
    return Modules::parse_rows(cells);
  };
  EXPECT_THAT(parse({"up_projections", "norms"})->rows(), ElementsAre("norms", "up_projections"));
  EXPECT_EQ(*parse({"core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe"}),
            *parse({"core", "norms", "up_projections", "activations", "mlp", "experts"}));
  const auto unknown = parse({"norms", "softmax"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().front().code, "E0129");
  EXPECT_EQ(unknown.error().front().where.line, 3);
  EXPECT_THAT(unknown.error().front().help, HasSubstr("up_projections"));
  EXPECT_FALSE(parse({"norms", "layernorm"})) << "twice the same";
}

TEST(RecomputedModules, MustBeOnesOfTheModelAndOfSelectiveRecomputation) {
  const auto codes = [](Recompute what, Modules some) {
    PlanSpec spec;
    spec.recomputation = {.what = what, .modules = some};
    const auto made = samples::try_make(spec);
    return made ? std::string() : made.error().front().code;
  };
  EXPECT_EQ(codes(Recompute::selective, modules({Module::norms, Module::activations, Module::mlp})), "");
  EXPECT_EQ(codes(Recompute::none, modules({Module::norms})), "P168");
  EXPECT_EQ(codes(Recompute::full, modules({Module::norms})), "P168");
  EXPECT_EQ(codes(Recompute::selective, modules({Module::up_projections})), "P168");
  EXPECT_EQ(codes(Recompute::selective, modules({Module::experts})), "P168");
}

TEST(RecomputedModules, MakeAgainWhatTheyMadeAndNothingElse) {
  const models::LayerProgram mixture = latent_block(1);
  EXPECT_THAT(names(mixture, Repeats(modules({Module::norms}))),
              ::testing::IsSupersetOf({"ln_1", "ln_2", "latent.q_a.normed", "latent.kv_a.normed"}));
  EXPECT_THAT(names(mixture, Repeats(modules({Module::up_projections}))),
              ::testing::UnorderedElementsAre("latent.q", "latent.kv", "qkv"));
  EXPECT_THAT(names(mixture, Repeats(modules({Module::activations}))),
              ::testing::UnorderedElementsAre("experts.after", "shared.after"));
  EXPECT_TRUE(names(mixture, Repeats(modules({Module::mlp}))).empty()) << "it has none beside its experts";
  EXPECT_THAT(names(latent_block(0), Repeats(modules({Module::mlp}))),
              ::testing::UnorderedElementsAre("mlp.before", "mlp.after"));
}

// Each operator of forward runs again at most once, after what it reads and before what reads it.
TEST(RecomputedModules, RunBeforeTheyAreRead) {
  for (const std::int64_t layer : {0, 1}) {
    const models::LayerProgram program = latent_block(layer);
    const Repeats all(modules({Module::core, Module::norms, Module::up_projections, Module::activations, Module::mlp}));
    const std::vector<models::TensorId> fresh = made_again(program, all);
    base::ById<models::TensorId, bool> there(program.tensors.size(), true);
    for (const models::TensorId t : fresh) there[t] = false;
    for (const models::Part& part : backward_parts(program, all))
      for (const models::Op& op : part.ops) {
        for (const int t : op.in) {
          if (t < 0) continue;
          EXPECT_TRUE(there[models::tensor_of(t)]) << program.tensors[models::tensor_of(t)].name;
        }
        for (const int t : op.out)
          if (t >= 0) there[models::tensor_of(t)] = true;
      }
    EXPECT_TRUE(std::all_of(fresh.begin(), fresh.end(), [&](models::TensorId t) { return there[t]; }));
  }
}

// What only weights' gradients read is made again in their pass, so that nothing waits between the two.
TEST(RecomputedModules, FollowTheirReadersWhereBackwardIsSplit) {
  const models::LayerProgram program = latent_block(1);
  const Repeats activations(modules({Module::activations}));
  const SplitBackward split = split_backward(program, backward_parts(program, activations));
  const auto repeated = [](const std::vector<models::Part>& parts) {
    std::int64_t count = 0;
    for (const models::Part& part : parts) count += part.recomputed ? static_cast<std::int64_t>(part.ops.size()) : 0;
    return count;
  };
  EXPECT_EQ(repeated(split.inputs), 0);
  EXPECT_EQ(repeated(split.weights), 2);
}

// Of q, k, v, o, up and down the first, third and fifth: up's result waits by itself, of q, k and v a part.
TEST(RecomputationByOperator, KeepsEverySecondProduct) {
  const models::Model m = samples::tiny_gpt();
  PlanSpec spec;
  spec.recomputation.what = Recompute::selective;
  spec.numerics.flash = true;
  const Plan plan = samples::make(spec);
  const Schedule schedule = lower(plan, {.recompute_operators = true});
  const RankClass& c = schedule.classes[0];
  const auto named = [&](const std::string& name) {
    const auto found =
        std::find_if(c.buffers.begin(), c.buffers.end(), [&](const Buffer& b) { return b.name == name; });
    EXPECT_NE(found, c.buffers.end()) << name;
    return found == c.buffers.end() ? Buffer{} : *found;
  };
  const std::int64_t tokens = plan.spec().shape.micro_batch * plan.spec().tokens_per_rank();
  EXPECT_TRUE(named("h.0.kept").per_micro_batch);
  EXPECT_EQ(named("h.0.kept").elements, tokens * 2 * m.hidden) << "q and v";
  EXPECT_FALSE(named("h.0.qkv").per_micro_batch);
  EXPECT_TRUE(named("h.0.mlp.before").per_micro_batch);
  EXPECT_TRUE(check(schedule).empty()) << "each product's operands are those of its row";
  const Schedule without = lower(plan);
  EXPECT_TRUE(std::none_of(without.classes[0].buffers.begin(), without.classes[0].buffers.end(),
                           [](const Buffer& b) { return b.name == "h.0.kept"; }));
}

TEST(RecomputedModules, KeepLessForBackward) {
  const auto kept = [](Modules some) {
    PlanSpec spec;
    if (!some.empty()) spec.recomputation = {.what = Recompute::selective, .modules = some};
    std::int64_t elements = 0;
    const Schedule schedule = lower(samples::make(spec));
    for (const Buffer& b : schedule.classes[0].buffers) elements += b.per_micro_batch ? b.elements : 0;
    return elements;
  };
  const std::int64_t all = kept({}), norms = kept(modules({Module::norms}));
  EXPECT_LT(norms, all);
  EXPECT_LT(kept(modules({Module::norms, Module::activations})), norms);
}

}  // namespace repeated_modules_test
}  // namespace orrery::plan
