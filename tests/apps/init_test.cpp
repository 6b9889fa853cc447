// init: what it writes is a job that the other verbs take, and it loses nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace init_test {

TEST(Init, WritesAJobThatPlanTakes) {
  const Scratch folder;
  const std::string job = (folder.path() / "job.yaml").string();
  EXPECT_EQ(orrery({"init", job, "--sequence", "64"}).exit_code, 0);
  const Ran planned = orrery({"plan", job, "--top", "1"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
}

TEST(Init, SaysEveryKeyOfAPlanAsItMayBeGiven) {
  const Scratch folder;
  const std::string job = (folder.path() / "job.yaml").string();
  ASSERT_EQ(orrery({"init", job, "--sequence", "64", "--batch", "8", "--cluster", "localhost-2"}).exit_code, 0);
  const std::string text = text_of(job);
  const std::size_t begin = text.find("# plan:\n"), end = text.find("\ntraining:");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(text.substr(begin + 8, end - begin - 8));
  int keys = 0;
  std::string group;
  for (std::string line; std::getline(lines, line); ++keys) {
    ASSERT_LE(line.size(), 100U) << line;
    if (line.rfind("  ##", 0) == 0) {
      --keys;
      continue;
    }
    ASSERT_EQ(line.rfind("  # ", 0), 0U) << line;
    const std::string bare = "  " + line.substr(4);
    if (bare.rfind("    ", 0) != 0) group.clear();
    if (bare.back() == ':') {
      group = bare + "\n";
      continue;
    }
    std::ofstream((folder.path() / "one.yaml").string()) << text.substr(0, begin) << "plan:\n"
                                                         << group << bare << text.substr(end);
    const Ran ran = orrery({"plan", (folder.path() / "one.yaml").string(), "--top", "1"});
    EXPECT_TRUE(ran.exit_code == 0 || ran.exit_code == 4) << bare << "\n" << ran.err;
  }
  EXPECT_GT(keys, 25);
  // No value of theirs leaves a plan as it is, so none is proposed.
  for (const char* key : {"staleness", "recompute_layers"}) {
    EXPECT_NE(text.find(std::string("  ## ") + key + ": "), std::string::npos) << text;
    EXPECT_EQ(text.find(std::string("  # ") + key), std::string::npos);
  }
  EXPECT_EQ(text.find("custom"), std::string::npos) << "a job names the file of its order";
  EXPECT_NE(text.find("my-order.csv"), std::string::npos);
}

TEST(Init, TakesItsFileAsOtherVerbsDo) {
  const Scratch folder;
  const std::string job = (folder.path() / "job.yaml").string();
  EXPECT_EQ(orrery({"init", "-o", job}).exit_code, 0);
  EXPECT_NE(text_of(job).find("orrery plan " + job), std::string::npos) << text_of(job);
}

TEST(Init, WritesPathsAsAJobInItsFolderReadsThem) {
  const Scratch folder;
  std::filesystem::create_directories(folder.path() / "jobs");
  std::filesystem::create_directories(folder.path() / "hf");
  folder.file("hf/config.json", R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,)"
                                R"( "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256,)"
                                R"( "max_position_embeddings": 131072, "rms_norm_eps": 1e-5})");
  const Where here{.folder = folder.path()};
  ASSERT_EQ(orrery({"init", "jobs/job.yaml", "--model", "hf", "--cluster", "localhost-2"}, here).exit_code, 0);
  const std::string text = text_of(folder.path() / "jobs/job.yaml");
  EXPECT_NE(text.find("../hf"), std::string::npos) << text;
  EXPECT_NE(text.find("sequence: 8192"), std::string::npos) << "not the longest that it was ever trained on";
  const Ran planned = orrery({"plan", "jobs/job.yaml", "--top", "1", "--set", "sequence=64"}, here);
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
}

TEST(Init, CountsSamplesWhereAModelReadsClicks) {
  const Ran ran = orrery({"init", "-", "--model", "dlrm-criteo", "--cluster", "dgx-a100"});
  EXPECT_NE(ran.out.find("batch: 4096"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("samples of a step"), std::string::npos);
}

TEST(Init, ChoosesWhatTheDevicesTrainIn) {
  for (const auto& [cluster, precision] :
       {std::pair("hgx-h100", "bf16"), std::pair("dgx-1v", "fp16"), std::pair("localhost-2", "fp32")}) {
    const Ran ran = orrery({"init", "-", "--model", "gpt2-124m", "--cluster", cluster});
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_NE(ran.out.find(std::string("precision: ") + precision), std::string::npos) << cluster;
  }
}

TEST(Init, ReplacesNoFileUnasked) {
  const Scratch folder;
  const std::string job = (folder.path() / "job.yaml").string();
  std::ofstream(job) << "mine\n";
  const Ran ran = orrery({"init", job});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.err.find("U0003"), std::string::npos) << ran.err;
  EXPECT_EQ(text_of(job), "mine\n");
  EXPECT_EQ(orrery({"init", job, "--overwrite"}).exit_code, 0);
  EXPECT_NE(text_of(job), "mine\n");
}

TEST(Init, NamesAModelThatIsNotThere) {
  EXPECT_EQ(orrery({"init", "-", "--model", "gpt5"}).exit_code, 3);
}

}  // namespace init_test
}  // namespace orrery::tests
