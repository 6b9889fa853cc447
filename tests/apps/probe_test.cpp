// probe through the binary: what it says of this machine, the files it writes, and a measurement (slow).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <thread>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace probe_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kJob =
    "model: tiny-gpt\ncluster: here.yaml\nbatch: 4\nsequence: 32\nprecision: fp32\n"
    "training: {steps: 4, data: /usr/share/common-licenses, optimizer: {name: adamw, learning_rate: 1e-3}}\n";

TEST(Probe, DescribesThisMachine) {
  const Ran ran = orrery({"probe", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"machine", "measured", "ranks", "cluster", "calibration"});
  EXPECT_TRUE(result.at("measured").is_null());
  EXPECT_TRUE(result.at("cluster").is_null());
  const nlohmann::json& machine = result.at("machine");
  expect_keys(machine, {"host", "system", "source", "processor", "caches", "numa", "memory_bytes", "memory_source",
                        "networks", "pci_accelerators", "gpus", "gpu_reason", "cuda_driver", "nvml_driver"});
  expect_keys(machine.at("processor"),
              {"model", "packages", "cores", "threads", "vector", "clock_hz", "clock_source", "core_peak_flop_per_s"});
  EXPECT_GE(machine.at("processor").at("cores").get<int>(), 1);
  EXPECT_GT(machine.at("memory_bytes").get<double>(), 1e6);
}

