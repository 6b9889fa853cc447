/// What a row leaves open follows from the rest of it, or from what most do, and the prediction says so.
#include "sim/validate/unstated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace unstated_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Library library() {
  Library out;
  out.clusters = {*testing::cluster("dgx-a100-80gb"), *testing::cluster("hgx-h100")};
  out.stacks = {testing::stack("megatron-core"), testing::stack("generic-eager")};
  out.models = {*testing::model("llama3-8b")};
  return out;
}

/// A row of 16 A100s with these keys besides.
Row row(const std::string& keys) {
  const auto parsed = parse_rows(
      "results:\n- {id: a, source: s, kind: training, verified: true, stack: megatron-core, "
      "family: gpt, seq_len: 2048, vocab: 51200, gpus: 16, gpu_type: A100-SXM4-80GB, "
      "precision_kind: bf16, " +
          keys + "}\n",
      "rows.yaml");
  EXPECT_TRUE(parsed.has_value());
  return parsed->at(0);
}
Setup setup(const std::string& keys) {
  return row(keys).setup;
}

const std::string kShape = "layers: 24, hidden: 2048, heads: 16, ";

TEST(Unstated, ADegreeFollowsFromTheDevicesAndTheOthers) {
  EXPECT_EQ(setup("tp: 2, pp: 2, global_batch: 64").data, 4);
  EXPECT_EQ(setup("tp: 2, dp: 4, cp: 2, global_batch: 64").pipeline, 1);
  EXPECT_EQ(setup("dp: 16, global_batch: 64").tensor, 1) << "all devices are replicas";
  EXPECT_EQ(setup("tp: 16, global_batch: 64").pipeline, 1) << "they are all one tensor group's";
  EXPECT_EQ(setup("tp: 16, global_batch: 64").data, 1);
  EXPECT_EQ(setup("tp: 8, cp: 2, global_batch: 64").pipeline, 1);
  EXPECT_EQ(setup("tp: 8, global_batch: 64").pipeline, std::nullopt) << "two are left: stages or replicas";
  const sim::Setup sharded = setup("zero_stage: 3, global_batch: 64");
  EXPECT_EQ(sharded.data, 16);
  EXPECT_THAT(sharded.assumed, Contains("filled in: no tensor parallelism"));
  EXPECT_EQ(setup("tp: 3, pp: 2, global_batch: 64").data, std::nullopt) << "16 devices are no multiple of 6";
  EXPECT_EQ(setup("pp: 2, global_batch: 64").data, std::nullopt) << "tensor 1, 2, 4 or 8";
  EXPECT_EQ(setup("zero_stage: 3, dp: 4, global_batch: 64").tensor, 4) << "the row says that not all are replicas";
  EXPECT_EQ(setup("tp: 8 (SP), zero_stage: 3, global_batch: 64").tensor, std::nullopt) << "stated, in words";
  EXPECT_FALSE(parse_rows("results:\n- {id: a, dp: 4294967304}\n", "rows.yaml").has_value());
}

TEST(Unstated, NumbersThatContradictEachOtherAreTheReasonToLeaveARowOut) {
  const auto why = [](const std::string& keys) { return unscorable(setup(kShape + keys)); };
  EXPECT_THAT(why("tp: 3, pp: 2, global_batch: 64"), HasSubstr("do not divide 16 devices"));
  EXPECT_THAT(why("dp: 16, global_batch: 60"), HasSubstr("does not divide among 16 replicas"));
  EXPECT_THAT(why("dp: 16, global_batch: 64, grad_accum: 3"), HasSubstr("not accumulated in 3 steps"));
  EXPECT_EQ(why("dp: 16, global_batch: 64, grad_accum: 2"), "");
}

TEST(Unstated, AMicroBatchFollowsFromTheBatchOfAReplica) {
  const sim::Setup steps = setup("tp: 2, pp: 2, dp: 4, global_batch: 64, grad_accum: 8");
  EXPECT_EQ(steps.micro_batch, 2);
  EXPECT_FALSE(steps.open_micro_batch);
  EXPECT_EQ(setup("dp: 16, tp: 1, pp: 1, global_batch: 64, local_batch: 4").micro_batch, 4);
  EXPECT_EQ(setup("dp: 16, tp: 1, pp: 1, local_batch: 4").batch, 64);
  EXPECT_EQ(setup("dp: 4, tp: 2, pp: 2, micro_batch: 2, grad_accum: 8").batch, 64);
  EXPECT_EQ(setup("dp: 4, tp: 1, pp: 4, local_batch: 16").micro_batch, 4) << "as many micro-batches as stages";
  const sim::Setup open = setup("dp: 16, tp: 1, pp: 1, global_batch: 64");
  EXPECT_EQ(open.micro_batch, 4);
  EXPECT_TRUE(open.open_micro_batch);
  EXPECT_EQ(setup("dp: 4, tp: 1, pp: 4, global_batch: 64").micro_batch, 1) << "of a pipeline";
  EXPECT_EQ(setup("dp: 4, tp: 2, pp: 2, global_batch: 66").micro_batch, std::nullopt) << "no whole batch of a replica";
}

