// What people ask of the command: a table that answers, values set in passing, files that stay theirs, and to be told
// beforehand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "cost/parameters/calibration.h"
#include "cost/parameters/intervals.h"
#include "tests/apps/command.h"

namespace orrery::tests {
namespace asked_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTiny = "examples/tiny-gpt-localhost-2.yaml";
constexpr const char* kGpu =
    "model: llama2-7b\ncluster: hgx-h100\nbatch: 64\nsequence: 4096\nprecision: bf16\nstack: megatron-lm\n";

/// Columns of the widest line, where each UTF-8 character takes one.
std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    most = std::max(most, static_cast<std::size_t>(
                              std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; })));
  return most;
}

Where columns(int n) {
  Where where;
  where.environment = {"COLUMNS=" + std::to_string(n), "LANG=C.UTF-8"};
  return where;
}

TEST(PlanTable, AnswersInEightyColumnsAndSaysMoreInMore) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", kGpu);
  const Ran narrow = orrery({"plan", job}, columns(80)), wide = orrery({"plan", job}, columns(220));
  ASSERT_EQ(narrow.exit_code, 0) << narrow.err;
  EXPECT_LE(widest(narrow.out), 80U) << narrow.out;
  EXPECT_EQ(orrery({"plan", job}, {{}, {"LANG=C.UTF-8"}, {}}).out.substr(0, 200), narrow.out.substr(0, 200))
      << "80 is what a pipe gets";
  for (const char* said : {"llama2-7b: 6.74 B parameters", "8 x H100", "megatron-lm, bf16", "64 sequences x 4,096",
                           "Evidence: ", "DP", "TP", "PP", "MBS", "ZeRO", "Left out at 80 columns"})
    EXPECT_THAT(narrow.out, HasSubstr(said));
  for (const char* said : {"4 of 5 runs", "tok/s/GPU", "TFLOP/s", "fits", "bubble", "exposed", "$/Mtok", "GA"})
    EXPECT_THAT(wide.out, HasSubstr(said));
  EXPECT_THAT(wide.out, Not(HasSubstr("Left out")));
}

TEST(PlanTable, OfMixturesAndOfTablesFitsToo) {
  for (const char* job : {"examples/tiny-moe-localhost-2.yaml", "examples/dlrm-criteo-zionex-128.yaml"}) {
    const Ran ran = orrery({"plan", job}, columns(80));
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_LE(widest(ran.out), 80U) << ran.out;
  }
  EXPECT_THAT(orrery({"plan", "examples/dlrm-criteo-zionex-128.yaml"}, columns(200)).out, HasSubstr("samples/s/GPU"));
  EXPECT_THAT(orrery({"plan", "examples/tiny-moe-localhost-2.yaml"}, columns(200)).out, HasSubstr("active"));
}

TEST(PlanTable, NearDuplicatesAreFoldedUnlessAllAreAskedFor) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", kGpu);
  const auto rows = [](const std::string& text) {  // between the rule and the next blank line
    const std::size_t rule = text.find("\xE2\x94\x80"), begin = text.find('\n', rule) + 1;
    return std::count(text.begin() + static_cast<std::ptrdiff_t>(begin),
                      text.begin() + static_cast<std::ptrdiff_t>(text.find("\n\n", begin)), '\n');
  };
  const std::string all = orrery({"plan", job, "--all"}, columns(200)).out;
  const std::string few = orrery({"plan", job}, columns(200)).out;
  EXPECT_EQ(rows(all), 9) << all;
  EXPECT_THAT(few, HasSubstr("--all shows them"));
  EXPECT_THAT(all, Not(HasSubstr("--all shows them")));
  const nlohmann::json plans = orrery({"plan", job, "--json"}).result().at("plans");
  EXPECT_EQ(plans.size(), 10U) << "scripts get all, best first";
  EXPECT_EQ(plans[0].at("row"), 1);
  std::set<std::string> families;
  const nlohmann::json more = orrery({"plan", job, "--json", "--top", "100"}).result().at("plans");
  for (const nlohmann::json& one : more) families.insert(one.at("row").dump());
  EXPECT_LT(families.size(), more.size()) << "several plans of a family stand under one row";
  for (const char* key : {"tokens_per_s_per_device", "flops_per_s_per_device", "step_time_interval_s",
                          "fits_probability", "cost_per_million_tokens_usd"})
    EXPECT_TRUE(plans[0].contains(key)) << key;
}

