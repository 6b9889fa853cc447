/// Published rows: what is read, what is refused, what fills the gaps, and that no prediction looks at a measurement.
#include "sim/validate/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/parameters/habits.h"
#include "sim/validate/translate.h"
#include "tests/sim/search/search_support.h"
#include "tests/sim/validate/one_row.h"

namespace orrery::sim {
namespace validate_test {

using ::testing::HasSubstr;

using namespace one_row;

TEST(PublishedRows, AreReadPastKeysThatAreNotOurs) {
  const std::vector<Row> all = rows(kRow);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].setup.id, "a");
  EXPECT_EQ(all[0].setup.layers, 24);
  EXPECT_EQ(all[0].setup.line, 2);
  EXPECT_DOUBLE_EQ(*all[0].measured.seconds, 1.5);
  EXPECT_DOUBLE_EQ(*all[0].measured.memory_bytes, 30.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(unscorable(all[0].setup), "");
}

TEST(PublishedRows, TakeWordsAndNullsForNotStated) {
  EXPECT_FALSE(rows(changed("layers: 24", "layers: varies"))[0].setup.layers.has_value());
  EXPECT_FALSE(rows(changed("layers: 24", "layers: 1.5"))[0].setup.layers.has_value());
  EXPECT_FALSE(rows(changed("iter_time_s: 1.5", "iter_time_s: null"))[0].measured.seconds.has_value());
  EXPECT_EQ(rows(changed("recompute_kind: full", "recompute_kind: unknown"))[0].setup.recompute, "");
}

TEST(PublishedRows, RefuseWhatCannotBeMeantAndSayWhere) {
  const auto negative = parse_rows(changed("layers: 24", "layers: -24"), "rows.yaml");
  ASSERT_FALSE(negative.has_value());
  const std::string said = base::render(negative.error(), false);
  EXPECT_THAT(said, HasSubstr("rows.yaml:7:11"));
  EXPECT_THAT(said, HasSubstr("`layers` is -24"));
  EXPECT_FALSE(parse_rows("results: 3", "rows.yaml").has_value());
  EXPECT_FALSE(parse_rows("rows: []", "rows.yaml").has_value());
  EXPECT_FALSE(parse_rows("results:\n- 7\n", "rows.yaml").has_value());
}

// PyTorch's HYBRID_SHARD partitions within a node; a row may say among how many.
TEST(Validation, ReadsSubGroupsOfHybridSharding) {
  const auto group = [](const std::string& text) {
    Translator translator(library());
    const auto subject = translator.translate(rows(text)[0].setup);
    EXPECT_TRUE(subject.has_value());
    return subject ? subject->plan.spec().states.zero_group : -1;
  };
  const std::string full = changed("  tp: 2\n  pp: 2\n  dp: 4\n", "  tp: 1\n  pp: 1\n  dp: 16\n  zero_stage: 3\n");
  const auto with = [&](const std::string& line) { return full + line; };
  EXPECT_EQ(group(full), 0);
  EXPECT_EQ(group(with("  fsdp_sharding: FULL_SHARD\n")), 0);
  EXPECT_EQ(group(with("  fsdp_sharding: HYBRID_SHARD\n")), 8);
  EXPECT_EQ(group(with("  zero_group: 4\n")), 4);
  EXPECT_EQ(group(with("  zero_group: 16\n")), 0) << "all of the data group";
  EXPECT_EQ(group(changed("  notes: anything\n", "  fsdp_sharding: HYBRID_SHARD\n")), 0) << "nothing is partitioned";
}

TEST(PublishedRows, SayWhyTheyCannotBeScored) {
  EXPECT_THAT(unscorable(rows(changed("kind: training", "kind: memory"))[0].setup), HasSubstr("memory"));
  EXPECT_EQ(unscorable(rows(changed("kind: training", "kind: oom"))[0].setup), "");
  EXPECT_THAT(unscorable(rows(changed("verified: true", "verified: false"))[0].setup), HasSubstr("not verified"));
  EXPECT_THAT(unscorable(rows(changed("  hidden: 2048\n", ""))[0].setup), HasSubstr("hidden"));
}

TEST(Validation, PredictsARowAndScoresIt) {
  const cost::Validation v = validate(rows(kRow), library());
  ASSERT_EQ(v.rows.size(), 1U);
  EXPECT_TRUE(v.left_out.empty());
  EXPECT_EQ(v.rows[0].stack, "megatron-2021");
  EXPECT_GT(v.rows[0].predicted_s, 0.5);
  EXPECT_LT(v.rows[0].predicted_s, 5);
  EXPECT_EQ(v.time.count, 1);
  EXPECT_DOUBLE_EQ(v.time.median, std::abs(v.rows[0].predicted_s / 1.5 - 1));
  ASSERT_EQ(v.by_source.size(), 1U);
  EXPECT_EQ(v.by_source[0].source, "somebody 2021");
  EXPECT_THAT(v.rows[0].notes, ::testing::Contains(HasSubstr("50257"))) << "the vocabulary is not stated";
}

TEST(Validation, NeverLooksAtAMeasurement) {
  const cost::Validation whole = validate(rows(kRow), library());
  std::string stripped = kRow;
  for (const char* key : {"  iter_time_s: 1.5\n", "  peak_mem_gib: 30\n", "  tflops_per_gpu: 140\n"})
    stripped.replace(stripped.find(key), std::string(key).size(), "");
  const cost::Validation bare = validate(rows(stripped), library());
  ASSERT_EQ(bare.rows.size(), 1U);
  EXPECT_EQ(bare.rows[0].predicted_s, whole.rows[0].predicted_s);
  EXPECT_EQ(bare.rows[0].predicted_bytes, whole.rows[0].predicted_bytes);
  EXPECT_FALSE(bare.rows[0].measured_s.has_value());
  EXPECT_EQ(bare.time.count, 0);
  EXPECT_TRUE(std::isnan(bare.time.median));
}

TEST(Validation, TakesTheNearestForWhatItDoesNotKnow) {
  const cost::Validation v = validate(rows(changed("megatron-2021", "megatron-2024")), library());
  ASSERT_EQ(v.rows.size(), 1U);
  EXPECT_EQ(v.rows[0].stack, "megatron-2021");
  EXPECT_THAT(v.rows[0].notes, ::testing::Contains(HasSubstr("megatron-2024")));
  EXPECT_EQ(v.rows[0].evidence, cost::Basis::generic) << "another year's runs are not its own";
  const cost::Validation device = validate(rows(changed("A100-SXM4-80GB", "A100-PCIE-80GB")), library());
  ASSERT_EQ(device.rows.size(), 1U);
  EXPECT_THAT(device.rows[0].notes, ::testing::Contains(HasSubstr("A100-PCIE-80GB")));
}

TEST(Validation, CountsFittedNumbersAndThoseThatFollowThem) {
  Library known = library();
  const auto take = [](cost::Stack& stack, const std::string& products, const std::string& host) {
    for (cost::Parameter& p : stack.parameters)
      p.source = p.name == "stack.matmul_share" ? products : p.name == "stack.host_op_time" ? host : "assumption";
  };
  const auto fitted = [&] { return validate(rows(kRow), known).by_stack.at(0).fitted_numbers; };
  take(known.stacks[0], "coarse grid over the rows", "assumption");
  take(known.stacks[1], "as megatron-core", "as megatron-core: the same hosts");
  EXPECT_EQ(fitted(), 1) << "of a stack that no row names";
  take(known.stacks[0], "assumption", "assumption");
  EXPECT_EQ(fitted(), 0) << "what it follows is not fitted";
  take(known.stacks[1], "coarse grid over the rows", "assumption");
  EXPECT_EQ(fitted(), 1) << "its own";
}

// A name that begins like another's says nothing of what the software does.
TEST(Validation, TakesSoftwareThatNobodyKnowsAsTheGenericOfItsKind) {
  Library known = library();
  known.stacks.push_back(testing::stack("generic-compiled"));
  known.stacks.push_back(testing::stack("generic-eager"));
  const auto of = [&](const std::string& what) {
    const cost::Validation v = validate(rows(changed("stack: megatron-2021", what)), known);
    EXPECT_EQ(v.rows.size(), 1U) << what;
    return v.rows.at(0);
  };
  EXPECT_EQ(of("stack: megatronics").stack, "generic-eager");
  EXPECT_EQ(of("stack: megatronics").evidence, cost::Basis::generic);
  EXPECT_THAT(of("stack: megatronics").notes, ::testing::Contains(HasSubstr("no stack of this name")));
  EXPECT_THAT(of("framework: my-trainer 0.3").notes,
              ::testing::Contains(HasSubstr("framework 'my-trainer 0.3' is treated as generic-eager")));
  EXPECT_THAT(of("section: table 1").notes, ::testing::Contains(HasSubstr("no software is named")));
  EXPECT_EQ(of("stack: our-jax-trainer").stack, "generic-compiled");
  EXPECT_EQ(of("stack: ours\n  framework: PyTorch with torch.compile").stack, "generic-compiled");
  EXPECT_EQ(of("stack: megatron-2021").evidence, cost::Basis::uncalibrated) << "without intervals no row is known";
  known.stand_in = testing::stack("megatron-core");
  EXPECT_EQ(of("stack: megatronics").stack, "megatron-core");
  EXPECT_EQ(of("stack: megatron-2021").stack, "megatron-2021") << "the catalogue has it";
}

// A fork's name ends its origin's; what shards, moves and hides is the engine's that a row names.
TEST(Validation, TakesAForkAsItsOriginAndALoopAsItsEngine) {
  Library known = library();
  for (const char* name : {"generic-compiled", "generic-eager", "deepspeed", "pytorch-fsdp", "pytorch-fsdp-compiled"})
    known.stacks.push_back(testing::stack(name));
  const auto of = [&](const std::string& what) {
    return validate(rows(changed("stack: megatron-2021", what)), known).rows.at(0);
  };
  EXPECT_EQ(of("stack: megatron-kwai").stack, "megatron-2021");
  EXPECT_EQ(of("stack: megatron-kwai").evidence, cost::Basis::generic) << "a fork's runs are not its origin's";
  EXPECT_EQ(of("stack: megatron-kwai\n  date: 2022-01").evidence, cost::Basis::generic) << "nor with a date";
  EXPECT_EQ(of("stack: megatron-ours\n  date: 2025-02").stack, "megatron-core") << "which Megatron-LM runs since";
  EXPECT_EQ(of("stack: megatron-core-fork-2026").stack, "megatron-core");
  EXPECT_EQ(of("stack: deepspeed-hf-peft").stack, "deepspeed");
  EXPECT_EQ(of("stack: ours\n  framework: Transformers (DeepSpeed ZeRO)").stack, "deepspeed");
  EXPECT_EQ(of("stack: ours\n  framework: Transformers, PEFT").stack, "generic-eager");
  EXPECT_EQ(of("stack: ours\n  framework: Hugging Face SFTTrainer, PyTorch FSDP").stack, "pytorch-fsdp");
  EXPECT_EQ(of("stack: ours\n  framework: PyTorch FSDP2").stack, "pytorch-fsdp");
  EXPECT_EQ(of("stack: ours\n  framework: PyTorch FSDP, torch.compile").stack, "pytorch-fsdp-compiled");
  EXPECT_EQ(of("stack: ours\n  framework: JAX (FSDP)").stack, "generic-compiled") << "XLA shards by itself";
  EXPECT_EQ(of("stack: nemo-2021\n  framework: NeMo Megatron").stack, "megatron-2021");
  EXPECT_EQ(of("stack: nemo-2025").stack, "megatron-core");
  EXPECT_EQ(of("stack: nemo-automodel\n  framework: PyTorch").stack, "generic-eager") << "no Megatron";
  EXPECT_EQ(of("stack: ours\n  framework: PyTorch").stack, "generic-eager");
  EXPECT_EQ(of("stack: generations").stack, "generic-eager") << "no dash: another name";
}

// What stands in lends what it does, not how fast its own runs were.
TEST(Validation, TakesTheProductsOfAStandInForNoFasterThanUnknownSoftwares) {
  Library known = library();
  known.stacks.push_back(testing::stack("generic-eager"));
  const auto rate = [&](const std::string& stack) {
    const auto subject = Translator(known).translate(rows(changed("megatron-2021", stack)).front().setup);
    return subject ? cost::number_of(subject->pricing->stack(), "stack.matmul_share", 0) : -1;
  };
  const double of_unknown = rate("a-loop");
  EXPECT_GT(rate("megatron-2021"), of_unknown) << "else the test says nothing";
  EXPECT_EQ(rate("megatron-kwai"), of_unknown);
  for (cost::Stack& stack : known.stacks)
    for (cost::Parameter& p : stack.parameters)
      if (stack.name == "megatron-2021" && p.name == "stack.matmul_share") p.value = of_unknown / 2;
  EXPECT_EQ(rate("megatron-kwai"), of_unknown / 2) << "nor faster than it was itself";
}

TEST(ARow, WithoutItsShapeSaysWhichModelIsUnknown) {
  EXPECT_THAT(unscorable(rows(changed("  layers: 24\n", "  model: Nobody 9B\n"))[0].setup),
              HasSubstr("layers, and its model 'Nobody 9B' is none of the catalogue's"));
  EXPECT_EQ(unscorable(rows(changed("  layers: 24\n", ""))[0].setup), "it does not state layers");
  EXPECT_EQ(unscorable(rows(changed("  gpus: 16\n", "  model: Nobody 9B\n"))[0].setup), "it does not state gpus");
}

TEST(ARow, OfPalmHasItsBlock) {
  const auto subject = Translator(library()).translate(rows(changed("family: gpt", "family: palm")).front().setup);
  ASSERT_TRUE(subject) << base::render(subject.error(), false);
  const models::Model& model = *subject->model;
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.kv_heads, 2) << "one, of which each tensor rank has a copy";
  EXPECT_TRUE(model.tied_embeddings);
}

