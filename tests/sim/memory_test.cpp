/// Memory of a stage by hand: activations by the published equations, bytes of a parameter by recipe, what each kind of
/// measurement counts.
#include <gtest/gtest.h>

#include <cmath>

#include "cost/estimate/estimate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace memory_test {

using cost::MemoryKind;
using cost::MemoryRecipe;
using cost::StageMemory;

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Case {
  std::int64_t layers = 2, hidden = 1024, heads = 16, vocab = 1024, sequence = 512;
  int devices = 1;
  plan::PlanSpec spec;
  models::Family family = models::Family::gpt;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  bool gated = false, rms = false;
  double dropout = 0;
  models::Experts experts = {};
};

std::shared_ptr<const models::Model> model_of(const Case& c) {
  models::Model m = *testing::model("gpt2-124m");
  m.layers = c.layers, m.hidden = c.hidden, m.heads = m.kv_heads = c.heads, m.head_dim = c.hidden / c.heads;
  m.ffn_hidden = 4 * c.hidden, m.vocab = c.vocab, m.max_sequence = c.sequence;
  if (c.family == models::Family::llama) m.bias = false, m.positions = models::Positions::rope;
  if (c.kv_heads > 0) m.kv_heads = c.kv_heads;
  if (c.rms) m.normalisation = models::Normalisation::rms_norm;
  if (c.gated) m.activation = models::Activation::swiglu;
  m.dropout = {.embedding = 0, .attention = 0, .residual = c.dropout};
  m.experts = c.experts;
  return std::make_shared<const models::Model>(std::move(m));
}

StageMemory memory_of(Case c, const MemoryRecipe& recipe, int stage = 0, cost::MemoryQuestion question = {}) {
  const auto model = model_of(c);
  const auto cluster = testing::cluster("hgx-h100-1024", c.devices);
  c.spec.shape.sequence = c.sequence;
  c.spec.shape.batch = c.spec.shape.micro_batch * c.spec.mesh.data * c.spec.mesh.pipeline * 2;
  const auto plan = plan::make_plan(model, cluster, c.spec);
  if (!plan) throw std::runtime_error(base::render(plan.error(), false));
  cost::Stack stack = testing::stack("megatron-2022");
  stack.memory = recipe;
  const cost::Pricing pricing(cluster, stack);
  return cost::Estimator(model, pricing).memory(*plan, plan::StageId(stage), question);
}

/// What one block more adds to the activations.
double of_a_layer(Case c, const MemoryRecipe& recipe) {
  const double two = memory_of(c, recipe).activations;
  ++c.layers;
  return memory_of(c, recipe).activations - two;
}

MemoryRecipe with_dropout() {
  MemoryRecipe r;
  r.stated = r.dropout = true;
  return r;
}

Case half_precision(int tensor = 1, bool sharded = false, plan::Recompute recompute = plan::Recompute::none) {
  Case c;
  c.devices = tensor;
  c.spec.mesh.tensor = tensor, c.spec.mesh.sequence_parallel = sharded, c.spec.recomputation.what = recompute;
  c.spec.numerics.precision = models::DType::fp16, c.spec.numerics.flash = false, c.spec.shape.micro_batch = 4;
  return c;
}

/// Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", without the statistics of
/// the norms, which they leave out: mean and reciprocal deviation in fp32 of two norms.
constexpr double kStatistics = 2 * 2 * 4;

TEST(LayerActivations, AreEquationOneOfKorthikanti) {
  const Case c = half_precision();
  const double s = 512, b = 4, h = 1024, a = 16;
  EXPECT_DOUBLE_EQ(of_a_layer(c, with_dropout()), s * b * h * (34 + 5 * a * s / h) + kStatistics * s * b);
}

TEST(LayerActivations, AreEquationTwoUnderTensorParallelism) {
  const double s = 512, b = 4, h = 1024, a = 16, t = 4;
  EXPECT_DOUBLE_EQ(of_a_layer(half_precision(4), with_dropout()),
                   s * b * h * (10 + 24 / t + 5 * a * s / (h * t)) + kStatistics * s * b);
}