TEST(PlanTable, EachRowIsWhatSimulateSays) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", kGpu), out = (scratch.path() / "third.yaml").string();
  const Ran ran = orrery({"plan", job, "--pick", "3", "-o", out, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json kept = orrery({"simulate", out, "--json"}).result();
  const Ran table = orrery({"plan", job, "--pick", "3", "-o", out}, columns(200));
  EXPECT_THAT(table.out, HasSubstr("(row 3)"));
  const std::string row = table.out.substr(table.out.find("\n3 ") + 1);
  EXPECT_THAT(row.substr(0, row.find('\n')), HasSubstr(std::to_string(kept.at("plan").at("data").get<int>())));
  EXPECT_GT(kept.at("step_time_s").get<double>(), ran.result().at("plans").at(0).at("step_time_s").get<double>());
  EXPECT_EQ(orrery({"plan", job, "--pick", "900", "-o", out}).exit_code, 2);
  EXPECT_EQ(orrery({"plan", job, "--pick", "2"}).exit_code, 2) << "picks what -o writes";
}

TEST(Infeasible, SaysNumbersTheLineAndWhatWouldDo) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: gpt3-175b\ncluster: dgx-a100\nbatch: 64\nsequence: 2048\nprecision: bf16\n");
  const Ran ran = orrery({"plan", job}, columns(80));
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.out, HasSubstr("No feasible plan"));
  EXPECT_LE(widest(ran.out), 80U) << ran.out;
  EXPECT_LE(widest(ran.err), 80U) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("GiB"));
  EXPECT_THAT(ran.err, HasSubstr(" such devices"));
  EXPECT_THAT(ran.err, HasSubstr(job + ":2:")) << "the line that names the cluster";
  const nlohmann::json json = orrery({"plan", job, "--json"}).result();
  const int devices = json.at("search").at("devices_that_do").get<int>();
  EXPECT_GT(devices, 8);
  EXPECT_EQ(orrery({"plan", job, "--gpus", std::to_string(devices)}).exit_code, 0);
  const std::string bound = scratch.file("bound.yaml", std::string(kGpu) + "plan:\n  tensor: 3\n");
  EXPECT_THAT(orrery({"plan", bound}).err, HasSubstr(bound + ":8:")) << "the line of the bound";
}

TEST(Set, PutsAValueOverTheJobAndIsJudgedLikeIt) {
  const auto batch = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan", kTiny, "--json", "--top", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return orrery(arguments).result().at("plans").at(0).at("plan").at("job").at("batch").get<int>();
  };
  EXPECT_EQ(batch({"--set", "batch=16"}), 16);
  EXPECT_EQ(batch({"--set", "batch=16", "--set", "batch=24", "--set", "plan.tensor=2"}), 24);
  const Ran wrong = orrery({"plan", kTiny, "--set", "batch=16", "--set", "plan.tensor=two"});
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_THAT(wrong.err, HasSubstr("--> --set:2:13"));
  EXPECT_THAT(wrong.err, HasSubstr("plan.tensor=two"));
  EXPECT_THAT(orrery({"plan", kTiny, "--set", "cluster=localhst-2"}).err, HasSubstr("did you mean `localhost-2`?"));
  EXPECT_THAT(orrery({"plan", kTiny, "--set", "plan.tp=2"}).err, HasSubstr("here it is called `tensor`"));
  EXPECT_EQ(orrery({"plan", kTiny, "--set", "batch"}).exit_code, 2);
}