TEST(ZeroInAPipeline, GathersOnceWhereItsSoftwareDoes) {
  Library known = library();
  known.stacks.push_back(testing::stack("torchtitan-2024"));
  const auto stage = [&](const std::string& pipeline, const std::string& data) {
    std::string text = changed("megatron-2021", "torchtitan-2024\n  zero_stage: 3");
    text.replace(text.find("pp: 2"), 5, "pp: " + pipeline);
    text.replace(text.find("dp: 4"), 5, "dp: " + data);
    const auto subject = Translator(known).translate(rows(text).front().setup);
    return subject ? subject->plan.spec().states.zero_stage : -1;
  };
  EXPECT_EQ(stage("2", "4"), 1);
  EXPECT_EQ(stage("1", "8"), 3);
}

TEST(AFittedStack, ReadsItsSoftwaresWords) {
  Library known = library();
  known.stand_in = testing::stack("megatron-core");
  known.stand_in->name = "ours";
  const std::string text = changed("megatron-2021", "whose\n  framework: NeMo 25.04");
  const auto bytes = [&] {
    const auto subject = Translator(known).translate(rows(text).front().setup);
    return subject ? subject->pricing->stack().memory.gradient_bytes : -1;
  };
  EXPECT_NE(bytes(), 2) << "else the test says nothing";
  known.stand_in->fitted.emplace().like = "megatron-core";
  EXPECT_EQ(bytes(), 2) << "NVIDIA's recipes add gradients up in bf16";
}