TEST(Probe, WritesAClusterThatPlanTakes) {
  const Scratch scratch;
  const std::string here = (scratch.path() / "here.yaml").string();
  const Ran ran = orrery({"probe", "--ranks", "1", "-o", here, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("cluster"), here);
  EXPECT_THAT(text_of(here), HasSubstr("not measured"));
  const Ran plan =
      orrery({"plan", scratch.file("job.yaml", kJob), "-o", (scratch.path() / "plan.yaml").string(), "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err << text_of(here);
  EXPECT_FALSE(plan.result().at("plans").empty());
  EXPECT_EQ(orrery({"simulate", (scratch.path() / "plan.yaml").string()}).exit_code, 0);
}

TEST(Probe, RefusesMoreRanksThanCores) {
  const Ran ran = orrery({"probe", "--ranks", "60000", "--json"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.envelope().at("diagnostics").dump(), HasSubstr("core"));
  EXPECT_EQ(orrery({"probe", "--ranks", "0"}).exit_code, 2);
  EXPECT_EQ(orrery({"probe", "--ranks", "many"}).exit_code, 2);
}

TEST(Probe, ACalibrationNeedsAMeasurement) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "c.yaml").string();
  const Ran ran = orrery({"probe", "--calibration", file});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--measure"));
  EXPECT_FALSE(fs::exists(file));
}

TEST(Probe, SaysSoBeforeMeasuringWhenAFileCannotBeWritten) {
  const Scratch scratch;
  const std::string file = scratch.file("in-the-way", "");
  const auto refused = [](const std::string& target, int exit_code, const char* code) {
    const Ran ran = orrery({"probe", "--measure", "-o", target, "--json"});
    EXPECT_EQ(ran.exit_code, exit_code) << target;
    EXPECT_THAT(ran.envelope().at("diagnostics").dump(), HasSubstr(code)) << target;
  };
  refused(file + "/here.yaml", 1, "R0001");
  refused(scratch.path().string(), 2, "U0006");
}

TEST(Probe, WithoutTheLauncherTheEnvironmentIsToBlame) {
  const Ran ran = orrery({"probe", "--measure"}, {{}, {"PATH=/nonexistent"}, {}});
  EXPECT_EQ(ran.exit_code, 6);
  EXPECT_THAT(ran.err, HasSubstr("R0007"));
}

TEST(Probe, AsksTheDriverAndTheManagementLibraryForGpus) {
  const Ran ran = orrery({"probe", "--json"}, {{}, {std::string("LD_LIBRARY_PATH=") + ORRERY_FAKES}, {}});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json machine = ran.result().at("machine");
  EXPECT_EQ(machine.at("cuda_driver"), "13.0");
  EXPECT_EQ(machine.at("nvml_driver"), "580.65.06");
  ASSERT_EQ(machine.at("gpus").size(), 2U);
  const nlohmann::json& gpu = machine.at("gpus")[0];
  EXPECT_EQ(gpu.at("name"), "Test GPU 80GB");
  EXPECT_EQ(gpu.at("pci"), "0000:0A:00.0");
  EXPECT_EQ(gpu.at("uuid"), "GPU-of-0A") << "matched by address, not by order";
  EXPECT_EQ(gpu.at("compute_capability"), "8.0");
  EXPECT_EQ(gpu.at("multiprocessors"), 108);
  EXPECT_EQ(gpu.at("memory_bytes"), std::int64_t{80} << 30);
  EXPECT_EQ(gpu.at("l2_bytes"), 41943040);
  EXPECT_DOUBLE_EQ(gpu.at("clock_hz").get<double>(), 1.41e9);
  EXPECT_NEAR(gpu.at("memory_bandwidth_bytes_per_s").get<double>(), 2039e9, 1e9);  // A100 80GB datasheet: 2039 GB/s
  EXPECT_DOUBLE_EQ(gpu.at("power_limit_w").get<double>(), 400);
  EXPECT_EQ(gpu.at("nvlinks"), 12);
  EXPECT_EQ(machine.at("gpus")[1].at("uuid"), "GPU-of-0B");
}

/// What `orrery-worker --probe --backend cuda` prints on one GPU, with the rates of nobody's measurement.
constexpr const char* kEventsOfAnH200 = R"({"event":"progress","what":"memory","share":0.5}
{"event":"workload","name":"products","pass_s":0.001,"pass_together_s":0,"pass_slowest_s":0,"ops":[{"kind":"matmul","count":1,"seconds":0.000250,"m":4096,"n":4096,"k":4096,"dtype":"bf16","trans_b":true,"in":[0,1,-1],"out":[2]},{"kind":"matmul","count":1,"seconds":0.00185,"m":8192,"n":8192,"k":8192,"dtype":"bf16","trans_b":true,"in":[0,1,-1],"out":[2]}]}
{"event":"workload","name":"streams","pass_s":0.001,"pass_together_s":0,"pass_slowest_s":0,"ops":[{"kind":"copy","count":1,"seconds":0.000280,"m":134217728,"in":[0],"out":[1]}]}
{"event":"copy","to_host":true,"bytes":67108864,"ranks":1,"seconds":0.00125}
{"event":"end","device":"NVIDIA H200","backend":"cuda","ranks":1,"threads":1,"oversubscribed":false,"seconds":30}
)";

TEST(Probe, FitsWhatAWorkerPrintedOnAMachineWithGpus) {
  const Scratch scratch;
  const std::string events = scratch.file("probe.jsonl", kEventsOfAnH200);
  const std::string calibration = (scratch.path() / "h200.yaml").string();
  const Ran ran =
      orrery({"probe", "--events", events, "--cluster", "hgx-h200", "--calibration", calibration, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("measured").at("backend"), "cuda");
  EXPECT_EQ(ran.result().at("measured").at("copies").size(), 1U);
  EXPECT_LT(ran.result().at("measured").at("error_after").get<double>(), 0.1);
  EXPECT_THAT(text_of(calibration), HasSubstr("device.matmul.bf16.efficiency"));
  EXPECT_THAT(text_of(calibration), HasSubstr("stack: \"orrery-cuda\""));
  EXPECT_THAT(text_of(calibration), HasSubstr("H200-SXM5-141GB"));
}

TEST(Probe, RefusesToTakeAMeasurementForThatOfAnotherMachine) {
  const Scratch scratch;
  const std::string events = scratch.file("probe.jsonl", kEventsOfAnH200);
  const Ran other = orrery({"probe", "--events", events, "--cluster", "hgx-h100"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("NVIDIA H200"));
  EXPECT_EQ(orrery({"probe", "--events", events, "--cluster", "localhost-2"}).exit_code, 2);
  std::string text = kEventsOfAnH200;
  text.replace(text.find("\"cuda\""), std::string("\"cuda\"").size(), "\"cpu\"");
  const std::string on_cores = scratch.file("cores.jsonl", text);
  const Ran chips = orrery({"probe", "--events", on_cores, "--cluster", "tpu-v4"});
  EXPECT_EQ(chips.exit_code, 2);
  EXPECT_THAT(chips.err, HasSubstr("tpu-v4 is a cluster of chips"));
  const Ran none = orrery({"probe", "--events", events});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--cluster"));
  const std::string half = scratch.file("half.jsonl", std::string(kEventsOfAnH200).substr(0, 400));
  const Ran cut = orrery({"probe", "--events", half, "--cluster", "hgx-h200"});
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, HasSubstr("incomplete"));
}

TEST(Probe, WithoutAGpuNothingIsMeasuredOnCuda) {
  const Ran ran =
      orrery({"probe", "--measure", "--backend", "cuda", "--cluster", "hgx-h200"}, {{}, {"CUDA_VISIBLE_DEVICES="}, {}});
  EXPECT_EQ(ran.exit_code, 6);
  EXPECT_THAT(ran.err, HasSubstr("R0007"));
  EXPECT_EQ(orrery({"probe", "--backend", "abacus"}).exit_code, 2);
}

bool can_measure() {
  return fs::exists(fs::path(ORRERY_BINARY).parent_path() / "orrery-worker");
}

/// Starts the command and sends it SIGINT after a while. Its exit code.
int interrupted(const std::vector<std::string>& arguments, std::chrono::milliseconds after) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> argv;
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), ORRERY_BINARY);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, descriptor);
    ::execv(ORRERY_BINARY, argv.data());
    ::_exit(127);
  }
  std::this_thread::sleep_for(after);
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(SlowProbe, StopsWhenInterruptedAndWritesNothing) {
  if (!can_measure()) GTEST_SKIP() << "the worker is not built";
  const Scratch scratch;
  const std::string here = (scratch.path() / "here.yaml").string();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(interrupted({"probe", "--measure", "-o", here}, std::chrono::seconds(3)), 130);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_FALSE(fs::exists(here));
}