TEST(Names, ThatPeopleWriteLeadToTheCatalogues) {
  for (const auto& [name, meant] :
       {std::pair("gpt-3", "`gpt3-175b`"), std::pair("meta-llama/Meta-Llama-3-8B", "`llama3-8b`"),
        std::pair("meta-llama/Llama-2-7b-hf", "`llama2-7b`"), std::pair("tiny-gtp", "`tiny-gpt`")}) {
    const Ran ran = orrery({"model", name});
    EXPECT_EQ(ran.exit_code, 3) << name;
    EXPECT_THAT(ran.err, HasSubstr(meant)) << name;
  }
}

TEST(NoPlan, PointsAtASequenceLongerThanTheModelsTable) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: gpt2-124m\ncluster: hgx-h100\nbatch: 64\nsequence: 4096\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr(job + ":4:"));
  EXPECT_THAT(ran.err, HasSubstr("sequence: 1024 would make a plan possible"));
  EXPECT_EQ(orrery({"plan", job, "--set", "sequence=1024"}).exit_code, 0);
}

TEST(NoPlan, OfSomeSizesIsSaid) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: gpt2-124m\ncluster: hgx-h100\nbatch: 8\nplan: {data: 4, tensor: [1, 2]}\n");
  const Ran ran = orrery({"plan", job, "--gpus", "8,2,4"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no feasible plan for 2 devices"));
}

TEST(NoPlan, ABatchInTokensIsToldSo) {
  const Scratch scratch;
  for (const char* batch : {"4M tokens", "4M", "4,194,304 tokens"}) {
    const std::string job =
        scratch.file("job.yaml", std::string("model: gpt2-124m\ncluster: hgx-h100\nbatch: ") + batch + "\n");
    const Ran ran = orrery({"plan", job});
    EXPECT_EQ(ran.exit_code, 3) << batch;
    EXPECT_THAT(ran.err, HasSubstr("`batch` counts sequences")) << batch;
  }
}

TEST(Outputs, WhatOrreryDidNotWriteStaysUnlessForced) {
  const Scratch scratch;
  const std::string mine = scratch.file("notes.yaml", "# my notes about orrery plans\n");
  const Ran refused = orrery({"plan", kTiny, "-o", mine});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("U0003"));
  EXPECT_EQ(text_of(mine), "# my notes about orrery plans\n");
  EXPECT_EQ(orrery({"plan", kTiny, "-o", mine, "--force"}).exit_code, 0);
  EXPECT_EQ(orrery({"plan", kTiny, "-o", mine}).exit_code, 0) << "now it is Orrery's";
  EXPECT_EQ(orrery({"plan", kTiny, "-o", scratch.file("empty.yaml", "")}).exit_code, 0);
}

TEST(Outputs, StandardOutputIsNoFileWhereAVerbPrintsOnIt) {
  const Scratch scratch;
  const Where here{scratch.path(), {}, {}};
  const std::string job = fs::path(ORRERY_SOURCE_DIR) / kTiny;
  const Ran ran = orrery({"plan", job, "-o", "-"}, here);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("error[U0006]"), HasSubstr("name a file")));
  EXPECT_FALSE(fs::exists(scratch.path() / "-"));
  EXPECT_THAT(orrery({"init", "-o", "-"}, here).out, HasSubstr("model:")) << "a verb that takes it";
}

TEST(Outputs, AFolderIsNoFileAndIsRefusedBeforeTheSearch) {
  const Scratch scratch;
  const Ran ran = orrery({"plan", kTiny, "-o", scratch.path().string(), "--force"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("error[U0006]"));
  EXPECT_EQ(ran.out, "") << "nothing was planned";
}

TEST(Outputs, ProseThatNamesVerbsIsNotOrrerys) {
  const Scratch scratch;
  const std::string prose =
      "# How we plan\n\nFirst `orrery init`, then `orrery probe --measure`; see \"A plan made by orrery\".\n"
      "# Written by `orrery import`. is what its files say\nA scaling study by `orrery report` comes later.\n";
  const std::string mine = scratch.file("README.md", prose);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"plan", kTiny, "-o", mine},
                                             {"init", mine},
                                             {"probe", "-o", mine},
                                             {"export", kTiny, "--as", "megatron", "-o", mine}}) {
    EXPECT_EQ(orrery(words).exit_code, 2) << words.front();
    EXPECT_EQ(text_of(mine), prose) << words.front();
  }
}