TEST(LayerActivations, AreEquationFourUnderSequenceParallelism) {
  const double s = 512, b = 4, h = 1024, a = 16, t = 4;
  EXPECT_DOUBLE_EQ(of_a_layer(half_precision(4, true), with_dropout()),
                   s * b * h / t * (34 + 5 * a * s / h) + kStatistics * s * b / t);
}

TEST(LayerActivations, AreEquationSixUnderSelectiveRecomputation) {
  const double s = 512, b = 4, h = 1024, t = 4;
  EXPECT_DOUBLE_EQ(of_a_layer(half_precision(4, true, plan::Recompute::selective), with_dropout()),
                   34 * s * b * h / t + kStatistics * s * b / t);
}

TEST(LayerActivations, AreTheInputAloneUnderFullRecomputation) {
  EXPECT_DOUBLE_EQ(of_a_layer(half_precision(4, false, plan::Recompute::full), with_dropout()), 2.0 * 512 * 4 * 1024);
}

TEST(LayerActivations, WithoutDropoutLackTheMasksAndTheScoresBefore) {
  const double s = 512, b = 4, h = 1024, a = 16;
  EXPECT_DOUBLE_EQ(of_a_layer(half_precision(), MemoryRecipe{}),
                   s * b * h * (32 + 2 * a * s / h) + kStatistics * s * b);
  Case llama = half_precision();
  llama.family = models::Family::llama;
  EXPECT_DOUBLE_EQ(of_a_layer(llama, with_dropout()), of_a_layer(llama, MemoryRecipe{})) << "it trains without";
}

// The paper's figure 1, the 22B model: 48 layers, h 6144, a 64, s 2048, b 4, t 8: 59.25 GiB.
TEST(LayerActivations, OfTheSourcesLargestNodeAreItsFigure) {
  Case c = half_precision(8);
  c.hidden = 6144, c.heads = 64, c.sequence = 2048, c.vocab = 51200;
  EXPECT_NEAR(48 * of_a_layer(c, with_dropout()) / kGiB, 59.25, 0.01);
  c.spec.mesh.sequence_parallel = true, c.spec.recomputation.what = plan::Recompute::selective;
  EXPECT_NEAR(48 * of_a_layer(c, with_dropout()) / kGiB, 9.5625, 0.01);
}

// Rajbhandari et al. 2020, "ZeRO", table 1: bytes of a parameter are 16, 4 + 12/d, 2 + 14/d and 16/d.
TEST(ModelStates, AreZerosTable) {
  for (const int zero : {0, 1, 2, 3}) {
    Case c = half_precision();
    c.devices = c.spec.mesh.data = 64;
    c.spec.states.zero_stage = zero;
    const StageMemory m = memory_of(c, MemoryRecipe{});
    const double elements = static_cast<double>(c.layers * (12 * c.hidden * c.hidden + 13 * c.hidden) +
                                                (c.vocab + c.sequence + 2) * c.hidden);
    const double d = 64, table[] = {16, 4 + 12 / d, 2 + 14 / d, 16 / d};
    EXPECT_NEAR((m.parameters + m.gradients + m.optimizer_states) / elements, table[zero], 0.002 * table[zero]) << zero;
  }
}

// The same table with K = 12 of AdamW and LAMB, 8 of SGD with momentum, 4 of Adafactor, whose factors every replica
// has, and 4 + 2 + 1/32 of 8-bit Adam where there is no embedding: bytes of states a parameter, masters included.
TEST(ModelStates, AreZerosTableForEveryOptimizer) {
  using plan::OptimizerKind;
  for (const auto& [kind, states] : {std::pair(OptimizerKind::lamb, 12.0), std::pair(OptimizerKind::sgd, 8.0),
                                     std::pair(OptimizerKind::lion, 8.0), std::pair(OptimizerKind::adafactor, 4.0)})
    for (const int zero : {0, 1, 2, 3}) {
      Case c = half_precision();
      c.devices = c.spec.mesh.data = 8;
      c.spec.states.zero_stage = zero;
      c.spec.states.optimizer = kind;
      const StageMemory m = memory_of(c, MemoryRecipe{});
      const double elements = static_cast<double>(c.layers * (12 * c.hidden * c.hidden + 13 * c.hidden) +
                                                  (c.vocab + c.sequence + 2) * c.hidden);
      const double d = zero >= 1 ? 8 : 1;
      EXPECT_NEAR(m.optimizer_states / elements, states / d, 0.01 * states) << plan::name_of(kind) << " ZeRO " << zero;
    }
}