TEST(SlowProbe, MeasuresInAMinuteAndItsFilesPredict) {
  if (!can_measure()) GTEST_SKIP() << "the worker is not built";
  const Scratch scratch;
  const std::string here = (scratch.path() / "here.yaml").string();
  const std::string calibration = (scratch.path() / "here-cal.yaml").string();
  const Ran ran = orrery({"probe", "--measure", "-o", here, "--calibration", calibration, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json measured = ran.result().at("measured");
  expect_keys(measured, {"backend", "device", "ranks", "threads", "oversubscribed", "seconds", "workloads", "operators",
                         "memory", "messages", "copies", "parameters", "error_before", "error_after"});
  EXPECT_EQ(measured.at("oversubscribed"), false);
  std::set<std::string> operators;
  for (const nlohmann::json& one : measured.at("operators")) {
    expect_keys(one, {"operator", "workload", "dtype", "seconds", "flop_per_s", "bytes_per_s"});
    EXPECT_GT(one.at("seconds").get<double>(), 0);
    operators.insert(one.at("operator"));
  }
  for (const char* name : {"matmul", "attention", "attention_grad", "gelu", "layer_norm", "adamw", "copy"})
    EXPECT_TRUE(operators.count(name)) << name;
  if (measured.at("ranks").get<int>() > 1) {
    std::set<std::string> messages;
    for (const nlohmann::json& one : measured.at("messages")) messages.insert(one.at("operation"));
    EXPECT_EQ(messages, (std::set<std::string>{"all_reduce", "all_gather", "reduce_scatter", "send"}));
  }
  EXPECT_THAT(text_of(here), HasSubstr("   # measured "));
  EXPECT_THAT(text_of(calibration), HasSubstr("device.matmul.fp32.efficiency"));
  EXPECT_THAT(text_of(calibration), HasSubstr("orrery probe"));

  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", scratch.file("job.yaml", kJob), "--calibration", calibration, "-o", plan}).exit_code, 0);
  const Ran simulated = orrery({"simulate", plan, "--calibration", calibration, "--json"});
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_TRUE(simulated.envelope().at("diagnostics").empty()) << "no coefficient of the file is passed over";
}

}  // namespace probe_test
}  // namespace orrery::tests
