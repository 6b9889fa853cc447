// Flags, help, exit codes and what is said about bad input, through the binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace usage_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Usage, AnUnknownFlagIsAUsageErrorOnStderr) {
  const Ran ran = orrery({"plan", "--no-such-flag"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, IsEmpty());
  EXPECT_THAT(ran.err, HasSubstr("error[U0001]: "));
}

TEST(Usage, HelpIsNoWiderThanTheTerminal) {
  for (const char* verb : {"plan", "simulate", "explain", "report", "validate", "calibrate", "train", "init", "import"})
    for (const std::ptrdiff_t columns : {80, 100}) {
      const Ran ran = orrery({"help", verb}, {.environment = {"COLUMNS=" + std::to_string(columns)}});
      std::istringstream lines(ran.out);
      for (std::string line; std::getline(lines, line);) {
        const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
        const bool example = line.rfind("  orrery ", 0) == 0;  // stays whole, to be copied
        EXPECT_TRUE(example || width <= columns) << verb << ": " << line;
      }
    }
}

TEST(Usage, ExplainSaysWhatItCanExplain) {
  EXPECT_THAT(orrery({"help", "explain"}).out, HasSubstr("[PLAN]"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"plan.yaml", "--clusters"}}) {
    std::vector<std::string> all = {"explain"};
    all.insert(all.end(), words.begin(), words.end());
    const Ran ran = orrery(all);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, HasSubstr("either a plan, --cluster or --clusters"));
  }
}

TEST(Usage, AMistypedFlagIsNamedWithASuggestion) {
  const Ran ran = orrery({"simulate", "--treca", "a.json", "--other", "plan.yaml"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("`simulate` has no flag `--treca`"));
  EXPECT_THAT(ran.err, HasSubstr("did you mean `--trace`?"));
  EXPECT_THAT(ran.err, HasSubstr("`orrery help simulate`"));
  EXPECT_THAT(orrery({"plan", "job.yaml", "--jsn"}).err, HasSubstr("did you mean `--json`?"));
  EXPECT_THAT(orrery({"plan", "--topp"}).err, HasSubstr("did you mean `--top`?"));
  EXPECT_THAT(orrery({"plan", "job.yaml", "second.yaml"}).err, HasSubstr("`second.yaml` is one argument too many"));
}

TEST(Usage, HelpOfAVerbHasItsOwnExamples) {
  const Ran ran = orrery({"help", "collective"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, orrery({"collective", "--help"}).out);
  EXPECT_THAT(ran.out, HasSubstr("orrery collective hgx-h100"));
  EXPECT_THAT(ran.out, Not(HasSubstr("orrery train")));
  EXPECT_THAT(ran.out, HasSubstr("--json"));
  EXPECT_EQ(orrery({"help"}).out, orrery({"--help"}).out);
  EXPECT_EQ(orrery({"help", "publish"}).exit_code, 2);
}

TEST(Usage, EveryVerbHasExamples) {
  const std::string man = orrery({"help", "--man"}).out;
  std::size_t verbs = 0, examples = 0;
  for (std::size_t at = man.find("\n.SS "); at != std::string::npos; at = man.find("\n.SS ", at + 1)) ++verbs;
  for (std::size_t at = man.find("\n.nf"); at != std::string::npos; at = man.find("\n.nf", at + 1)) ++examples;
  EXPECT_GE(verbs, 15U);
  EXPECT_EQ(verbs, examples);
}

// The shell itself says what it would offer.
TEST(Usage, BashCompletesVerbsAndFlags) {
  const Scratch folder;
  const Ran script = orrery({"completion", "bash"});
  EXPECT_EQ(script.exit_code, 0);
  const std::string file = folder.file("completion.bash", script.out);
  const auto offered = [&](const std::string& words, int at) {
    const std::string answer = (folder.path() / "answer").string();
    const std::string command = "bash -c 'source " + file + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(at) + "; _orrery; echo \"${COMPREPLY[@]}\"' >" +
                                answer;
    EXPECT_EQ(std::system(command.c_str()), 0);
    return text_of(answer);
  };
  EXPECT_EQ(offered("orrery sim", 1), "simulate\n");
  EXPECT_EQ(offered("orrery plan --me", 2), "--memory-fraction\n");
  EXPECT_EQ(offered("orrery export run --as d", 4), "deepspeed\n");
  EXPECT_EQ(offered("orrery --color never tr", 3), "train\n");
  EXPECT_EQ(offered("orrery init --model gpt3", 3), "gpt3-175b\n");
  EXPECT_EQ(offered("orrery init --cluster hgx-h1", 3),
            "hgx-h100 hgx-h100-1024 hgx-h100-16384 hgx-h100-96gb hgx-h100-roce\n");
  for (const char* shell : {"zsh", "fish"})
    EXPECT_THAT(orrery({"completion", shell}).out, HasSubstr("memory-fraction"));
  EXPECT_EQ(orrery({"completion", "tcsh"}).exit_code, 2);
}

TEST(Usage, AnErrorStandsInTheEnvelopeToo) {
  for (const auto& [arguments, verb] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "--json"}, "plan"},
           {{"plan", "--no-such-flag", "--json"}, "plan"},
           {{"--json", "plan", "job.yaml", "--top", "0"}, "plan"},
           {{"--json"}, ""},
           {{"export", "--json"}, "export"}}) {
    const Ran ran = orrery(arguments);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, IsEmpty());
    const nlohmann::json envelope = ran.envelope();
    EXPECT_EQ(envelope.at("command"), verb);
    EXPECT_TRUE(envelope.at("result").is_null());
    ASSERT_EQ(envelope.at("diagnostics").size(), 1U);
    EXPECT_EQ(envelope.at("diagnostics")[0].at("code"), "U0001");
    EXPECT_NE(envelope.at("diagnostics")[0].at("message"), "");
  }
}