Case over_four_replicas(models::DType precision) {
  Case c = half_precision();
  c.layers = 8;
  c.devices = c.spec.mesh.data = 4;
  c.spec.states.zero_stage = 1, c.spec.numerics.precision = precision,
  c.spec.recomputation.what = plan::Recompute::full;
  return c;
}

// DeepSpeed, zero/stage_1_and_2.py: 2 weights, 2 gradients, (4 + 8) states / d, and in the update (2 + 4) / d more.
TEST(ModelStates, OfAnUpdateInOnePieceComeOnTopOfReservedMemoryAlone) {
  MemoryRecipe r;
  r.stated = r.update_in_one_piece = true;
  r.update_fp16 = 6;
  const Case c = over_four_replicas(models::DType::fp16);
  const StageMemory reserved = memory_of(c, r, 0, {MemoryKind::reserved});
  const double parameters = reserved.parameters / 2;
  EXPECT_NEAR(reserved.communication, 6 * parameters / 4, 1e-3 * parameters);
  EXPECT_EQ(reserved.software, 0) << "the allocator does not know the context";
  const StageMemory allocated = memory_of(c, r, 0, {MemoryKind::allocated});
  EXPECT_DOUBLE_EQ(allocated.communication,
                   std::max(0.0, reserved.communication - reserved.activations - reserved.workspace));
  const StageMemory device = memory_of(c, r);
  EXPECT_GT(device.software, 1e9);
  EXPECT_DOUBLE_EQ(device.total() - device.software, reserved.total());
}

TEST(ModelStates, HaveGradientsTwiceWhereTheyAreAddedUpInAnotherType) {
  MemoryRecipe r;
  r.stated = true;
  const StageMemory once = memory_of(over_four_replicas(models::DType::bf16), r);
  r.gradients_beside = true;
  const StageMemory twice = memory_of(over_four_replicas(models::DType::bf16), r);
  EXPECT_DOUBLE_EQ(once.gradients, 2 * once.parameters);
  EXPECT_DOUBLE_EQ(twice.gradients, 3 * once.parameters);
  EXPECT_DOUBLE_EQ(memory_of(over_four_replicas(models::DType::fp16), r).gradients, once.parameters);
}

TEST(ModelStates, GoThroughABucketWhereThereAreReplicas) {
  MemoryRecipe r;
  r.stated = true;
  r.reduce_bucket = 1000000;
  EXPECT_DOUBLE_EQ(memory_of(over_four_replicas(models::DType::fp16), r).communication, 2e6);
  EXPECT_DOUBLE_EQ(memory_of(half_precision(), r).communication, 0);
  EXPECT_DOUBLE_EQ(memory_of(over_four_replicas(models::DType::bf16), r).communication, 4e6);
  r.gradient_bytes = 2;
  EXPECT_DOUBLE_EQ(memory_of(over_four_replicas(models::DType::bf16), r).communication, 2e6)
      << "of gradients' own type";
  r.gradient_bytes = 4;
  // Cast one at a time, the table alone is larger than the bucket: 1024 x 1024 words.
  r.gradients_beside = true;
  EXPECT_DOUBLE_EQ(memory_of(over_four_replicas(models::DType::bf16), r).communication, 4.0 * 1024 * 1024);
}

TEST(ModelStates, OfEightBitAdamHaveTwoBytesForTheMoments) {
  MemoryRecipe r;
  r.stated = true;
  const StageMemory full = memory_of(half_precision(), r);
  r.moment_bytes = 2;
  EXPECT_DOUBLE_EQ(memory_of(half_precision(), r).optimizer_states, full.optimizer_states / 2);
}