TEST(Products, AreTunedOnlyWhereAVendorRanThem) {
  Library known = library();
  known.stacks.push_back(testing::stack("generic-eager"));
  const auto untuned = [&](const std::string& from, const std::string& to) {
    const auto subject = Translator(known).translate(rows(changed(from, to)).front().setup);
    return subject ? cost::number_of(subject->pricing->stack(), "stack.untuned", 1) : -1;
  };
  EXPECT_EQ(untuned("megatron-2021", "megatron-2021"), 1) << "its runs were of NVIDIA's devices";
  EXPECT_EQ(untuned("megatron-2021", "a-loop"), 1);
  EXPECT_EQ(untuned("megatron-2021", "primus-megatron"), 0);
  EXPECT_EQ(untuned("source: ", "source: MLPerf Training, "), 0);
}

// Fine-tuning often has parameters, gradients and moments in 16 bits alone: two bytes each instead of two, four, four
// (masters) and eight.
TEST(Validation, ReadsThatAllOfAnOptimizerIsIn16Bits) {
  Library known = library();
  known.stacks.push_back(testing::stack("generic-eager"));
  const auto bytes = [&](const std::string& what) {
    const cost::Validation v = validate(rows(changed("stack: megatron-2021", "stack: a-loop\n  " + what)), known);
    EXPECT_EQ(v.rows.size(), 1U) << what;
    return v.rows.at(0).predicted_bytes;
  };
  const double usual = bytes("optimizer: AdamW");
  EXPECT_LT(bytes("optimizer: \"AdamW, all states in bf16\""), 0.95 * usual);
  EXPECT_EQ(bytes("optimizer: \"AdamW, states in fp16\""), bytes("optimizer: \"AdamW, all states in bf16\""));
  EXPECT_EQ(bytes("optimizer: AdamW in bf16 mixed precision"), usual) << "the products are in bf16, not the states";
}