TEST(Outputs, EveryKindOfFileIsRecognisedAsOrrerysOwn) {
  const Scratch scratch;
  const auto at = [&](const char* name) { return (scratch.path() / name).string(); };
  const std::string plan = at("plan.yaml");
  ASSERT_EQ(orrery({"plan", scratch.file("gpu.yaml", kGpu), "-o", plan}).exit_code, 0);
  std::string table =
      "id,family,layers,hidden,heads,vocab,seq_len,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,"
      "precision_kind,recompute_kind,iter_time_s\n";
  for (const char* one : {"2,1,8,1,256,bf16,none,9.3", "4,1,4,1,256,bf16,none,10.4", "8,1,2,1,256,bf16,none,18.2"})
    table += std::string("t") + one[0] + ",llama,32,4096,32,32000,4096,16,H100-SXM5-80GB," + one + "\n";
  const std::string runs = scratch.file("rows.csv", table);
  struct Written {
    const char *file, *kind;
    std::vector<std::string> by = {};  // ends with the file; empty: it is there
  };
  const std::vector<Written> all = {
      {"tiny.yaml", "a plan", {"plan", kTiny, "-o"}},
      {"t.json", "a trace", {"simulate", plan, "--trace"}},
      {"l.json", "a timeline", {"simulate", plan, "--timeline"}},
      {"here.yaml", "a cluster", {"probe", "-o"}},
      {"c.yaml",
       "a cluster",
       {"import", "--device", "a100-sxm4-80gb", "--nic-bandwidth", "200 Gb/s",
        "tests/clusters/import/fixtures/dgx-a100.topo.txt", "-o"}},
      {"m.sh", "settings of another framework", {"export", plan, "--as", "megatron", "-o"}},
      {"r.html", "a report", {"report", plan, "-o"}},
      {"r.md", "a report", {"report", plan, "--format", "md", "-o"}},
      {"r.csv", "a report", {"report", plan, "--format", "csv", "-o"}},
      {"r.json", "a report", {"report", plan, "--format", "json", "-o"}},
      {"s.md", "a report", {"report", "--scaling", kTiny, "--gpus", "1,2", "--format", "md", "-o"}},
      {"s.csv", "a report", {"report", "--scaling", kTiny, "--gpus", "1,2", "--format", "csv", "-o"}},
      {"s.json", "a report", {"report", "--scaling", kTiny, "--gpus", "1,2", "--format", "json", "-o"}},
      {"job.yaml", "a job", {"init", "--overwrite", "-o"}},
      {"stack.yaml", "a software stack", {"calibrate", "--rows", runs, "-o"}},
      {"calibration.yaml", "a calibration"},
      {"intervals.yaml", "intervals"}};
  scratch.file("calibration.yaml", cost::write_calibration({}));  // calibrate and validate take long
  scratch.file("intervals.yaml", cost::write_intervals({}));
  for (const Written& one : all) {
    std::vector<std::string> command = one.by;
    command.push_back(at(one.file));
    for (int time = 0; time < 2 && !one.by.empty(); ++time) {  // the second time over its own file
      const Ran ran = orrery(command);
      EXPECT_EQ(ran.exit_code, 0) << one.file << "\n" << ran.err;
    }
    const bool page = one.kind == std::string("a report");
    const Ran other = orrery(page ? std::vector<std::string>{"plan", kTiny, "-o", at(one.file)}
                                  : std::vector<std::string>{"report", plan, "-o", at(one.file)});
    EXPECT_EQ(other.exit_code, 2) << one.file;
    EXPECT_THAT(other.err, HasSubstr(std::string(" is ") + one.kind + ", not a " + (page ? "plan" : "report")))
        << one.file;
  }
}

