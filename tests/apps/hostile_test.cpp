// What the command makes of files that want its memory, its time, its terminal or its stack, and of a world that gives
// it no memory and takes no output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace hostile_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kMostMib = 512;

std::string repeated(const std::string& piece, std::size_t times) {
  std::string text;
  text.reserve(piece.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string nested(std::size_t levels) {
  return repeated("[", levels) + repeated("]", levels);
}

constexpr const char* kModel = "family: gpt\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 256\nmax_sequence: 64\n";

// ---- files that are none

TEST(HostileFile, APipeIsRefusedAndNotWaitedFor) {
  const Scratch scratch;
  const std::string pipe = (scratch.path() / "pipe.yaml").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"model", pipe},
                                                                     {"plan", pipe},
                                                                     {"simulate", pipe},
                                                                     {"export", pipe, "--as", "megatron"},
                                                                     {"validate", pipe},
                                                                     {"import", pipe},
                                                                     {"collective", "--measured", pipe},
                                                                     {"explain", "--cluster", pipe}}) {
    const Ran ran = orrery(arguments);
    EXPECT_EQ(ran.exit_code, 3) << arguments[0];
    EXPECT_THAT(ran.err, HasSubstr("is a pipe or a device")) << arguments[0];
    EXPECT_THAT(ran.err, HasSubstr("`-` for standard input")) << arguments[0];
  }
}

TEST(HostileFile, ADeviceIsRefusedWhereverItIsNamed) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: /dev/zero\ncluster: localhost-2\nbatch: 8\n");
  for (const auto& arguments : {std::vector<std::string>{"model", "/dev/zero"}, {"plan", job}}) {
    const Ran ran = orrery(arguments);
    EXPECT_EQ(ran.exit_code, 3);
    EXPECT_THAT(ran.err, HasSubstr("error[E0201]: `/dev/zero` is a pipe or a device"));
    EXPECT_LT(ran.peak_mib, 128);
  }
}

TEST(HostileFile, AHoleOfATerabyteIsRefusedByItsSize) {
  const Scratch scratch;
  const std::string file = scratch.file("model.yaml", "x");
  fs::resize_file(file, std::uintmax_t{1} << 40);
  const Ran ran = orrery({"model", file});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("error[E0202]"));
  EXPECT_LT(ran.peak_mib, 128);
}

// ---- standard input

TEST(StandardInput, IsReadForAMinus) {
  const Scratch scratch;
  const std::string model = scratch.file("in.yaml", std::string("name: of-stdin\n") + kModel);
  const Ran read = orrery({"model", "-", "--json"}, {.input = model});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.result().at("name"), "of-stdin");

  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  EXPECT_EQ(orrery({"plan", "-", "-o", plan}, {.input = job}).exit_code, 0);
  const Ran simulated = orrery({"simulate", "-", "--json"}, {.input = plan});
  EXPECT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_GT(simulated.result().at("step_time_s").get<double>(), 0);
  EXPECT_THAT(orrery({"export", "-", "--as", "deepspeed"}, {.input = plan}).out, HasSubstr("train_batch_size"));
}

TEST(StandardInput, IsAJobOrAPlanOfAReportAsAFileIs) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\n");
  const std::string plan = (scratch.path() / "plan.yaml").string(), page = (scratch.path() / "page.json").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0);
  for (const std::string& file : {job, plan}) {
    const Ran named = orrery({"report", file, "-o", page, "--json"});
    const Ran read = orrery({"report", "-", "-o", page, "--json"}, {.input = file});
    ASSERT_EQ(read.exit_code, 0) << read.err;
    EXPECT_EQ(read.result().at("plan").at("step_time_s"), named.result().at("plan").at("step_time_s")) << file;
  }
  const Ran swept =
      orrery({"report", "--scaling", "-", "--batch", "8,16", "--gpus", "1,2", "-o", page, "--json"}, {.input = job});
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_EQ(swept.result().at("study").at("series").size(), 2U) << "one job, read for both batches";
}