TEST(Validation, BuildsNodesAsTheRowHasThem) {
  Library known = library();
  known.clusters.push_back(*testing::cluster("gb200-nvl64"));
  for (const char* of_v100 : {"dgx-1v", "jean-zay-v100", "dgx-2"}) known.clusters.push_back(*testing::cluster(of_v100));
  const auto cluster = [&](const std::string& gpu, int gpus, int per_node, int dp) {
    std::string text = changed("A100-SXM4-80GB", gpu);
    const auto put = [&](const std::string& key, int value) {
      const std::size_t at = text.find("  " + key + ": ");
      text.replace(at, text.find('\n', at) - at, "  " + key + ": " + std::to_string(value));
    };
    put("gpus", gpus);
    put("gpus_per_node", per_node);
    put("dp", dp);
    put("global_batch", 16 * dp);
    Translator translator(known);
    auto subject = translator.translate(rows(text)[0].setup);
    return subject ? std::pair(subject->pricing->cluster().nodes, subject->pricing->cluster().devices_per_node)
                   : std::pair(0, 0);
  };
  EXPECT_EQ(cluster("A100-SXM4-80GB", 16, 8, 4), std::pair(2, 8));
  EXPECT_EQ(cluster("A100-SXM4-80GB", 16, 4, 4), std::pair(4, 4));
  EXPECT_EQ(cluster("A100-SXM4-80GB", 12, 4, 3), std::pair(3, 4));
  EXPECT_EQ(cluster("A100-SXM4-80GB", 12, 8, 3), std::pair(0, 0)) << "neither whole nodes nor a part of one";
  EXPECT_EQ(cluster("GB200-186GB", 64, 4, 16), std::pair(1, 64)) << "trays of a rack are no nodes";
  EXPECT_EQ(cluster("GB200-186GB", 72, 4, 18), std::pair(1, 72));
  EXPECT_EQ(cluster("GB200-186GB", 80, 4, 20), std::pair(0, 0));
  EXPECT_EQ(cluster("V100", 32, 16, 8), std::pair(2, 16)) << "a DGX-2's, though more machines have eight";
  EXPECT_EQ(cluster("V100", 32, 8, 8), std::pair(4, 8));
  EXPECT_EQ(cluster("V100", 40, 10, 10), std::pair(5, 8)) << "no machine has ten";
}

