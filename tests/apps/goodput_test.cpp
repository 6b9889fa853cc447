// simulate with failures: what its flags ask for, and what stands in the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace goodput_test {

using nlohmann::json;
using ::testing::HasSubstr;

class SimulatedFailures : public ::testing::Test {
 protected:
  std::string plan(const std::string& name, const std::string& job) const {
    const std::string out = (scratch_.path() / (name + ".yaml")).string();
    const Ran ran = orrery({"plan", scratch_.file(name + "-job.yaml", job), "-o", out});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return out;
  }
  std::string cores() const {
    return plan("cores",
                "model: tiny-gpt\ncluster: localhost-2\nbatch: 4\nsequence: 32\n"
                "training: {steps: 1000}\nplan: {data: 2, micro_batch: 2, zero_stage: 1}\n");
  }
  std::string gpus() const {
    return plan("gpus",
                "model: llama2-7b\ncluster: hgx-h100\nbatch: 64\nsequence: 2048\nprecision: bf16\n"
                "plan: {data: 1, tensor: 8, pipeline: 1, micro_batch: 1, recompute: full}\n");
  }
  static json simulate(const std::string& plan, std::vector<std::string> flags) {
    std::vector<std::string> all = {"simulate", plan, "--json"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ran ran = orrery(all);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result();
  }
  Scratch scratch_;
};

TEST_F(SimulatedFailures, GpusFailAsAGoodFleetDoesAndCpuRanksOnlyWhenAsked) {
  const json result = simulate(gpus(), {});
  const json& goodput = result.at("goodput");
  EXPECT_NEAR(goodput.at("mtbf_s").get<double>() / 3600, 50'677 / 8.0, 1);
  EXPECT_THAT(goodput.at("failure_source").get<std::string>(), HasSubstr("Llama 3"));
  EXPECT_GT(goodput.at("goodput").get<double>(), 0.999);
  EXPECT_EQ(goodput.at("best").at("checkpoint_every_steps"), goodput.at("checkpoint_every_steps"));
  const json& checkpoint = result.at("checkpoint");
  expect_keys(checkpoint, {"bytes", "largest_rank_bytes", "bytes_by_rank", "pause_s", "copy_s", "commit_s", "write_s"});
  EXPECT_NEAR(checkpoint.at("bytes").get<double>(), 12 * 6'738'415'616.0, 1e9);
  EXPECT_EQ(checkpoint.at("bytes_by_rank").size(), 8U);

  const json calm = simulate(cores(), {});
  EXPECT_TRUE(calm.at("goodput").is_null());
  EXPECT_EQ(calm.at("checkpoint").at("bytes_by_rank").size(), 2U);
  EXPECT_THAT(orrery({"simulate", cores()}).out, HasSubstr("holds up the steps for"));
}

TEST_F(SimulatedFailures, AreWeighedAgainstCheckpoints) {
  const std::string file = cores();
  const std::vector<std::string> usual = {"--mtbf",
                                          "1 h",
                                          "--step-time",
                                          "1 s",
                                          "--restart-time",
                                          "5 min",
                                          "--checkpoint-pause",
                                          "30 s",
                                          "--checkpoint-write",
                                          "0 s"};
  const json best = simulate(file, usual).at("goodput");
  // T* of C = 30 s, M = 1 h; exp(-300/3600) T / (M (exp((T + C) / M) - 1)) there.
  EXPECT_NEAR(best.at("checkpoint_every_steps").get<double>(), 445, 1);
  EXPECT_NEAR(best.at("goodput").get<double>(), 0.80632, 1e-5);
  EXPECT_NEAR(best.at("young_every_s").get<double>(), 464.76, 0.01);
  EXPECT_NEAR(best.at("run_time_s").get<double>(), 1000 / best.at("goodput").get<double>(), 1e-6);
  double shares = 0;
  for (const auto& [name, share] : best.at("shares").items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-9);
  std::vector<std::string> seldom = usual;
  seldom.insert(seldom.end(), {"--checkpoint-every", "3600"});
  const json worse = simulate(file, seldom).at("goodput");
  EXPECT_EQ(worse.at("checkpoint_every_steps"), 3600);
  EXPECT_LT(worse.at("goodput").get<double>(), best.at("goodput").get<double>() - 0.2);
  EXPECT_EQ(worse.at("best").at("checkpoint_every_steps"), best.at("checkpoint_every_steps"));
  EXPECT_GT(worse.at("lost_work_per_failure_s").get<double>(), 1000);
  const json calm = simulate(file, {"--mtbf", "inf"}).at("goodput");
  EXPECT_EQ(calm.at("goodput"), 1);
  EXPECT_TRUE(calm.at("mtbf_s").is_null());
  EXPECT_TRUE(calm.at("checkpoint_every_steps").is_null());
  const json rate = simulate(file, {"--failures-per-gpu-hour", "0.5"}).at("goodput");
  EXPECT_NEAR(rate.at("mtbf_s").get<double>(), 3600, 1e-6) << "two devices";
}

TEST_F(SimulatedFailures, MayComeAtAFixedPeriod) {
  const json result = simulate(cores(), {"--fault-period", "30 s", "--restart-time", "4 s", "--checkpoint-every", "10",
                                         "--step-time", "100 ms", "--checkpoint-pause", "50 ms", "--checkpoint-write",
                                         "150 ms", "--run-tokens", "1.28e6"})
                          .at("goodput");
  // Cycles of 1.05 s in 30 - 4 - 0.2 s, less a half, of 1 s each.
  EXPECT_NEAR(result.at("goodput").get<double>(), (25.8 / 1.05 - 0.5) / 30, 1e-9);
  EXPECT_EQ(result.at("periodic").at("period_s"), 30);
  EXPECT_NEAR(result.at("periodic").at("regular_goodput").get<double>(), 24.0 / 30, 1e-9);
  EXPECT_EQ(result.at("steps"), 10'000);
  EXPECT_TRUE(result.at("best").is_null());
}

TEST_F(SimulatedFailures, WrongFlagsAreUsageErrors) {
  const std::string file = cores();
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--mtbf", "3"},
                                             {"--mtbf", "0 s"},
                                             {"--mtbf", "-1 h"},
                                             {"--mtbf", "1 GB"},
                                             {"--mtbf", "nan"},
                                             {"--mtbf", "1 h", "--fleet", "good"},
                                             {"--fleet", "perfect"},
                                             {"--failures-per-gpu-hour", "0"},
                                             {"--failures-per-gpu-hour", "nan"},
                                             {"--fault-period", "30 s"},
                                             {"--checkpoint-every", "0"},
                                             {"--restart-time", "1e999 s"},
                                             {"--step-time", "0 s"},
                                             {"--checkpoint-pause", "-1 s"},
                                             {"--run-tokens", "0"}}) {
    std::vector<std::string> all = {"simulate", file};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ran ran = orrery(all);
    EXPECT_EQ(ran.exit_code, 2) << flags[0] << " " << flags[1] << "\n" << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("U0001"));
  }
}

}  // namespace goodput_test
}  // namespace orrery::tests