TEST(Outputs, AFileOfAnotherKindStaysAlthoughOrreryWroteIt) {
  const Scratch scratch;
  const auto at = [&](const char* name) { return (scratch.path() / name).string(); };
  ASSERT_EQ(orrery({"plan", kTiny, "-o", at("plan.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"plan", kTiny, "-o", at("other.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"init", at("job.yaml")}).exit_code, 0);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"report", at("other.yaml"), "-o", at("plan.yaml")},
                                             {"simulate", at("other.yaml"), "--trace", at("plan.yaml")},
                                             {"plan", kTiny, "-o", at("job.yaml")},
                                             {"probe", "-o", at("job.yaml")}}) {
    const std::string target = words.back(), before = text_of(target);
    const Ran refused = orrery(words);
    EXPECT_EQ(refused.exit_code, 2) << words.front();
    EXPECT_THAT(refused.err, HasSubstr("error[U0003]")) << words.front();
    EXPECT_EQ(text_of(target), before) << words.front();
  }
  EXPECT_THAT(orrery({"plan", kTiny, "-o", at("job.yaml")}).err, HasSubstr("is a job, not a plan"));
  EXPECT_EQ(orrery({"simulate", at("other.yaml"), "--trace", at("plan.yaml"), "--force"}).exit_code, 0);
}

TEST(Outputs, WhatTheCommandReadsIsNotWhatItWrites) {
  const Scratch scratch;
  const auto at = [&](const char* name) { return (scratch.path() / name).string(); };
  ASSERT_EQ(orrery({"init", at("job.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"plan", kTiny, "-o", at("plan.yaml")}).exit_code, 0);
  fs::create_symlink(at("plan.yaml"), at("link.yaml"));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"plan", at("job.yaml"), "-o", at("job.yaml")},
                                             {"report", at("plan.yaml"), "-o", at("plan.yaml")},
                                             {"report", at("plan.yaml"), "-o", at("link.yaml")},
                                             {"export", at("plan.yaml"), "--as", "megatron", "-o", at("plan.yaml")},
                                             {"simulate", at("plan.yaml"), "--timeline", at("plan.yaml")}}) {
    const std::string target = words.back(), before = text_of(target);
    const Ran refused = orrery(words);
    EXPECT_EQ(refused.exit_code, 2) << words.front();
    EXPECT_THAT(refused.err, HasSubstr("error[U0004]")) << words.front();
    EXPECT_EQ(text_of(target), before) << words.front();
  }
}

TEST(Outputs, ARunsDirectoryIsTheRunsOwn) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", kTiny, "-o", plan}).exit_code, 0);
  const std::string kept = scratch.file("run/plan.yaml", text_of(plan));
  scratch.file("run/metrics.jsonl", "{}\n");
  scratch.file("run/checkpoints/step-000001/manifest.json", "{}\n");
  for (const char* name : {"run/plan.yaml", "run/timeline.json", "run/page.html", "run/checkpoints/mine.json"}) {
    const Ran refused = orrery({"simulate", plan, "--timeline", (scratch.path() / name).string()});
    EXPECT_EQ(refused.exit_code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("error[U0005]")) << name;
  }
  EXPECT_EQ(text_of(kept), text_of(plan));
  EXPECT_EQ(orrery({"plan", kTiny, "-o", kept}).exit_code, 2) << "not even by another plan";
  EXPECT_EQ(orrery({"init", kept, "--overwrite"}).exit_code, 2) << "--overwrite is about jobs";
  EXPECT_EQ(text_of(kept), text_of(plan));
  EXPECT_EQ(orrery({"plan", kTiny, "-o", kept, "--force"}).exit_code, 0);
}

TEST(Outputs, NoFoldersAreMadeOutsideTheCurrentOneUnlessForced) {
  const Scratch scratch, elsewhere;
  const std::string job = fs::path(ORRERY_SOURCE_DIR) / kTiny;
  const Where here{scratch.path(), {}, {}};
  EXPECT_EQ(orrery({"plan", job, "-o", "new/folder/plan.yaml"}, here).exit_code, 0);
  const std::string out = (elsewhere.path() / "new" / "plan.yaml").string();
  const Ran refused = orrery({"plan", job, "-o", out}, here);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("U0002"));
  EXPECT_FALSE(fs::exists(elsewhere.path() / "new"));
  EXPECT_EQ(orrery({"plan", job, "-o", out, "--force"}, here).exit_code, 0);
}