TEST(Validation, ReadsWhatOverlapsAndWhichAttentionRuns) {
  Library known = library();
  known.clusters = {*testing::cluster("hgx-h100")};
  const auto of = [&](const std::string& more) {
    const std::vector<Row> all = rows(changed("A100-SXM4-80GB", "H100-SXM5-80GB\n  flash_attention: true" + more));
    Translator translator(known);
    const bool gradients = translator.translate(all[0].setup)->plan.spec().states.overlap_gradients;
    return std::pair(validate(all, known).rows.at(0).predicted_s, gradients);
  };
  EXPECT_FALSE(of("").second) << "Megatron-LM of 2021 reduces them at the end";
  EXPECT_TRUE(of("\n  overlap: Gradients with backward").second);
  EXPECT_FALSE(of("\n  overlap: tensor parallelism").second);
  EXPECT_LT(of("\n  overlap: gradients").first, of("").first);
  EXPECT_LT(of("\n  attention_kernel: FlashAttention-3").first, of("\n  attention_kernel: flash-attn 2").first);
  EXPECT_EQ(of("\n  attention_kernel: cuDNN").first, of("\n  attention_kernel: FlashAttention-4").first);
  EXPECT_EQ(of("\n  attention_kernel: their own").first, of("").first) << "it says nothing";
}