TEST(StandardInput, IsOneFileAndNotTwo) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"report", "-", "-", "-o", "page.html"},
                                             {"explain", "-", "--vs", "-"},
                                             {"simulate", "-", "--beside", "-"}}) {
    const Ran ran = orrery(words);
    EXPECT_EQ(ran.exit_code, 2) << words.front();
    EXPECT_THAT(ran.err, HasSubstr("`-` is named 2 times")) << words.front();
  }
}

TEST(StandardInput, IsBoundedAsFilesAre) {
  const Ran endless = orrery({"model", "-"}, {.input = "/dev/zero"});
  EXPECT_EQ(endless.exit_code, 3);
  EXPECT_LT(endless.peak_mib, 128);
}

TEST(StandardInput, IsNothingThatAFileMayName) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: \"-\"\ncluster: localhost-2\nbatch: 8\n");
  const Ran ran = orrery({"plan", job}, {.input = scratch.file("in.yaml", std::string("name: x\n") + kModel)});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("no model `-`"));
}

// ---- bombs

struct Bomb {
  const char* name;
  std::vector<std::string> verb;  ///< before the file
  const char* file;
  std::function<std::string()> text;  ///< made when it is wanted: all of them at once would count as ours
};

void PrintTo(const Bomb& bomb, std::ostream* out) {
  *out << bomb.name;
}

class HostileText : public ::testing::TestWithParam<Bomb> {};

TEST_P(HostileText, IsRefusedInLittleMemory) {
  const Scratch scratch;
  std::vector<std::string> arguments = GetParam().verb;
  arguments.push_back(scratch.file(GetParam().file, GetParam().text()));
  const Ran ran = orrery(arguments);
  EXPECT_EQ(ran.exit_code, 3) << ran.err.substr(0, 1000);
  EXPECT_LT(ran.peak_mib, kMostMib);
  EXPECT_LT(ran.err.size(), 64U << 10) << "nor does it fill the terminal";
}