// Bytes of a logit: 2, and in place 4 from forward to backward, where the gradient has 2 more; PyTorch's, 8 besides.
TEST(Loss, HoldsCopiesOfTheLogits) {
  Case c = half_precision();
  c.spec.recomputation.what = plan::Recompute::full;
  c.vocab = 262144;
  const double logits = 4.0 * 512 * 262144;
  MemoryRecipe r;
  r.stated = true;
  const StageMemory none = memory_of(c, r);
  r.loss_copies = 1;
  const StageMemory one = memory_of(c, r);
  r.loss_copies = 3;
  const StageMemory three = memory_of(c, r);
  EXPECT_DOUBLE_EQ(three.activations, none.activations) << "gone before blocks run backward";
  EXPECT_NEAR(one.workspace - none.workspace, 6 * logits, 0.01 * logits);
  EXPECT_NEAR(three.workspace - one.workspace, 8 * logits, 0.01 * logits);
}

TEST(Loss, LeavesBeforeBlocksRunBackwardInAFrameworkAndNotInAnArena) {
  Case c = half_precision();
  c.spec.recomputation.what = plan::Recompute::full;
  const auto passes = [&](std::int64_t vocab, bool stated) {
    c.vocab = vocab;
    MemoryRecipe r;
    r.stated = stated;
    const StageMemory m = memory_of(c, r);
    return m.activations + m.workspace;
  };
  EXPECT_DOUBLE_EQ(passes(8192, true), passes(1024, true)) << "a block's pass needs more than these logits";
  EXPECT_GT(passes(65536, true), passes(1024, true));
  EXPECT_GT(passes(8192, false), passes(1024, false)) << "a slab lasts until its micro-batch has run backward";
}

TEST(Loss, ThatIsCompiledHasAGradientBesideTheLogits) {
  Case c = half_precision();
  c.spec.recomputation.what = plan::Recompute::full;
  c.vocab = 262144;
  MemoryRecipe r;
  r.stated = true;
  const StageMemory over = memory_of(c, r);
  r.loss_apart = true;
  const StageMemory beside = memory_of(c, r);
  const double logits = 4.0 * 512 * 262144 * 2;  // four sequences of 512, 16 bits
  EXPECT_NEAR(beside.workspace - over.workspace, logits, 0.2 * logits) << "a block's pass was the fullest before";
  EXPECT_DOUBLE_EQ(beside.activations, over.activations);
  r.loss_copies = 1;
  const StageMemory copied = memory_of(c, r);
  r.loss_apart = false;
  EXPECT_DOUBLE_EQ(copied.total(), memory_of(c, r).total()) << "copies in fp32 have it already";
}

TEST(Stages, KeepTheirMessagesWhereTheEngineClonesThem) {
  Case c = half_precision(1, false, plan::Recompute::full);
  c.layers = 8;
  c.devices = c.spec.mesh.pipeline = 4;
  MemoryRecipe r;
  r.stated = true;
  const double message = 2.0 * 512 * 4 * 1024;
  const int copies[] = {1, 2, 2, 1}, in_flight[] = {4, 3, 2, 1};
  for (int stage = 0; stage < 4; ++stage) {
    r.keeps_messages = false;
    const double without = memory_of(c, r, stage).activations;
    r.keeps_messages = true;
    EXPECT_DOUBLE_EQ(memory_of(c, r, stage).activations - without, in_flight[stage] * copies[stage] * message) << stage;
  }
}

// Qi et al. 2023, p = 8: h1 has p whole micro-batches at most, h2 2p - 1; W's inputs are 32 sbh a layer.
TEST(ZeroBubble, HoldsWholeMicroBatchesAndHalves) {
  using plan::Held, plan::held, plan::ZeroBubble;
  EXPECT_EQ(held(ZeroBubble::none, 1, 8, 24), (Held{7, 0}));
  EXPECT_EQ(held(ZeroBubble::h1, 0, 8, 24), (Held{8, 0}));
  EXPECT_EQ(held(ZeroBubble::h1, 7, 8, 24), (Held{1, 7}));
  EXPECT_EQ(held(ZeroBubble::h2, 0, 8, 24), (Held{15, 0}));
  EXPECT_EQ(held(ZeroBubble::h2, 1, 8, 24), (Held{13, 2}));
  EXPECT_EQ(held(ZeroBubble::limit_2p, 0, 8, 24), (Held{15, 0}));
  EXPECT_EQ(held(ZeroBubble::limit_2p, 1, 8, 24), (Held{15, 1}));
  EXPECT_EQ(held(ZeroBubble::limit_2p, 7, 8, 24), (Held{3, 13}));
  EXPECT_EQ(held(ZeroBubble::limit_2p, 1, 8, 4), (Held{4, 0})) << "no more than there are";
}