TEST(Validation, TakesAReleaseOfASoftwareThatTheCatalogueKnows) {
  Library known = library();
  known.stacks.push_back(testing::stack("megatron-core-0.6"));
  const auto of = [&](const std::string& framework) {
    const std::vector<Row> all =
        rows(changed("stack: megatron-2021", "stack: megatron-core\n  framework: " + framework));
    return validate(all, make_cases(all, known)).rows.at(0).stack;
  };
  EXPECT_EQ(of("Megatron-Core 0.6.0 (Transformer Engine)"), "megatron-core-0.6");
  EXPECT_EQ(of("Megatron-Core 0.7.0"), "megatron-core") << "no such release is known";
  EXPECT_EQ(of("Megatron-Core"), "megatron-core");
}

TEST(Validation, KeepsTheSamplesOfAPackedSequenceApart) {
  const auto of = [](const std::string& more) {
    const std::vector<Row> all = rows(changed("seq_len: 2048", "seq_len: 2048\n  flash_attention: true" + more));
    const cost::Validation v = validate(all, make_cases(all, library()));
    return std::pair(v.rows.at(0).predicted_s, v.rows.at(0).notes);
  };
  const auto whole = of(""), packed = of("\n  packed_tokens: 128");
  EXPECT_LT(packed.first, whole.first);
  EXPECT_THAT(packed.second, ::testing::Contains(HasSubstr("packed samples of 128 tokens")));
  EXPECT_THAT(whole.second, ::testing::Not(::testing::Contains(HasSubstr("packed"))));
}

TEST(Validation, PredictsWhetherARunThatDiedWouldFit) {
  cost::Intervals intervals;
  intervals.spreads = {{"", true, {0.8, 1.25}, {0.9, 1.1}, 0}};
  const auto fits = [&](const std::string& text) {
    const std::vector<Row> all = rows(text);
    return validate(all, make_cases(all, library()), intervals).rows.at(0);
  };
  std::string died = changed("kind: training", "kind: oom");
  died.replace(died.find("  iter_time_s: 1.5\n  peak_mem_gib: 30\n"), 38, "");
  EXPECT_GT(*fits(died).fits_probability, 0.99) << "a model of 1.3 billion on 80 GB";
  EXPECT_TRUE(fits(died).out_of_memory);
  std::string wide = died;
  wide.replace(wide.find("hidden: 2048"), 12, "hidden: 16384");
  wide.replace(wide.find("heads: 16"), 9, "heads: 128");
  EXPECT_LT(*fits(wide).fits_probability, 0.01) << "80 billion parameters over four devices";
  EXPECT_EQ(validate(rows(died), library()).time.count, 0);
}

TEST(Validation, TakesTheStackOfRunsWithinANodeWhereThereIsOne) {
  Library known = library();
  cost::Stack within = testing::stack("megatron-2021");
  within.name = "timed-layers";
  known.stacks[1].within_node = within.name;
  within.parameters.push_back({"stack.recomputes", 0, cost::Unit::number, "test"});
  known.stacks.push_back(within);
  EXPECT_EQ(validate(rows(kRow), known).rows.at(0).stack, "megatron-2021");
  std::string text = changed("gpus: 16", "gpus: 8");
  text.replace(text.find("dp: 4"), 5, "dp: 2");
  const cost::Validation v = validate(rows(text), known);
  ASSERT_EQ(v.rows.size(), 1U);
  EXPECT_EQ(v.rows[0].stack, "timed-layers");
  EXPECT_THAT(v.rows[0].plan, ::testing::Not(HasSubstr("recompute")));
  EXPECT_THAT(v.rows[0].notes, ::testing::Contains(HasSubstr("recomputed")));
}