std::string attributes() {
  std::string all = "<system version=\"1\" ";
  for (int i = 0; i < 500'000; ++i) all += "a" + std::to_string(i) + "=\"\" ";
  return all + "/>";
}

std::vector<Bomb> bombs() {
  const auto many = [](const char* before, const char* piece, std::size_t times, const char* after) {
    return [=] { return before + repeated(piece, times) + after; };
  };
  return {
      {"aliases",
       {"model"},
       "m.yaml",
       [] { return "a: &a " + std::string(250'000, 'x') + "\nb: [" + repeated("*a,", 75'000) + "]\n"; }},
      {"brackets", {"model"}, "m.yaml", many("", "[", 16'000'000, "")},
      {"brackets_within_the_limit", {"plan"}, "m.yaml", many("", "[", 4'000'000, "")},
      {"nested_config", {"model"}, "config.json", many("{\"model_type\":\"gpt2\",\"x\":", "[", 200'000, "")},
      {"items", {"model"}, "m.yaml", many("[", "1,", 2'000'000, "1]")},
      {"attributes", {"import"}, "t.xml", attributes},
      {"elements", {"import"}, "t.xml", many("<system version=\"1\">", "<a/>", 900'000, "</system>")},
      {"nested_elements", {"import"}, "t.xml", many("", "<system>", 200'000, "")},
      {"entities",
       {"import"},
       "t.xml",
       many("<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"", "&a;", 5, "\">]><system>&b;</system>")},
      {"line_ends", {"import", "--format", "ibnetdiscover"}, "i.txt", many("", "\n", 32'000'000, "x")},
      {"columns", {"import", "--format", "topo"}, "t.txt", many("", "GPU0 ", 4'000'000, "")},
      {"blank_lines_behind_wrong_ones",
       {"import", "--format", "ibnetdiscover"},
       "i.txt",
       [] { return repeated("x y\n", 300'000) + repeated("\n", 300'000); }},
      {"a_log_of_comments",
       {"import", "--cluster", "hgx-h100"},
       "all_reduce_perf.log",
       many("# nThread 1\n", "# Rank 0 Group 0 Pid 1 on a device 0 [0x1] X\n", 300'000, "")},
      {"rows", {"validate"}, "rows.yaml", many("rows:\n", "- {id: a}\n", 400'000, "")},
  };
}

INSTANTIATE_TEST_SUITE_P(Texts, HostileText, ::testing::ValuesIn(bombs()),
                         [](const auto& bomb) { return std::string(bomb.param.name); });

TEST(HostileEvents, OfAProbeAreNoMeasurement) {
  const Scratch scratch;
  for (const std::string& text :
       {repeated("{}\n", 4'000'000), R"({"event":"workload","name":"x","ops":)" + nested(200'000) + "}\n"}) {
    const Ran ran = orrery({"probe", "--cluster", "localhost-2", "--calibration", scratch.path() / "c.yaml", "--events",
                            scratch.file("events.jsonl", text)});
    EXPECT_EQ(ran.exit_code, 1) << ran.err.substr(0, 300);
    EXPECT_THAT(ran.err, HasSubstr("error[R0007]"));
    EXPECT_LT(ran.peak_mib, 128);
  }
}

// A run directory whose records are somebody else's.
class HostileRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string job =
        scratch_.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\nsequence: 32\nprecision: fp32\n");
    fs::create_directories(run_);
    ASSERT_EQ(orrery({"plan", job, "-o", run_ / "plan.yaml"}).exit_code, 0);
    ASSERT_EQ(orrery({"simulate", run_ / "plan.yaml", "--timeline", run_ / "timeline.json"}).exit_code, 0);
    scratch_.file("run/metrics.jsonl", kStep);
    scratch_.file("run/completed.json",
                  R"({"format_version":"1.0","run_id":"a","completed":true,"steps":1,"resumed_from":0,"first_loss":1,)"
                  R"("final_loss":1,"step_time_s":1,"tokens_per_s":1,"memory_peak_bytes":1,"backend":"cpu",)"
                  R"("device":"x","ranks":2,"threads":1,"oversubscribed":false})");
  }
  Ran report() { return orrery({"report", run_, "-o", scratch_.path() / "report.html"}); }

  static constexpr const char* kStep =
      "{\"step\":1,\"loss\":1,\"step_time_s\":1,\"tokens_per_s\":1,\"memory_peak_bytes\":1}\n";
  Scratch scratch_;
  fs::path run_ = scratch_.path() / "run";
};

TEST_F(HostileRun, IsReportedWhenItIsSound) {
  const Ran ran = report();
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST_F(HostileRun, LinesThatAreNoStepsAreCountedAndNotListed) {
  scratch_.file("run/metrics.jsonl", repeated("{}\n", 4'000'000));
  const Ran ran = report();
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("error[E0204]"));
  EXPECT_THAT(ran.err, HasSubstr("after 20 errors"));
  EXPECT_LT(ran.err.size(), 16U << 10);
  EXPECT_LT(ran.peak_mib, 128);
}

TEST_F(HostileRun, NestingBreaksNoStack) {
  std::string step = kStep;
  step.resize(step.size() - 2);
  for (const std::string key : {"arena_peak_bytes_by_rank", "step", "anything"}) {
    scratch_.file("run/metrics.jsonl", step + ",\"" + key + "\":" + nested(200'000) + "}\n");
    const Ran ran = report();
    EXPECT_EQ(ran.exit_code, 3) << key << ran.err.substr(0, 300);
    EXPECT_THAT(ran.err, HasSubstr("error[E0204]"));
  }
  scratch_.file("run/metrics.jsonl", kStep);
  scratch_.file("run/timeline.json", "{\"x\":" + nested(200'000) + "}");
  EXPECT_THAT(report().err, HasSubstr("error[E0108]"));
}

TEST_F(HostileRun, ATimelineOfKeysOrRowsIsBounded) {
  std::string keys = "{";
  for (int i = 0; i < 1'500'000; ++i) keys += "\"" + std::to_string(i) + "\":1,";
  scratch_.file("run/timeline.json", keys + "\"z\":1}");
  const Ran ran = report();
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("more than 1000000 keys"));
  EXPECT_LT(ran.peak_mib, kMostMib);
}

// ---- names that steer

TEST(HostileName, WithControlCharactersIsRefusedWhereItIsRead) {
  const Scratch scratch;
  const std::string config = R"("vocab_size":256,"n_layer":2,"n_embd":64,"n_head":4,"n_positions":64})";
  for (const std::string name : {"a\\nb", "a\\u001b[2Jb", "a\\u009b2Jb", "a\\u2028b", "\\u202eb"}) {
    for (const auto& [file, text] : std::vector<std::pair<std::string, std::string>>{
             {"model.yaml", "name: \"" + name + "\"\n" + kModel},
             {"config.json", R"({"model_type":"gpt2","_name_or_path":")" + name + "\"," + config}}) {
      const Ran ran = orrery({"model", scratch.file(file, text)});
      EXPECT_EQ(ran.exit_code, 3) << file << " " << name;
      EXPECT_THAT(ran.err, HasSubstr("holds control characters"));
      EXPECT_THAT(ran.out + ran.err, Not(HasSubstr("\x1b[2J")));
    }
    const std::string cluster = scratch.file("cluster.yaml", "like: localhost-2\nname: \"" + name + "\"\n");
    EXPECT_EQ(orrery({"explain", "--cluster", cluster}).exit_code, 3) << name;
    const std::string job =
        scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\nstack: \"" + name + "\"\n");
    EXPECT_EQ(orrery({"plan", job}).exit_code, 3) << name;
  }
}

TEST(HostileName, OfAFileIsShownEscaped) {
  const Scratch scratch;
  const std::string file = scratch.file("a\nb\x1b[2J.yaml", kModel);
  const Ran ran = orrery({"model", file});
  EXPECT_THAT(ran.out + ran.err, Not(HasSubstr("\x1b[2J")));
  const Ran missing = orrery({"model", "no/\x1b[2J\xc2\x9b\x9b.yaml"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, HasSubstr("\\x1b[2J\\u{9b}\\x9b"));
  EXPECT_THAT(missing.err, Not(HasSubstr("\x1b[2J")));
}

// ---- a world that gives nothing

TEST(NoRoom, OutputThatIsNotTakenIsAFailure) {
  for (const auto& arguments : {std::vector<std::string>{"model", "tiny-gpt", "--json"},
                                {"model", "tiny-gpt"},
                                {"doctor"},
                                {"--help"},
                                {"--version"}}) {
    const Ran ran = orrery(arguments, {.output = "/dev/full"});
    EXPECT_EQ(ran.exit_code, 1) << arguments.back();
    EXPECT_THAT(ran.err, HasSubstr("error[R0008]: cannot write to standard output: No space left on device"));
  }
  const Ran wrong = orrery({"model", "no-such-model", "--json"}, {.output = "/dev/full"});
  EXPECT_EQ(wrong.exit_code, 3) << "what went wrong first is what is told";
}

// `orrery report … | head -1`
TEST(ClosedPipe, LosesNoFileAndIsNoError) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string(), page = (scratch.path() / "page.html").string();
  ASSERT_EQ(orrery({"plan", "examples/tiny-gpt-localhost-2.yaml", "-o", plan}).exit_code, 0);
  const std::string errors = (scratch.path() / "errors").string();
  const std::string command = "bash -o pipefail -c '" ORRERY_BINARY " report " + plan + " --no-what-if -o " + page +
                              " 2>" + errors + " | true'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(fs::exists(page));
  EXPECT_EQ(text_of(errors), "");
}

// The N-th allocation behind the beginning of main() fails, and with `from` every one after it.
TEST(NoRoom, AnAllocationThatFailsIsToldAndNeverAborts) {
#if defined(ORRERY_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own allocator is in the way";
#endif
  int failed = 0;
  for (const bool from : {false, true})
    for (int n = 0; n < 100'000; n = n * 3 / 2 + 1) {
      std::vector<std::string> environment = {"LD_PRELOAD=" ORRERY_FAIL_MALLOC, "FAIL_ALLOCATION=" + std::to_string(n)};
      if (from) environment.emplace_back("FAIL_FROM_THERE=1");
      const Ran ran = orrery({"model", "gpt2-124m"}, {.environment = environment});
      if (ran.exit_code == 0) continue;
      ++failed;
      EXPECT_EQ(ran.exit_code, 1) << n << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("error[R0002]: out of memory")) << n;
    }
  EXPECT_GT(failed, 10);
}

}  // namespace hostile_test
}  // namespace orrery::tests