TEST(ZeroBubble, LeavesTheInputsOfTheWeightsGradients) {
  Case c = half_precision();
  c.layers = 16;
  c.devices = c.spec.mesh.pipeline = 8;
  const auto of = [&](plan::ZeroBubble order) {
    return memory_of(c, with_dropout(), 3, {MemoryKind::allocated, order}).activations;
  };
  const double sbh = 512.0 * 4 * 1024;  // two layers a stage; 1F1B has 5 at stage 3, h1 3 halves besides
  EXPECT_DOUBLE_EQ(of(plan::ZeroBubble::h1) - of(plan::ZeroBubble::none), 3 * 2 * 32 * sbh);
}

TEST(MemoryKinds, AreReadFromASourcesWords) {
  EXPECT_EQ(cost::memory_kind("nvidia-smi max over GPUs", MemoryKind::allocated), MemoryKind::device);
  EXPECT_EQ(cost::memory_kind("max reserved over GPUs (torchtitan metric)", MemoryKind::device), MemoryKind::reserved);
  EXPECT_EQ(cost::memory_kind("torch max_memory_allocated", MemoryKind::device), MemoryKind::allocated);
  EXPECT_EQ(cost::memory_kind("peak memory active", MemoryKind::reserved), MemoryKind::allocated);
  EXPECT_EQ(cost::memory_kind("activations too", MemoryKind::reserved), MemoryKind::reserved);
  EXPECT_EQ(cost::memory_kind("", MemoryKind::reserved), MemoryKind::reserved);
}

TEST(MemoryKinds, CountTheContextOrDoNotWhetherTheStackSaysMoreOrNot) {
  for (const bool stated : {false, true}) {
    MemoryRecipe r;
    r.stated = stated;
    EXPECT_GT(memory_of(half_precision(), r).software, 1e9);
    EXPECT_GT(memory_of(half_precision(), r, 0, {MemoryKind::needed}).software, 1e9);
    EXPECT_EQ(memory_of(half_precision(), r, 0, {MemoryKind::allocated}).software, 0);
    EXPECT_EQ(memory_of(half_precision(), r, 0, {MemoryKind::reserved}).software, 0);
  }
}

TEST(StackFiles, SayWhatTheirMemoryIs) {
  const std::string text =
      "stack: mine\nhost_inline: false\nflash: true\noverlap: {tensor: false, data: true, pipeline: "
      "false}\nparameters: {stack.op_overhead: {value: 1 us, source: here}}\n";
  const auto none = cost::parse_stack(text, "mine.yaml");
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->memory.stated);
  const auto some = cost::parse_stack(text + "memory: {reported: reserved, loss_copies: 3}\n", "mine.yaml");
  ASSERT_TRUE(some.has_value());
  EXPECT_TRUE(some->memory.stated);
  EXPECT_EQ(some->memory.reported, MemoryKind::reserved);
  EXPECT_EQ(some->memory.loss_copies, 3);
  EXPECT_FALSE(cost::parse_stack(text + "memory: {reported: guessed}\n", "mine.yaml").has_value());
  EXPECT_FALSE(cost::parse_stack(text + "memory: {reported: device, dropuot: true}\n", "mine.yaml").has_value());
  EXPECT_FALSE(cost::parse_stack(text + "memory: {dropout: true}\n", "mine.yaml").has_value());
}