TEST(Unstated, AnOpenMicroBatchIsHalvedUntilItFits) {
  const std::string wide = "layers: 40, hidden: 5120, heads: 40, tp: 2, pp: 1, dp: 8, recompute_kind: none, ";
  const cost::Validation v = validate({row(wide + "global_batch: 64, iter_time_s: 5")}, library());
  ASSERT_EQ(v.rows.size(), 1U);
  EXPECT_THAT(v.rows[0].notes, Contains(HasSubstr("micro-batches of ")));
  EXPECT_THAT(v.rows[0].notes, Not(Contains("filled in: micro-batches of 8"))) << "40 layers of 8 sequences do not fit";
  Row died = row(wide + "global_batch: 64");
  died.setup.kind = kOutOfMemory;
  const cost::Validation other = validate({died}, library());
  ASSERT_EQ(other.rows.size(), 1U);
  EXPECT_THAT(other.rows[0].notes, Contains("filled in: micro-batches of 8")) << "it died";
}

TEST(Unstated, HeadsHave128ColumnsWhereThatDividesThem) {
  sim::Setup open = setup("layers: 24, hidden: 2048, tp: 2, pp: 1, dp: 8, global_batch: 64");
  take_shape(open, {});
  EXPECT_EQ(open.heads, 16);
  EXPECT_THAT(open.assumed, Contains("filled in: 16 heads, of 128 columns"));
  sim::Setup narrow = setup("layers: 24, hidden: 1600, tp: 1, pp: 1, dp: 16, global_batch: 64");
  take_shape(narrow, {});
  EXPECT_EQ(narrow.heads, 25);
  sim::Setup odd = setup("layers: 24, hidden: 2040, tp: 1, pp: 1, dp: 16, global_batch: 64");
  take_shape(odd, {});
  EXPECT_EQ(odd.heads, std::nullopt);
  EXPECT_THAT(unscorable(odd), HasSubstr("heads"));
  const auto heads = [](const std::string& keys) {
    sim::Setup one = setup("layers: 24, tp: 1, pp: 1, dp: 16, global_batch: 64, " + keys);
    take_shape(one, {});
    return one.heads;
  };
  EXPECT_EQ(heads("hidden: 4096, head_dim: 64"), 64);
  EXPECT_EQ(heads("hidden: 3072, kv_heads: 16"), 48) << "24 heads are no whole groups";
}

TEST(Unstated, AModelOfTheCatalogueGivesItsShape) {
  sim::Setup named = setup("model: Llama 3.1 8B, tp: 2, pp: 1, dp: 8, global_batch: 64");
  take_shape(named, library().models);
  EXPECT_EQ(named.layers, 32);
  EXPECT_EQ(named.catalogued, "llama3-8b");
  EXPECT_THAT(named.assumed, Contains("filled in: the shape of llama3-8b"));
  sim::Setup stated = setup(kShape + "model: llama3-8b, tp: 2, pp: 1, dp: 8, global_batch: 64");
  take_shape(stated, library().models);
  EXPECT_EQ(stated.layers, 24) << "what a row states stays";
  EXPECT_EQ(stated.catalogued, "");
  sim::Setup scaled = setup("model: llama3-8b, layers: 16, hidden: 2048, tp: 2, pp: 1, dp: 8, global_batch: 64");
  take_shape(scaled, library().models);
  EXPECT_EQ(scaled.catalogued, "") << "another width than the catalogue's";
  EXPECT_EQ(scaled.heads, 16);
}

TEST(Unstated, AFamilyThatIsOpenIsTheNamedModelsWhateverElseTheRowStates) {
  const auto seconds = [](const std::string& keys) {
    Row one = row(keys + "tp: 2, pp: 1, dp: 8, global_batch: 64, micro_batch: 1, recompute_kind: full, iter_time_s: 9");
    one.setup.family.clear();
    one.setup.vocab.reset();
    return validate({one}, library()).rows.at(0).predicted_s;
  };
  const double named = seconds("model: Llama 3.1 8B, ");
  EXPECT_EQ(seconds("model: llama3-8b, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn_hidden: 14336, "), named);
  EXPECT_NE(seconds("layers: 32, hidden: 4096, heads: 32, "), named) << "nobody says what it is";
}

TEST(Unstated, AThroughputIsAStepTime) {
  const std::string split = "tp: 2, pp: 2, dp: 4, micro_batch: 4, global_batch: 64, ";
  EXPECT_DOUBLE_EQ(row(split + "tokens_per_s: 65536").measured.seconds.value(), 2);
  EXPECT_DOUBLE_EQ(row(split + "tokens_per_s_per_gpu: 4096").measured.seconds.value(), 2);
  EXPECT_DOUBLE_EQ(row(split + "samples_per_s: 32").measured.seconds.value(), 2);
  EXPECT_DOUBLE_EQ(row(split + "samples_per_s: 32, iter_time_s: 3").measured.seconds.value(), 3);
  EXPECT_FALSE(row("tp: 2, pp: 2, dp: 4, micro_batch: 4, tokens_per_s: 65536").measured.seconds) << "no batch";
}

TEST(Unstated, WordsOnOffloadAreRead) {
  EXPECT_EQ(setup("offload: params+optimizer to CPU").offload_optimizer, "host");
  EXPECT_EQ(setup("offload: params+optimizer to CPU").offload_parameters, "host");
  EXPECT_EQ(setup("offload: optimizer to CPU").offload_parameters, "");
  EXPECT_EQ(setup("offload: optimizer to NVMe").offload_optimizer, "nvme");
  EXPECT_EQ(setup("offload: NVMe/CPU").offload_optimizer, "") << "what is where is open";
  EXPECT_EQ(setup("offload: optimizer to CPU, offload_optimizer: nvme").offload_optimizer, "nvme");
}

}  // namespace unstated_test
}  // namespace orrery::sim
