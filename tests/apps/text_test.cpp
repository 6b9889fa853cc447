// Text through the binaries: a run on encoded text, evaluated, sampled and exported, and trained from what was
// exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace text_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LoopText : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(ORRERY_BINARY).parent_path() / "orrery-worker")) GTEST_SKIP() << "the worker is not built";
    std::string text;
    for (int i = 0; i < 400; ++i) text += "The planets turn with it, and the Earth turns. ";
    scratch_.file("text/a.txt", text);
    scratch_.file("text/b.txt", "It doesn't rest<|endoftext|>" + text);
    scratch_.file("model.yaml",
                  "name: small\nfamily: gpt\nlayers: 2\nhidden: 32\nheads: 4\nvocab: 768\nmax_sequence: 64\n");
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::string planned(const std::string& name, const std::string& more, const std::string& bounds) {
    const std::string job =
        scratch_.file(name + "-job.yaml",
                      "model: model.yaml\ncluster: localhost-2\nbatch: 4\nsequence: 32\n"
                      "plan: " +
                          bounds + "\ntraining: {steps: 4, data: text, tokenizer: " + std::string(ORRERY_SOURCE_DIR) +
                          "/tests/golden/bpe" + more + "}\n");
    const Ran ran = orrery({"plan", job, "--gpus", "2", "-o", path(name + ".yaml")});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return path(name + ".yaml");
  }
  Scratch scratch_;
};

TEST_F(LoopText, IsEncodedTrainedEvaluatedSampledAndExported) {
  const std::string plan =
      planned("first", ", evaluation: {data: text/a.txt, every: 2, batches: 2}", "{pipeline: 2, micro_batch: 1}");
  const nlohmann::json predicted = orrery({"simulate", plan, "--json"}).result();
  expect_keys(predicted.at("evaluation"), {"time_s", "batch_time_s", "every_steps"});
  EXPECT_LT(predicted.at("evaluation").at("batch_time_s").get<double>(), predicted.at("step_time_s").get<double>());

  const std::vector<std::string> greedy = {"--sample", "--temperature", "0",          "--tokens",
                                           "12",       "--prompt",      "The planets"};
  std::vector<std::string> line = {"train", plan, "--run", path("run"), "--json"};
  line.insert(line.end(), greedy.begin(), greedy.end());
  const Ran trained = orrery(line);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("steps"), 4);
  EXPECT_EQ(trained.result().at("sample").at("prompt"), "The planets");
  EXPECT_TRUE(fs::exists(scratch_.path() / "run/tokens/held-out.bin"));
  EXPECT_THAT(text_of(scratch_.path() / "run/metrics.jsonl"), HasSubstr("\"held_out_loss\":"));

  line = {"train", "--run", path("run"), "--json"};
  line.insert(line.end(), greedy.begin(), greedy.end());
  const Ran again = orrery(line);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.result().at("sample"), trained.result().at("sample")) << "the most likely text is one text";
  line.erase(line.begin() + 3);  // --json: for people the prompt stands before it
  EXPECT_THAT(orrery(line).out, HasSubstr("The planets"));

  const Ran exported = orrery({"export", path("run"), "-o", path("out"), "--json"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  expect_keys(exported.result(), {"run", "step", "folder", "tensors", "parameters", "bytes"});
  EXPECT_EQ(exported.result().at("step"), 4);
  const nlohmann::json model = orrery({"model", path("out/config.json"), "--json"}).result();
  EXPECT_EQ(model.at("parameters"), exported.result().at("parameters"));
  const std::string next = planned("next", ", initial_weights: out", "{tensor: 2, micro_batch: 4}");
  const Ran more = orrery({"train", next, "--run", path("more"), "--json"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_LT(more.result().at("first_loss").get<double>(), trained.result().at("first_loss").get<double>());
}

TEST_F(LoopText, SaysWhatItLacks) {
  EXPECT_EQ(orrery({"export", path("nothing")}).exit_code, 2) << "no folder";
  EXPECT_EQ(orrery({"train", "--run", path("nothing")}).exit_code, 2) << "no plan, and no text asked for";
  EXPECT_NE(orrery({"train", "--run", path("nothing"), "--sample"}).exit_code, 0);
  const Ran none = orrery({"export", path("nothing"), "-o", path("out")});
  EXPECT_EQ(none.exit_code, 3);
  const std::string plan = planned("small", "", "{data: 2, micro_batch: 2}");
  std::string other = text_of(plan);
  other.replace(other.find("vocab: 768"), 10, "vocab: 300");
  const Ran small = orrery({"train", scratch_.file("small.yaml", other), "--run", path("small"), "--json"});
  EXPECT_EQ(small.exit_code, 3);
  EXPECT_EQ(small.envelope().at("diagnostics").at(0).at("code"), "E0618");
}

}  // namespace text_test
}  // namespace orrery::tests