// What eager PyTorch holds besides: gathered rows, and pieces that nothing fits.
TEST(FrameworkMemory, OfAnEagerFrameworkGrowsWithWhatItGathersAndLosesPieces) {
  Case c;
  c.devices = 4;
  c.spec.mesh.tensor = 4;
  c.spec.mesh.sequence_parallel = true;
  c.spec.numerics.precision = models::DType::bf16;
  c.family = models::Family::llama;
  MemoryRecipe recipe;
  recipe.stated = true;
  const double bare = of_a_layer(c, recipe);
  recipe.keeps_gathered = true;
  const double row = 2.0 * static_cast<double>(c.sequence * c.hidden);  // one sequence in 16 bits
  EXPECT_NEAR(of_a_layer(c, recipe) - bare, 2 * row, 1e-3 * row) << "what attention and what the MLP gathered";

  const auto total = [&](const MemoryRecipe& r, MemoryKind kind) {
    return memory_of(c, r, 0, {kind, plan::ZeroBubble::none}).total();
  };
  MemoryRecipe lossy = recipe;
  lossy.fragmentation = 0.25;
  lossy.stuck = 0.05;
  const StageMemory m = memory_of(c, recipe, 0, {MemoryKind::reserved, plan::ZeroBubble::none});
  const double passes = m.activations + m.workspace;
  EXPECT_NEAR(total(lossy, MemoryKind::reserved) - total(recipe, MemoryKind::reserved), 0.25 * passes, 1);
  EXPECT_NEAR(total(lossy, MemoryKind::needed) - total(recipe, MemoryKind::needed), 0.05 * passes, 1);
  EXPECT_EQ(total(lossy, MemoryKind::allocated), total(recipe, MemoryKind::allocated));
  EXPECT_EQ(total(recipe, MemoryKind::needed), total(recipe, MemoryKind::device));

  Case stages = c;
  stages.layers = 4;
  stages.spec.mesh.pipeline = 2;
  stages.spec.mesh.tensor = 2;
  MemoryRecipe apart = recipe;
  apart.pipeline_fragmentation = 0.5;
  const auto first = [&](const MemoryRecipe& r) {
    return memory_of(stages, r, 0, {MemoryKind::reserved, plan::ZeroBubble::none});
  };
  EXPECT_NEAR(first(apart).total() - first(recipe).total(), 0.5 * 0.5 * first(recipe).activations, 1)
      << "two micro-batches in flight, of which one counts";
}

// What autograd keeps where software composes operators that others fuse (cost/parameters/memory_recipe.h).
TEST(FrameworkMemory, OfComposedOperatorsKeepsWhatTheyPassOn) {
  const double rows = 512, h = 1024;
  Case c;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  c.family = models::Family::llama;
  MemoryRecipe bare, gates, keys;
  bare.stated = gates.stated = keys.stated = true;
  gates.composes_gates = true, keys.repeats_keys = true;
  EXPECT_DOUBLE_EQ(of_a_layer(c, gates), of_a_layer(c, bare)) << "nothing is gated";
  EXPECT_DOUBLE_EQ(of_a_layer(c, keys), of_a_layer(c, bare)) << "every head of the queries has a key of its own";
  c.gated = true, c.kv_heads = 4;
  EXPECT_NEAR(of_a_layer(c, keys) - of_a_layer(c, bare), 2 * rows * 2 * (h - h / 4), 1) << "keys and values";
  EXPECT_NEAR(of_a_layer(c, gates) - of_a_layer(c, bare), 2 * rows * 4 * h, 1) << "the activated gate";
  c.spec.recomputation.what = plan::Recompute::full;
  for (const MemoryRecipe& r : {gates, keys}) EXPECT_DOUBLE_EQ(of_a_layer(c, r), of_a_layer(c, bare));
}

TEST(FrameworkMemory, OfComposedNormsHasTheirInputInFp32AndWhatTheWeightMultiplies) {
  const double rows = 512, h = 1024;
  Case c;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  c.rms = true;
  MemoryRecipe bare, norms;
  bare.stated = norms.stated = norms.composes_norms = true;
  EXPECT_NEAR(of_a_layer(c, norms) - of_a_layer(c, bare), 2 * rows * h * (2 + 2), 1) << "two norms";
  c.spec.recomputation.what = plan::Recompute::full;
  EXPECT_DOUBLE_EQ(of_a_layer(c, norms), of_a_layer(c, bare)) << "nothing waits for backward";
  c.spec.recomputation.what = plan::Recompute::none;
  c.rms = false;
  EXPECT_DOUBLE_EQ(of_a_layer(c, norms), of_a_layer(c, bare)) << "PyTorch's LayerNorm is one kernel";
}

