// Words of other tools in a job: the message names ours.
#include "plan/spec/synonyms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/job.h"

namespace orrery::plan {
namespace synonyms_test {

std::string said(const std::string& more) {
  const auto job = parse_job("model: tiny-gpt\ncluster: localhost-2\nbatch: 8\n" + more, "job.yaml");
  return job ? std::string("accepted") : base::render(job.error(), false);
}

TEST(Synonyms, KeysOfOtherToolsAreNamedInOurs) {
  using ::testing::HasSubstr;
  EXPECT_THAT(said("plan: {tp: 2}\n"), HasSubstr("unknown key `tp` in `plan`"));
  EXPECT_THAT(said("plan: {tp: 2}\n"), HasSubstr("here it is called `tensor`"));
  EXPECT_THAT(said("plan: {PP: 2}\n"), HasSubstr("here it is called `pipeline`"));
  EXPECT_THAT(said("plan: {zero: 2}\n"), HasSubstr("here it is called `zero_stage`"));
  EXPECT_THAT(said("training: {optimizer: {lr: 1e-3}}\n"), HasSubstr("here it is called `learning_rate`"));
  EXPECT_THAT(said("training: {lr: 1e-3}\n"), HasSubstr("here it is called `optimizer: {learning_rate"));
  EXPECT_THAT(said("dtype: bf16\n"), HasSubstr("here it is called `precision`"));
}

TEST(Synonyms, AKeyOfAnotherToolIsShownItselfAndIsNoneOfTheKnownOnes) {
  using ::testing::HasSubstr;
  const std::string text = said("plan:\n  tp: 4\n  pipelin: 2\n");
  EXPECT_THAT(text, HasSubstr("job.yaml:5:3\n")) << "the key, not its value";
  EXPECT_THAT(text, HasSubstr("known keys: data, tensor, pipeline,"));
}

TEST(Synonyms, KeysOfThePlanAtTheTopOfAJobAreToldWhereTheyBelong) {
  using ::testing::HasSubstr;
  EXPECT_THAT(said("tp: 2\n"), HasSubstr("it belongs in `plan`: `plan: {tensor: 2}`"));
  EXPECT_THAT(said("PP: 4\n"), HasSubstr("`plan: {pipeline: 4}`"));
  EXPECT_THAT(said("zero: 1\n"), HasSubstr("`plan: {zero_stage: 1}`"));
  EXPECT_THAT(said("tensor: 2\n"), HasSubstr("`plan: {tensor: 2}`"));
  EXPECT_THAT(said("fsdp: true\n"), HasSubstr("`plan: {zero_stage: 3}`"));
  EXPECT_THAT(said("plan: {recomputation: full}\n"), HasSubstr("here it is called `recompute`"));
}

TEST(Synonyms, AKeyInAnotherMapIsToldWhereItBelongs) {
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_THAT(said("seed: 1\n"), HasSubstr("it belongs in `training`: `training: {seed: 1}`"));
  EXPECT_THAT(said("learning_rate: 1e-4\n"),
              HasSubstr("it belongs in `training.optimizer`: `training: {optimizer: {learning_rate: 1e-4}}`"));
  EXPECT_THAT(said("lora: {rank: 16}\n"), HasSubstr("`training: {lora: …}`"));
  EXPECT_THAT(said("plan: {optimizer: {name: lion}}\n"), HasSubstr("it belongs in `training`"));
  EXPECT_THAT(said("training: {micro_batch: 1}\n"), HasSubstr("it belongs in `plan`: `plan: {micro_batch: 1}`"));
  EXPECT_THAT(said("training: {optimizer: {steps: 3}}\n"), HasSubstr("it belongs in `training`"));
  EXPECT_THAT(said("plan: {batch: 3}\n"), HasSubstr("it belongs at the top of the job: `batch: 3`"));
  EXPECT_THAT(said("training: {precision: bf16}\n"), HasSubstr("it belongs at the top of the job: `precision: bf16`"));
  EXPECT_THAT(said("momentum: 0.9\n"), HasSubstr("`training: {optimizer: {momentum: 0.9}}`")) << "SGD's";
  const std::string twice = said("data: 4\n");
  EXPECT_THAT(twice, HasSubstr("it belongs in `plan` or `training`: `plan: {data: 4}` or `training: {data: 4}`"));
  EXPECT_EQ(twice.find("E0103"), twice.rfind("E0103")) << twice;
  EXPECT_THAT(said("colour: red\n"), Not(HasSubstr("it belongs")));
}

TEST(Synonyms, ABatchInTokensAndAMapForANameAreToldWhatIsMeant) {
  using ::testing::HasSubstr;
  const auto job = [](const std::string& text) {
    const auto read = parse_job(text, "job.yaml");
    return read ? std::string("accepted") : base::render(read.error(), false);
  };
  const std::string tokens = job("model: tiny-gpt\ncluster: localhost-2\nbatch: 4M\n");
  EXPECT_THAT(tokens, HasSubstr("`batch` counts sequences, found `4M`"));
  EXPECT_EQ(tokens.find("E0105"), tokens.rfind("E0105")) << tokens;
  const std::string map = job("model: tiny-gpt\ncluster: {like: hgx-h100, nodes: 4}\nbatch: 8\n");
  EXPECT_THAT(map, HasSubstr("`cluster` must be a name, found a map"));
  EXPECT_THAT(map, HasSubstr("`cluster: my-cluster.yaml`"));
  EXPECT_THAT(said("sequence: 4k\n"), HasSubstr("`sequence: 4096`: in lengths of sequences a k is 1,024"));
  EXPECT_EQ(map.find("error["), map.rfind("error[")) << map;
}

TEST(Synonyms, ValuesOfOtherToolsAreNamedInOursAndOnce) {
  using ::testing::HasSubstr;
  EXPECT_THAT(said("precision: BF16\n"), HasSubstr("did you mean `bf16`?"));
  EXPECT_THAT(said("precision: float16\n"), HasSubstr("here it is called `fp16`"));
  EXPECT_THAT(said("plan: {schedule: interleaved}\n"), HasSubstr("`1f1b` with `virtual_stages: 2`"));
  EXPECT_THAT(said("plan: {schedule: [1f1b, interleaved]}\n"), HasSubstr("E0106"));
  EXPECT_THAT(said("plan: {recompute: true}\n"), HasSubstr("here it is called `full`"));
  const std::string once = said("precision: float16\n");
  EXPECT_EQ(once.find("E0106"), once.rfind("E0106")) << once;
  EXPECT_EQ(said("precision: fp16\nplan: {schedule: 1f1b, tensor: 2, zero_stage: 1}\n"), "accepted");
}

}  // namespace synonyms_test
}  // namespace orrery::plan