TEST(Outputs, ARunNeedsADirectoryThatMayBeMade) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", kTiny, "-o", plan}).exit_code, 0);
  const Ran file = orrery({"train", plan, "--run", scratch.file("mine.txt", "mine\n")});
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err, HasSubstr("is a file, but a run needs a directory"));
  const Ran missing = orrery({"train", plan, "--run", (scratch.path() / "no" / "run").string()});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("error[U0002]"));
  EXPECT_FALSE(fs::exists(scratch.path() / "no"));
  EXPECT_EQ(orrery({"train", plan, "--run", (scratch.path() / "run").string(), "--dry-run"}).exit_code, 0);
}

TEST(DryRun, WritesNothingAndSaysWhatItWould) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  const Ran ran = orrery({"plan", kTiny, "-o", plan, "--dry-run"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("Would write " + plan));
  EXPECT_FALSE(fs::exists(plan));
  ASSERT_EQ(orrery({"plan", kTiny, "-o", plan}).exit_code, 0);
  const auto path = [&](const char* name) { return (scratch.path() / name).string(); };
  for (const std::vector<std::string>& one :
       std::vector<std::vector<std::string>>{{"init", path("x")},
                                             {"simulate", plan, "--trace", path("x")},
                                             {"report", plan, "-o", path("x")},
                                             {"probe", "-o", path("x"), "--measure"},
                                             {"train", plan, "--run", path("x")}}) {
    std::vector<std::string> arguments = one;
    arguments.push_back("--dry-run");
    const Ran dry = orrery(arguments);
    EXPECT_EQ(dry.exit_code, 0) << one[0] << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("Would")) << one[0];
    EXPECT_FALSE(fs::exists(path("x"))) << one[0];
  }
  EXPECT_TRUE(orrery({"train", plan, "--run", path("x"), "--dry-run", "--json"}).result().contains("preflight"));
}

TEST(Preflight, APlanForGpusSaysSoAtOnceWhereThereAreNone) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", kGpu), plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "--gpus", "512", "-o", plan}).exit_code, 0);
  const Ran ran = orrery({"train", plan, "--run", (scratch.path() / "run").string()});
  EXPECT_THAT(ran.err, ::testing::AnyOf(HasSubstr("R0010"), HasSubstr("R0012"))) << "no GPU, or far too few";
  EXPECT_EQ(ran.exit_code, 6);
  EXPECT_THAT(ran.err, HasSubstr("512"));
  EXPECT_FALSE(fs::exists(scratch.path() / "run"));
}

TEST(Preflight, TablesThatThisMachineHasNoMemoryForAreRefused) {
  const Scratch scratch;
  // Each table has 2^31 rows of 1 KiB, so that no machine that runs this test holds both.
  scratch.file("huge.yaml",
               "name: huge\nfamily: dlrm\ndense_features: 4\nembedding_dim: 256\nbottom_mlp: [256]\ntop_mlp: [1]\n"
               "tables: [{rows: 2147483648, count: 2}]\n");
  scratch.file("roomy.yaml",
               "name: roomy\nlike: localhost-2\ndevice: {name: core, kind: cpu, peak: {fp32: 80 GFLOPS}, vector_peak: "
               "40 GFLOPS, memory: 8 TiB, memory_bandwidth: 10 GB/s, cache: 1 MiB, multiprocessors: 1}\n");
  const std::string job =
      scratch.file("job.yaml", "model: huge.yaml\ncluster: roomy.yaml\nbatch: 64\nprecision: fp32\nplan: {data: 2}\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  const Ran planned = orrery({"plan", job, "-o", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Ran ran = orrery({"train", plan, "--run", (scratch.path() / "run").string(), "--dry-run"});
  EXPECT_EQ(ran.exit_code, 6) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("R0013"));
  EXPECT_THAT(ran.err, HasSubstr("smaller tables"));
  EXPECT_FALSE(fs::exists(scratch.path() / "run"));
}

