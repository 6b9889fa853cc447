// Names as strangers write them: of software, of machines, of models on a hub. The error says what to write instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace names_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Ran plan_of(const std::string& job) {
  const Scratch scratch;
  return orrery({"plan", scratch.file("job.yaml", job)});
}

TEST(Names, OfSoftwareLeadToTheNearestStackOfTheCatalogue) {
  for (const char* name : {"torchtitan", "FSDP2", "composer", "nemo", "llm.c", "gpt_neox", "accelerate", "jax", "zero",
                           "torchrec", "hugectr", "neo"}) {
    const Ran ran = plan_of("model: gpt2-124m\ncluster: hgx-h100\nbatch: 64\nstack: " + std::string(name) + "\n");
    EXPECT_EQ(ran.exit_code, 3) << name;
    EXPECT_THAT(ran.err, HasSubstr("error[E0203]")) << name;
    const std::string says = "the nearest is `";
    const std::size_t begin = ran.err.find(says) + says.size();
    ASSERT_NE(ran.err.find(says), std::string::npos) << ran.err;
    const std::string stack = ran.err.substr(begin, ran.err.find('`', begin) - begin);
    EXPECT_TRUE(fs::exists(fs::path(ORRERY_SOURCE_DIR) / "cost/stacks" / (stack + ".yaml"))) << stack;
  }
}

TEST(Names, ADotDoesNotMakeAPath) {
  const Ran machine = plan_of("model: gpt2-124m\ncluster: hgx.h100\nbatch: 64\n");
  EXPECT_THAT(machine.err, HasSubstr("no cluster `hgx.h100` in the catalogue"));
  EXPECT_THAT(machine.err, HasSubstr("did you mean `hgx-h100`?"));
}

TEST(Names, OfAClusterLeadToOneWithTheSameDevice) {
  const auto help = [](const std::string& name) {
    return plan_of("model: gpt2-124m\ncluster: " + name + "\nbatch: 64\n").err;
  };
  EXPECT_THAT(help("dgx-h100"), HasSubstr("did you mean `hgx-h100`?"));
  EXPECT_THAT(help("dgxh100"), HasSubstr("did you mean `hgx-h100`?")) << "not the nearer-looking dgx-a100";
  EXPECT_THAT(help("GB200-NVL72"), HasSubstr("gb200-nvl64"));
  EXPECT_THAT(help("GB200-NVL72"), Not(HasSubstr("lumi")));
  EXPECT_THAT(help("mi250x"), HasSubstr("with this device there are frontier, lumi"))
      << "not the nearer-looking mi350x";
  EXPECT_THAT(help("gh200"), HasSubstr("with this device there is alps"));
  EXPECT_THAT(help("h20"), AllOf(HasSubstr("with this device there is hgx-h20"), Not(HasSubstr("h200"))));
  EXPECT_THAT(help("rtx4090"), HasSubstr("with this device there is pcie-rtx-4090"));
}

TEST(Names, OfACloudsMachinesLeadToTheCatalogues) {
  const auto help = [](const std::string& name) {
    return plan_of("model: gpt2-124m\ncluster: " + name + "\nbatch: 64\n").err;
  };
  EXPECT_THAT(help("p5.48xlarge"), HasSubstr("did you mean one of `aws-p5`, `aws-p5en`?"));
  EXPECT_THAT(help("p4d.24xlarge"), HasSubstr("did you mean `aws-p4d`?"));
  EXPECT_THAT(help("a3-highgpu-8g"), AllOf(HasSubstr("did you mean `gcp-a3-mega`?"), Not(HasSubstr("pcie-a30"))));
  EXPECT_THAT(help("ND96isr_H100_v5"), HasSubstr("azure-nd96isr-h100-v5"));
}

TEST(Names, OfAClusterAreComparedFromWhereWordsBegin) {
  const auto help = [](const std::string& name) {
    return plan_of("model: gpt2-124m\ncluster: " + name + "\nbatch: 64\n").err;
  };
  EXPECT_THAT(help("t4"), AllOf(HasSubstr("with this device there is pcie-t4"), Not(HasSubstr("localhost"))));
  EXPECT_THAT(help("v4-8"), AllOf(HasSubstr("with this device there is tpu-v4"), Not(HasSubstr("azure"))));
  EXPECT_THAT(help("NDv5"), HasSubstr("did you mean `azure-nd96isr-h100-v5`?"));
  EXPECT_THAT(help("DGX-H100"), HasSubstr("did you mean `hgx-h100`?"));
  for (const char* none :
       {"a2-highgpu-8g", "a2-megagpu-16g", "a2-ultragpu-1g", "a4-highgpu-8g", "g6e", "m2-ultra", "m3", "x8-80gb"})
    EXPECT_THAT(help(none), HasSubstr("known: alps, aws-g5, ")) << none;
}