TEST(Usage, AnUnknownVerbIsNamed) {
  const Ran ran = orrery({"publish", "job.yaml"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("unknown verb `publish`"));
  EXPECT_THAT(ran.err, Not(HasSubstr("calibrate")));
  EXPECT_THAT(orrery({"--color", "never", "publish"}).err, HasSubstr("unknown verb `publish`"));
}

TEST(Usage, AMistypedVerbIsAUsageErrorWithASuggestion) {
  const Ran ran = orrery({"simulat", "plan.yaml"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("did you mean `orrery simulate`?"));
}

TEST(Usage, AnotherWordForAVerbNamesTheVerb) {
  EXPECT_THAT(orrery({"compare", "a.yaml", "b.yaml"}).err, HasSubstr("did you mean `orrery report`?"));
  EXPECT_THAT(orrery({"predict", "a.yaml"}).err, HasSubstr("did you mean `orrery simulate`?"));
  EXPECT_THAT(orrery({"man"}).err, HasSubstr("did you mean `orrery help --man`?"));
}

TEST(Usage, ABadNumberIsNamedWithItsFlagAndWhatIsExpected) {
  for (const auto& [words, flag, expected] :
       std::vector<std::tuple<std::vector<std::string>, const char*, const char*>>{
           {{"plan", "j.yaml", "--gpus", "8,x"}, "--gpus: `x`", "whole number from 1 to 1048576"},
           {{"plan", "j.yaml", "--top", "1e3"}, "--top: `1e3`", "whole number from 1 to 1000"},
           {{"plan", "j.yaml", "--memory-fraction", "2"}, "--memory-fraction: `2`", "number from 0.01 to 1"},
           {{"init", "-", "--sequence", "long"}, "--sequence: `long`", "write 8192, or 8k"}}) {
    const Ran ran = orrery(words);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, HasSubstr(flag));
    EXPECT_THAT(ran.err, HasSubstr(expected));
  }
  EXPECT_THAT(orrery({"init", "-", "--model", "llama3-8b", "--sequence", "1k"}).out, HasSubstr("sequence: 1024"));
  const Ran longer = orrery({"init", "-", "--model", "gpt2-124m", "--sequence", "1025"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err, HasSubstr("gpt2-124m has 1024 positions"));
}

TEST(Usage, AWordOfAListIsNamedWithTheOneThatWasProbablyMeant) {
  EXPECT_THAT(orrery({"collective", "hgx-h100", "--op", "all_reduse"}).err, HasSubstr("did you mean `all_reduce`?"));
  EXPECT_THAT(orrery({"schema", "jobs"}).err, HasSubstr("`jobs` is not one of job, "));
  EXPECT_THAT(orrery({"schema", "jobs"}).err, HasSubstr("did you mean `job`?"));
  EXPECT_THAT(orrery({"export", "plan.yaml", "--as", "x"}).err, HasSubstr("`x` is not one of megatron, deepspeed"));
  EXPECT_THAT(orrery({"help", "plam"}).err, HasSubstr("did you mean `orrery plan`?"));
}

TEST(Usage, ACatalogueThatIsNotThereIsRefused) {
  const Ran ran = orrery({"explain", "--clusters", "--catalog", "/no/such/folder"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("error[U0007]"));
}

TEST(Usage, NoVerbAtAllIsAUsageErrorThatShowsTheVerbs) {
  const Ran ran = orrery({});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.out, "") << "a script that reads the result finds none";
  for (const char* shown : {"  simulate ", "Examples:", "error[U0001]: a verb is missing"})
    EXPECT_THAT(ran.err, HasSubstr(shown));
  EXPECT_THAT(orrery({"--json"}).err, testing::Not(HasSubstr("Examples:")));
}

TEST(Usage, AMissingArgumentIsExplained) {
  EXPECT_THAT(orrery({"schema"}).err,
              HasSubstr("help: KIND: job, plan, cluster, model or stack; `orrery help schema`"));
  EXPECT_THAT(orrery({"calibrate", "run"}).err, HasSubstr("help: --output: "));
}

TEST(Usage, MissingAndOutOfRangeArgumentsAreUsageErrors) {
  EXPECT_EQ(orrery({"plan"}).exit_code, 2);
  EXPECT_EQ(orrery({"plan", "job.yaml", "--top", "0"}).exit_code, 2);
  EXPECT_EQ(orrery({"plan", "job.yaml", "--gpus", "8,x"}).exit_code, 2);
  EXPECT_EQ(orrery({"model", "tiny-gpt", "--color", "sometimes"}).exit_code, 2);
}

TEST(Usage, HelpAndVersionSucceedOnStdout) {
  const Ran help = orrery({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* verb : {"plan", "simulate", "train", "calibrate", "report", "explain", "model", "doctor", "import"})
    EXPECT_THAT(help.out, HasSubstr(verb));
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
  EXPECT_THAT(help.err, IsEmpty());
  const Ran version = orrery({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("orrery "));
}

TEST(BadInput, AMissingFileIsNamed) {
  const Ran ran = orrery({"plan", "no/such/job.yaml"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("no/such/job.yaml"));
}

TEST(BadInput, EveryErrorOfAFileIsReportedAtOnceWithItsPlace) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml",
                                       "model: tiny-gpt\n"
                                       "cluster: localhost-2\n"
                                       "batch: many\n"
                                       "sequense: 64\n"
                                       "precision: fp33\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(job + ":3:8"));
  EXPECT_THAT(ran.err, HasSubstr(job + ":4:1"));
  EXPECT_THAT(ran.err, HasSubstr("sequence"));  // the suggestion
  EXPECT_THAT(ran.err, HasSubstr(job + ":5:12"));
  EXPECT_THAT(ran.err, HasSubstr("^"));
  EXPECT_THAT(ran.out, IsEmpty());
}

TEST(BadInput, TheReadmeShowsTheErrorAsItIsPrinted) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: many\nsequense: 64\n");
  const std::string err = orrery({"plan", job}).err;
  const std::size_t help = err.find("= help: did you mean");
  ASSERT_NE(help, err.npos) << err;
  std::ifstream readme(ORRERY_SOURCE_DIR "/README.md");
  const std::string text{std::istreambuf_iterator<char>(readme), {}};
  const auto on_one_line = [](const std::string& lines) { return std::regex_replace(lines, std::regex("\\s+"), " "); };
  EXPECT_THAT(on_one_line(text), HasSubstr(on_one_line(err.substr(help, err.find('\n', help) - help))));
}

TEST(BadInput, TheSameErrorsStandInTheEnvelope) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: many\nbatsh: 3\n");
  const Ran ran = orrery({"plan", job, "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  const nlohmann::json envelope = ran.envelope();
  EXPECT_TRUE(envelope.at("result").is_null());
  EXPECT_EQ(envelope.at("command"), "plan");
  ASSERT_EQ(envelope.at("diagnostics").size(), 2U);
  for (const nlohmann::json& one : envelope.at("diagnostics")) {
    expect_keys(one, {"level", "code", "file", "line", "column", "message", "help"});
    EXPECT_EQ(one.at("file"), job);
    EXPECT_GE(one.at("line").get<int>(), 3);
    EXPECT_GE(one.at("column").get<int>(), 1);
  }
}

TEST(BadInput, AnUnknownNameInAJobPointsAtTheJob) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "batch: 8\nmodel: tiny-gtp\ncluster: localhost-2\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(job + ":2:8"));
  EXPECT_THAT(ran.err, HasSubstr("did you mean `tiny-gpt`?"));
}

TEST(BadInput, ADuplicateKeyIsRefused) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\nbatch: 9\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(job + ":4:1"));
}

TEST(BadInput, AQuantityWithoutItsUnitIsRefused) {
  const Scratch scratch;
  const std::string calibration =
      scratch.file("c.yaml", "calibration: c\nparameters:\n  stack.op_overhead: {value: 5, source: guess}\n");
  const Ran ran = orrery({"plan", "examples/tiny-gpt-localhost-2.yaml", "--calibration", calibration});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(calibration + ":3:"));
}

TEST(Colour, IsThereOnlyWhenAskedForOrOnATerminal) {
  EXPECT_THAT(orrery({"plan", "nowhere.yaml"}).err, Not(HasSubstr("\033[")));
  EXPECT_THAT(orrery({"plan", "nowhere.yaml", "--color", "always"}).err, HasSubstr("\033["));
  EXPECT_THAT(orrery({"plan", "nowhere.yaml", "--color", "never"}, {{}, {"CLICOLOR_FORCE=1"}, {}}).err,
              Not(HasSubstr("\033[")));
}

}  // namespace usage_test
}  // namespace orrery::tests