TEST(Preflight, MoreThanEightRanksOnACoreNeedToBeMeant) {
  const Scratch scratch;
  // More ranks than eight on each of this machine's cores, whatever it has.
  scratch.file("many.yaml", "name: many\nlike: localhost-8\nnode:\n  devices: 4096\n");
  const std::string job = scratch.file(
      "job.yaml", "model: tiny-gpt\ncluster: many.yaml\nbatch: 65536\nsequence: 8\nplan: {tensor: 1, pipeline: 1}\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0);
  const Ran ran = orrery({"train", plan, "--run", (scratch.path() / "run").string()});
  EXPECT_EQ(ran.exit_code, 6);
  EXPECT_THAT(ran.err, HasSubstr("R0012"));
  EXPECT_THAT(ran.err, HasSubstr("--oversubscribe"));
  EXPECT_FALSE(fs::exists(scratch.path() / "run"));
  const Ran meant = orrery({"train", plan, "--run", "x", "--dry-run", "--oversubscribe"});
  EXPECT_THAT(meant.err, HasSubstr("R0011"));
}

TEST(ExplainPlan, BeginsWithWhatBindsAndHasTheNumbersOfSimulate) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", std::string(kGpu) + "plan: {pipeline: 4, recompute: full}\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0);
  const Ran ran = orrery({"explain", plan});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string first = ran.out.substr(0, ran.out.find('\n'));
  EXPECT_THAT(first, HasSubstr(" binds: "));
  EXPECT_THAT(ran.out, HasSubstr("one more node"));
  EXPECT_THAT(ran.out, HasSubstr("10 GB more memory"));
  EXPECT_THAT(ran.out, HasSubstr("recompute nothing"));
  const nlohmann::json result = orrery({"explain", plan, "--json"}).result();
  const nlohmann::json simulated = orrery({"simulate", plan, "--json"}).result();
  for (const char* key : {"step_time_s", "bubble_fraction", "exposed_communication_s", "memory_peak_bytes"})
    EXPECT_EQ(result.at("plan").at(key), simulated.at(key)) << key;
  EXPECT_EQ(result.at("plan").at("breakdown_s"), simulated.at("breakdown_s"));
  for (const char* key :
       {"step_time_interval_s", "memory_interval_bytes", "fits_probability", "evidence", "evidence_text"}) {
    EXPECT_FALSE(simulated.at(key).is_null()) << key;
    EXPECT_EQ(result.at("plan").at(key), simulated.at(key)) << key;
  }
  ASSERT_FALSE(result.at("neighbours").empty());
  EXPECT_THAT(ran.out.substr(ran.out.find("Neighbours of this plan")), HasSubstr("4 of 5 runs"));
  for (const nlohmann::json& one : result.at("neighbours"))
    EXPECT_TRUE((one.at("step_time_s").is_number() && one.at("step_time_interval_s").is_array() &&
                 one.at("evidence").is_string()) ||
                !one.at("code").get<std::string>().empty())
        << one.dump();
}

TEST(ExplainPlan, SaysOfEachPlanHowSureItsFiguresAreAndWhatTheyRestOn) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", std::string(kGpu) + "plan: {pipeline: 4}\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0);
  const std::string interval = "In four of five runs a step takes from ", evidence = "Evidence: ";
  const auto times = [](const std::string& text, const std::string& part) {
    int count = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
  };
  const std::string one = orrery({"explain", plan}).out, two = orrery({"explain", plan, "--vs", plan}).out;
  EXPECT_EQ(times(one, interval), 1) << one;
  EXPECT_EQ(times(one, evidence), 1) << one;
  EXPECT_EQ(times(two, interval), 2) << two;
  EXPECT_EQ(times(two, evidence), 2) << two;
  const nlohmann::json both = orrery({"explain", plan, "--vs", plan, "--json"}).result();
  EXPECT_EQ(both.at("versus").at("step_time_interval_s"), both.at("plan").at("step_time_interval_s"));
  EXPECT_TRUE(both.at("versus").at("evidence").is_string());
}