TEST(FrameworkMemory, UnderAutocastHasSumsOfBranchesInFp32) {
  const double rows = 512, h = 1024;
  Case c;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  MemoryRecipe bare, wide;
  bare.stated = wide.stated = wide.wide_sums = true;
  EXPECT_NEAR(of_a_layer(c, wide) - of_a_layer(c, bare), 2 * rows * h * 2, 1) << "before and between the branches";
  c.spec.recomputation.what = plan::Recompute::full;
  EXPECT_NEAR(of_a_layer(c, wide) - of_a_layer(c, bare), rows * h * 2, 1) << "the input alone is kept";
  c.spec.numerics.precision = models::DType::fp32, c.spec.numerics.flash = false;
  EXPECT_DOUBLE_EQ(of_a_layer(c, wide), of_a_layer(c, bare)) << "all is in fp32";
}

// torch.gather keeps what it reads: rows that the tensor group gathered, and those chosen from them.
TEST(FrameworkMemory, OfExpertsWhoseRowsTorchGathersHoldsThemTwice) {
  const double rows = 512, h = 1024, chosen = 2;
  Case c;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  c.experts = {.count = 4, .chosen = 2, .hidden = 512};
  MemoryRecipe bare, twice;
  bare.stated = twice.stated = twice.gathers_rows = true;
  EXPECT_NEAR(of_a_layer(c, twice) - of_a_layer(c, bare), 2 * rows * h * chosen, 1);
  c.devices = 4, c.spec.mesh.tensor = 4, c.spec.mesh.sequence_parallel = true;
  EXPECT_NEAR(of_a_layer(c, twice) - of_a_layer(c, bare), 2 * rows * h * (chosen + 1), 1) << "and those gathered";
  c.experts = {};
  EXPECT_DOUBLE_EQ(of_a_layer(c, twice), of_a_layer(c, bare)) << "no experts, no rows";
}

// Transformer Engine keeps what fp8 products read for weights' gradients as they read it.
TEST(FrameworkMemory, OfFp8ProductsKeepsTheirInputsAsRounded) {
  const double rows = 512, h = 1024;
  Case c;
  c.spec.numerics.precision = models::DType::fp8, c.spec.numerics.flash = true;
  c.family = models::Family::llama;
  c.gated = true;
  MemoryRecipe bare, rounded;
  bare.stated = rounded.stated = rounded.saves_rounded = true;
  // Norms' results before q, k, v and before the MLP and the activated gate lose a byte a value; attention's output,
  // which attention reads too, gains one.
  EXPECT_NEAR(of_a_layer(c, bare) - of_a_layer(c, rounded), rows * (h + h + 4 * h - h), 1);
  c.spec.numerics.precision = models::DType::bf16;
  EXPECT_DOUBLE_EQ(of_a_layer(c, rounded), of_a_layer(c, bare)) << "nothing is rounded";
}

// Between the halves of a split backward gradients wait for fp8 products alone: those of q, k, v, of attention's
// projection and of gates and ups, 12 values of the width a token and block. They would take 2 bytes each, so that two
// blocks of the micro-batch whose weights' gradients are put off needed 0.66 of what nothing rounded needs.
TEST(FrameworkMemory, OfSplitPassesHasGradientsWaitAsProductsReadThem) {
  Case c;
  c.layers = 16, c.devices = 8;
  c.spec.numerics.precision = models::DType::fp8, c.spec.numerics.flash = true;
  c.family = models::Family::llama;
  c.gated = true;
  c.spec.mesh.pipeline = 8, c.spec.stages.virtual_stages = 2, c.spec.stages.order = plan::Order::dualpipe;
  MemoryRecipe bare, rounded;
  bare.stated = rounded.stated = rounded.saves_rounded = true;
  rounded.kept_in_fp8 = {.products = 1, .gates = 1, .attention = 1};
  const auto activations = [&](const MemoryRecipe& r, int stage) { return memory_of(c, r, stage).activations; };
  EXPECT_LT(activations(rounded, 3), 0.65 * activations(bare, 3));
  EXPECT_NEAR(activations(rounded, 3) / activations(rounded, 2), 1, 1e-9);
}