// Prices are shared by rows of one machine and one stack, but not with a row that differs in either.
TEST(Validation, PredictsARowAloneAsAmongOthers) {
  const std::string text = changed("gpus: 16", "gpus: 32"), wide = "dp: 8";
  std::string plain = text, whole = text;
  plain.replace(plain.find("dp: 4"), 5, wide);
  whole = plain + "  scatter_gather: false\n";
  const auto alone = [](const std::string& one) { return validate(rows(one), library()).rows.at(0).predicted_s; };
  EXPECT_LT(alone(plain), alone(whole)) << "what tensor ranks do not share out is sent whole";
  std::vector<Row> both = rows(whole);
  both.push_back(rows(plain).front());
  const cost::Validation v = validate(both, library());
  ASSERT_EQ(v.rows.size(), 2U);
  EXPECT_EQ(v.rows[0].predicted_s, alone(whole));
  EXPECT_EQ(v.rows[1].predicted_s, alone(plain));
}

TEST(Validation, TakesWhatARowLeavesOpenAsTheStacksUsersHaveIt) {
  const auto spec = [](const std::string& more, const std::string& layers = "layers: 24",
                       const std::string& source = "source: NVIDIA") {
    std::string text = changed("stack: megatron-2021", "stack: megatron-core");
    text.replace(text.find("source: somebody 2021"), 21, source);
    text.replace(text.find("micro_batch: 4"), 14, "micro_batch: 1");
    text.replace(text.find("layers: 24"), 10, layers);
    Translator translator(library());
    const auto subject = translator.translate(rows(text + more)[0].setup);
    EXPECT_TRUE(subject.has_value());
    return subject->plan.spec();
  };
  EXPECT_TRUE(spec("").mesh.sequence_parallel);
  EXPECT_EQ(spec("").stages.virtual_stages, 6) << "twelve blocks a stage in chunks of two";
  EXPECT_FALSE(spec("  sequence_parallel: false\n").mesh.sequence_parallel);
  EXPECT_EQ(spec("  virtual_stages: 1\n").stages.virtual_stages, 1);
  EXPECT_EQ(spec("", "layers: 24", "source: somebody").stages.virtual_stages, 1) << "only its recipes interleave";
  EXPECT_TRUE(spec("", "layers: 24", "source: somebody").mesh.sequence_parallel);
  EXPECT_EQ(spec("", "layers: 26").stages.virtual_stages, 13) << "an odd number of layers: single ones";
  EXPECT_EQ(spec("", "layers: 2").stages.virtual_stages, 1) << "one layer a stage is a chunk already";
  EXPECT_EQ(spec("  pp_schedule: 1F1B\n").stages.virtual_stages, 1) << "an order that is named is meant";
  Translator old(library());
  EXPECT_FALSE(old.translate(rows(kRow)[0].setup)->plan.spec().mesh.sequence_parallel)
      << "Megatron-LM of 2021 has none";
}

TEST(Validation, RunsOnTheNetworkThatARowNames) {
  Library known = library();
  known.clusters = {*testing::cluster("aws-p5"), *testing::cluster("hgx-h100")};
  const auto told = [&](const std::string& link) {
    std::string text = changed("A100-SXM4-80GB", "H100-SXM5-80GB") + link;
    return validate(rows(text), known).rows.at(0);
  };
  const auto efa = told("  inter_node_link: AWS EFA\n"), infiniband = told("  inter_node_link: IB NDR 8x400Gb/s\n");
  EXPECT_GT(efa.predicted_s, infiniband.predicted_s);
  EXPECT_EQ(told("").predicted_s, infiniband.predicted_s) << "what most have";
  EXPECT_THAT(told("").notes, ::testing::Contains(HasSubstr("the network of hgx-h100")));
  EXPECT_THAT(told("  inter_node_link: Slingshot\n").notes, ::testing::Contains(HasSubstr("slingshot is treated as")));
}