TEST(Names, OfAClusterLeadToOthersOfItsLine) {
  const auto help = [](const std::string& name) {
    return plan_of("model: gpt2-124m\ncluster: " + name + "\nbatch: 64\n").err;
  };
  EXPECT_THAT(help("p4de.24xlarge"), HasSubstr("did you mean `aws-p4d`?"));
  EXPECT_THAT(help("h100x8"), AllOf(HasSubstr("hgx-h100"), Not(HasSubstr("a100"))));
  EXPECT_THAT(help("nvl72"), HasSubstr("did you mean one of `gb200-nvl64`, `gb300-nvl64`?"));
  EXPECT_THAT(help("v5litepod-256"), HasSubstr("with this device there are tpu-v5e, tpu-v5p"));
  EXPECT_THAT(help("trn3"), HasSubstr("did you mean one of `aws-trn1`, `aws-trn2`?"));
}

TEST(Names, OfAModelWithAMinorVersionLeadToItsShape) {
  const auto help = [](const std::string& name) {
    return plan_of("model: " + name + "\ncluster: hgx-h100\nbatch: 64\n").err;
  };
  EXPECT_THAT(help("Llama-3.3-70B-Instruct"), HasSubstr("did you mean `llama3-70b`?"));
  EXPECT_THAT(help("meta-llama/Llama-3.1-8B"), HasSubstr("the catalogue has `llama3-8b`"));
  EXPECT_THAT(help("Qwen/Qwen2.5-7B"), HasSubstr("the catalogue has `qwen2.5-7b`"));
}

TEST(Names, OfAHubSayThatTheModelHasToBeHere) {
  const Ran ran = plan_of("model: meta-llama/Llama-2-7b-hf\ncluster: hgx-h100\nbatch: 64\n");
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("config.json"));
}

TEST(Names, OfAFileThatIsMissingSayFromWhereItIsLookedFor) {
  const Ran ran = plan_of("model: ./mine.yaml\ncluster: hgx-h100\nbatch: 64\n");
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("it is relative to the folder of"));
  EXPECT_THAT(ran.err, Not(HasSubstr("relative to the current folder")));
  EXPECT_THAT(orrery({"plan", "missing.yaml"}).err, HasSubstr("relative to the current folder"));
}

TEST(Names, APlanOrAJobWhereAModelOrAClusterIsExpectedIsNamed) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan, "--force"}).exit_code, 0);
  const Ran a = orrery({"model", plan}), b = orrery({"model", job}), c = orrery({"explain", "--cluster", plan});
  EXPECT_THAT(a.err, HasSubstr("this is a plan, but a model is expected"));
  EXPECT_THAT(b.err, HasSubstr("this is a job, but a model is expected"));
  EXPECT_THAT(c.err, HasSubstr("this is a plan, but a cluster is expected"));
  for (const Ran& ran : {a, b, c}) {
    EXPECT_EQ(ran.exit_code, 3);
    EXPECT_EQ(ran.err.find("error["), ran.err.rfind("error[")) << "one error, not one for each key";
  }
}

TEST(Names, ZeroOnOneReplicaIsAcceptedAndSaidToBeNothing) {
  const Ran ran = plan_of("model: gpt2-124m\ncluster: localhost-2\nbatch: 8\nplan: {tensor: 2, zero_stage: 1}\n");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("warning[P12]"));
}

TEST(Names, DegreesThatDoNotFillTheClusterAreCounted) {
  const Ran ran = plan_of("model: llama2-7b\ncluster: hgx-h100\nbatch: 60\nplan: {data: 8, tensor: 2}\n");
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("data 8 x tensor 2 takes 16 devices, but the cluster has 8"));
  const Ran batch = plan_of("model: llama2-7b\ncluster: hgx-h100\nbatch: 3\nplan: {data: 8}\n");
  EXPECT_EQ(batch.exit_code, 4);
  EXPECT_THAT(batch.err, HasSubstr("3"));
}

}  // namespace names_test
}  // namespace orrery::tests