TEST(FrameworkMemory, OfExpertsWhoseWeightsMultiplyEarlyKeepsNoResults) {
  const double rows = 512, h = 1024, chosen = 2;
  Case c;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  c.experts = {.count = 4, .chosen = 2, .hidden = 512};
  MemoryRecipe bare, early;
  bare.stated = early.stated = early.weighs_in_experts = true;
  EXPECT_NEAR(of_a_layer(c, bare) - of_a_layer(c, early), 2 * rows * h * chosen, 1);
  c.experts = {};
  EXPECT_DOUBLE_EQ(of_a_layer(c, bare), of_a_layer(c, early)) << "no experts";
}

TEST(FrameworkMemory, OfParametersIsWhatTheSoftwareKeepsOfThem) {
  Case c;
  c.devices = 4;
  c.spec.mesh.data = 4;
  c.spec.numerics.precision = models::DType::fp8;
  MemoryRecipe bare, half, beside, instead;
  bare.stated = half.stated = beside.stated = instead.stated = true;
  half.gradient_bytes = 2;
  beside.rounded_weights = cost::RoundedWeights::beside;
  instead.rounded_weights = cost::RoundedWeights::instead;
  const auto of = [&](const MemoryRecipe& r) { return memory_of(c, r); };
  EXPECT_NEAR(of(half).gradients, of(bare).gradients / 2, 1e-3 * of(bare).gradients);
  const double blocks = of(beside).parameters - of(bare).parameters;  // two bytes of each value, on Hopper
  EXPECT_NEAR(blocks, 2 * 2 * 12 * 1024.0 * 1024.0, 0.01 * blocks) << "12 h^2 of each of two blocks";
  EXPECT_NEAR(of(instead).parameters, of(bare).parameters, 1) << "by rows and by columns: as much as 16 bits";
  c.spec.numerics.precision = models::DType::bf16;
  EXPECT_DOUBLE_EQ(of(beside).parameters, of(bare).parameters) << "nothing is rounded";

  MemoryRecipe masters = bare;
  masters.gathers_masters = true;
  EXPECT_DOUBLE_EQ(of(masters).parameters, of(bare).parameters) << "nothing is gathered";
  c.spec.states.zero_stage = 3;
  EXPECT_GT(of(bare).parameters, 0);
  EXPECT_EQ(of(masters).parameters, 0);
}

// A sequence of 512 for four ranks that share experts: 4 x 128 rows of slots, as many as the micro-batch has rows. Only
// those in slots are counted by the tokens that came.
TEST(FrameworkMemory, OfExpertsTakesNoOtherRowsForThoseInSlots) {
  Case c;
  c.devices = 4;
  c.spec.numerics.precision = models::DType::bf16, c.spec.numerics.flash = true;
  c.spec.mesh.tensor = 4, c.spec.mesh.sequence_parallel = true;
  c.spec.mesh.expert = 4, c.spec.mesh.expert_tensor = 1;
  c.experts = {.count = 8, .chosen = 1, .hidden = 512};
  MemoryRecipe recipe;
  recipe.stated = true;
  const double one = of_a_layer(c, recipe);
  c.spec.shape.micro_batch = 2;
  EXPECT_NEAR(of_a_layer(c, recipe) / one, 2, 0.01);
}

// A model that says so drops, whether or not it has biases.
TEST(FrameworkMemory, OfAModelThatDropsHasMasks) {
  Case c = half_precision();
  c.family = models::Family::llama;
  c.spec.numerics.flash = true;
  const double without = of_a_layer(c, with_dropout());
  c.dropout = 0.1;
  EXPECT_NEAR(of_a_layer(c, with_dropout()) - without, 2.0 * 512 * 4 * 1024, 1) << "a byte for each value of two masks";
}

}  // namespace memory_test
}  // namespace orrery::sim