TEST(Validation, DoesNotBelieveAVocabularyThatWasAssumed) {
  const auto notes = [](const char* key) {
    return validate(rows(changed("heads: 16", key)), library()).rows.at(0).notes;
  };
  EXPECT_THAT(notes("heads: 16\n  vocab: 51200"), ::testing::Not(::testing::Contains(HasSubstr("vocabulary"))));
  EXPECT_THAT(notes("heads: 16\n  vocab: 51200\n  vocab_note: assumed"),
              ::testing::Contains(HasSubstr("vocabulary of 50257")));
}

TEST(Validation, LeavesOutWhatItCannotExpressAndSaysWhy) {
  const cost::Validation unknown = validate(rows(changed("A100-SXM4-80GB", "Tomorrow-1")), library());
  ASSERT_EQ(unknown.left_out.size(), 1U);
  EXPECT_THAT(unknown.left_out[0].reason, HasSubstr("Tomorrow-1"));
  EXPECT_TRUE(unknown.left_out[0].scorable);
  const cost::Validation odd = validate(rows(changed("dp: 4", "dp: 5")), library());
  ASSERT_EQ(odd.left_out.size(), 1U);
  EXPECT_THAT(odd.left_out[0].reason, HasSubstr("16 devices"));
}

TEST(Validation, TakesTheClusterThatARowNamesIfTheCatalogueHasIt) {
  Library two = library();
  two.clusters.push_back(*testing::cluster("juwels-booster"));
  const auto of = [&](const std::string& name) {
    return validate(rows(changed("gpus_per_node: 8", "gpus_per_node: 4\n  cluster: " + name)), two).rows.at(0);
  };
  EXPECT_THAT(of("JUWELS Booster").notes, ::testing::Contains(HasSubstr("juwels-booster")));
  EXPECT_THAT(of("ours").notes, ::testing::Not(::testing::Contains(HasSubstr("juwels-booster"))));
}

TEST(Validation, TellsAGatedBlockOfUnknownFamilyByItsWordsOrItsSize) {
  const auto notes = [](const std::string& more) {
    return validate(rows(changed("family: gpt", "family: ours\n  vocab: 50257\n  ffn_hidden: 8192" + more)), library())
        .rows.at(0)
        .notes;
  };
  const auto llama = ::testing::Contains(HasSubstr("treated as llama"));
  EXPECT_THAT(notes("\n  activation: GeGLU"), llama);
  EXPECT_THAT(notes("\n  params_b: 1.7"), llama) << "24 (4 h^2 + 3 h f) and a table";
  EXPECT_THAT(notes("\n  params_b: 1.3"), ::testing::Not(llama)) << "24 (4 h^2 + 2 h f) and a table";
  EXPECT_THAT(notes(""), ::testing::Not(llama));
}

TEST(Validation, SlowerNetworksMakeSlowerSteps) {
  const auto predicted = [](const char* gbps) {
    return validate(
               rows(changed("  gpus: 16\n", std::string("  gpus: 16\n  inter_node_gbps_per_node: ") + gbps + "\n")),
               library())
        .rows.at(0)
        .predicted_s;
  };
  EXPECT_GT(predicted("100"), predicted("1600"));
}

TEST(Validation, ReadsHowStagesAreCutAndWhatIsRecomputed) {
  const auto plan_of = [](const std::string& text) { return validate(rows(text), library()).rows.at(0).plan; };
  EXPECT_THAT(plan_of(changed("recompute_kind: full", "recompute_kind: selective\n  sequence_parallel: true")),
              HasSubstr("selective"));
  // 22 layers on 2 x 3 chunks: 24 with embedding and head.
  std::string text = changed("layers: 24", "layers: 22\n  virtual_stages: 3");
  const cost::Validation v = validate(rows(text), library());
  EXPECT_TRUE(v.left_out.empty()) << v.left_out[0].reason;
}

TEST(ErrorSummary, InterpolatesBetweenRanks) {
  const cost::ErrorSummary s = summary_of({0.4, 0.1, 0.3, 0.2});
  EXPECT_EQ(s.count, 4);
  EXPECT_DOUBLE_EQ(s.median, 0.25);
  EXPECT_DOUBLE_EQ(s.mean, 0.25);
  EXPECT_NEAR(s.p90, 0.37, 1e-12);
}

}  // namespace validate_test
}  // namespace orrery::sim