TEST(ExplainPlan, OnCoresSaysWhatItRestsOnAndHasNoInterval) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", kTiny, "-o", plan}).exit_code, 0);
  for (const char* verb : {"explain", "simulate"}) {
    EXPECT_THAT(orrery({verb, plan}).out, HasSubstr("Evidence: nominal rates of cores")) << verb;
    EXPECT_THAT(orrery({verb, plan}).out, Not(HasSubstr("four of five"))) << verb;
  }
  const nlohmann::json result = orrery({"simulate", plan, "--json"}).result();
  EXPECT_EQ(result.at("evidence"), "uncalibrated");
  EXPECT_TRUE(result.at("step_time_interval_s").is_null());
}

TEST(ExplainPlan, SaysWhatBindsBeforeItReplaysOtherPlans) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", "examples/gpt3-175b-a100-1024.yaml", "-o", plan}).exit_code, 0);
  const fs::path out = scratch.path() / "out";
  const Ran ran = orrery({"explain", plan}, {.interrupt_when = out, .output = out});
  EXPECT_EQ(ran.exit_code, 130) << "its first words came in time to stop the rest";
  EXPECT_THAT(text_of(out), HasSubstr(" binds: "));
}

TEST(ExplainPlan, ThatIsStoppedSaysThatItIsNotComplete) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", "examples/gpt3-175b-a100-1024.yaml", "-o", plan}).exit_code, 0);
  const fs::path out = scratch.path() / "out", page = scratch.path() / "page.html";
  EXPECT_THAT(orrery({"explain", plan}, {.interrupt_when = out, .output = out}).err,
              HasSubstr("warning[R0009]: stopped by ^C; the result is not complete"));
  fs::remove(out);
  const Ran report = orrery({"report", plan, "-o", page.string()}, {.interrupt_when = out, .output = out});
  EXPECT_EQ(report.exit_code, 130);
  EXPECT_THAT(report.err, HasSubstr("stopped by ^C; not written: " + page.string()));
  EXPECT_FALSE(fs::exists(page));
}

TEST(ExplainPlan, ANeighbourIsWhatSimulateSaysOfIt) {
  const Scratch scratch;
  const std::string base = text_of(fs::path(ORRERY_SOURCE_DIR) / kTiny);
  const std::string plan = (scratch.path() / "plan.yaml").string(), other = (scratch.path() / "other.yaml").string();
  ASSERT_EQ(
      orrery({"plan", kTiny, "-o", plan, "--set", "plan={data: 2, micro_batch: 1, recompute: none, zero_stage: 0}"})
          .exit_code,
      0);
  ASSERT_EQ(
      orrery({"plan", kTiny, "-o", other, "--set", "plan={data: 2, micro_batch: 2, recompute: none, zero_stage: 0}"})
          .exit_code,
      0);
  const nlohmann::json neighbours = orrery({"explain", plan, "--json"}).result().at("neighbours");
  const auto next = std::find_if(neighbours.begin(), neighbours.end(),
                                 [](const auto& one) { return one.at("change") == "micro-batch 2"; });
  ASSERT_NE(next, neighbours.end());
  EXPECT_EQ(next->at("step_time_s"), orrery({"simulate", other, "--json"}).result().at("step_time_s"));
}

TEST(Memory, ProbeAndDoctorAgree) {
  const double bytes = orrery({"probe", "--json"}).result().at("machine").at("memory_bytes").get<double>();
  std::string said;
  const nlohmann::json found = orrery({"doctor", "--json"}).result().at("capabilities");
  for (const nlohmann::json& one : found)
    if (one.at("name") == "memory") said = one.at("detail").get<std::string>();
  EXPECT_NEAR(std::stod(said) * (said.find("GiB") != std::string::npos ? 1 << 30 : 1 << 20), bytes, 0.02 * bytes)
      << said;
}

}  // namespace asked_test
}  // namespace orrery::tests
