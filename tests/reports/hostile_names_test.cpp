// Names that would do something if somebody took them for more than names: in scripts, JSON, YAML and pages. Readers
// refuse those with control characters; writers do not rely on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "clusters/read.h"
#include "models/read/hugging_face.h"
#include "models/read/read.h"
#include "plan/spec/plan_file.h"
#include "reports/exports/frameworks.h"
#include "reports/exports/shell.h"
#include "reports/html/page.h"
#include "reports/trace.h"
#include "tests/plan/samples.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace hostile_names_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Each makes the file `broken` in the current folder when a shell reads it as more than a name.
const std::string kNames[] = {"x\ntouch broken\n",
                              "x\rtouch broken",
                              "'; touch broken; '",
                              "\"; touch broken; \"",
                              "`touch broken`",
                              "$(touch broken)",
                              "x; touch broken",
                              "x && touch broken",
                              "x\u2028touch broken\u2028",
                              "-rf",
                              "--help; touch broken",
                              "x\\\ntouch broken",
                              "x\u0085touch broken\n#",
                              "a\x1b[2J\x07",
                              "</script><script>alert(1)</script>",
                              "\" onload=\"alert(1)\" x=\"",
                              "' onload='alert(1)' x='",
                              "<!--<img src=x onerror=alert(1)>"};
// Those of them that a file may hold.
bool may_be_read(const std::string& name) {
  return name.find_first_of("\n\r\x1b\x07") == std::string::npos && name.find("\u2028") == std::string::npos &&
         name.find("\u0085") == std::string::npos;
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "orrery-names-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text, bool runs = false) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    if (runs) ::chmod((path_ / name).c_str(), 0700);
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  fs::path path_;
};

/// Exit code of `words` in the folder, whose programs come first.
int run(const fs::path& folder, std::vector<std::string> words) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    ::setenv("PATH", (folder.string() + ":" + std::getenv("PATH")).c_str(), 1);
    ::setenv("MEGATRON", "/nowhere", 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

plan::PlanFile file_named(const std::string& name) {
  plan::PlanFile file;
  file.model = samples::tiny_gpt(8);
  file.model.name = name;
  file.cluster = samples::cpu_cluster(2);
  file.cluster.name = name;
  file.spec.mesh.pipeline = 2;
  file.spec.stages.layers_per_stage = {3, 5};  // a layout, which is quoted
  file.spec.shape.batch = 64;
  file.spec.shape.sequence = 16;
  return file;
}

base::Result<Settings> settings(Framework framework, plan::PlanFile file, const std::string& path) {
  if (framework == Framework::deepspeed) {
    file.spec.mesh.pipeline = 1;
    file.spec.mesh.data = 2;
    file.spec.stages.layers_per_stage.clear();
  }
  const auto plan = samples::try_make(file.spec, file.model);
  if (!plan) return tl::unexpected(plan.error());
  return settings_for(framework, file, *plan, path);
}

TEST(HostileName, RunsNothingInMegatronsScript) {
  for (const std::string& name : kNames) {
    const auto made = settings(Framework::megatron, file_named(name), "runs/" + name + "/plan.yaml");
    ASSERT_TRUE(made) << base::render(made.error(), false);
    const Folder folder;
    folder.write("start.sh", made->text);
    folder.write("torchrun", "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >words\n", true);
    EXPECT_EQ(run(folder.path(), {"bash", "start.sh"}), 0) << made->text.substr(0, 600);
    EXPECT_FALSE(fs::exists(folder.path() / "broken")) << made->text.substr(0, 600);
    EXPECT_THAT(folder.read("words"), HasSubstr("--pipeline-model-parallel-layout\nEt*3|t*5L\n"));
    EXPECT_THAT(made->text, Not(HasSubstr("\x1b")));
  }
}

TEST(HostileName, IsOneWordOfAShellAndOneLineOfAComment) {
  for (const std::string& name : kNames) {
    const Folder folder;
    folder.write("words.sh", "# " + shell_comment(name) + "\nprintf '%s' " + shell_word(name) + " >word\n");
    EXPECT_EQ(run(folder.path(), {"sh", "words.sh"}), 0);
    EXPECT_EQ(folder.read("word"), name);
    EXPECT_FALSE(fs::exists(folder.path() / "broken")) << name;
  }
}

TEST(HostileName, LeavesDeepSpeedsJsonWhole) {
  const auto plain = settings(Framework::deepspeed, file_named("plain"), "plan.yaml");
  ASSERT_TRUE(plain) << base::render(plain.error(), false);
  for (const std::string& name : kNames) {
    const auto made = settings(Framework::deepspeed, file_named(name), name);
    ASSERT_TRUE(made);
    EXPECT_EQ(nlohmann::json::parse(made->text), nlohmann::json::parse(plain->text));
  }
}

TEST(HostileName, IsTextInAConfigJsonOfHuggingFace) {
  for (const std::string& name : kNames) {
    models::Model model = samples::tiny_gpt();
    model.name = name;
    model.gelu = models::Gelu::tanh;
    const auto made = models::write_hugging_face(model);
    ASSERT_TRUE(made) << base::render(made.error(), false);
    EXPECT_EQ(nlohmann::json::parse(*made).at("_name_or_path"), name);
  }
}

TEST(HostileName, ComesBackFromAPlanFileOrIsRefused) {
  for (const std::string& name : kNames) {
    plan::PlanFile file = file_named(name);
    const std::string model = models::write_model(file.model);
    const auto read = models::parse_model(model, "model.yaml");
    EXPECT_EQ(read.has_value(), may_be_read(name)) << model;
    if (read) {
      EXPECT_EQ(read->name, name);
    } else {
      EXPECT_THAT(base::render(read.error(), false), HasSubstr("control characters"));
    }
  }
}

TEST(HostileName, IsTextInATrace) {
  plan::Schedule schedule = sample::schedule();
  for (const std::string& name : kNames) {
    for (plan::RankClass& one : schedule.classes)
      for (plan::Block& block : one.blocks)
        for (plan::Step& step : block.steps) step.part = name;
    const plan::Timeline timeline = sample::timeline(schedule, plan::Origin::measured);
    const auto trace = nlohmann::json::parse(trace_json(timeline, schedule, {.all_ranks = true}));
    std::size_t named = 0;
    for (const nlohmann::json& event : trace["traceEvents"])
      named += event.value("name", "").rfind(name, 0) == 0 ? 1U : 0U;
    EXPECT_GT(named, 0U) << name;
  }
}

TEST(HostileName, IsTextInAPage) {
  ChartLibrary library;
  for (std::size_t i = 0; i < chart_library_files().size(); ++i) library.parts.emplace_back("exports.x = 1;");
  const auto count = [](const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  const std::string plain = report_html(sample::report(), library);
  for (const std::string& name : kNames) {
    ReportData data = sample::report();
    data.title = data.subtitle = name;
    for (cost::MeasuredRun& one : data.runs) one.directory = name;
    for (Provenance& one : data.provenance) one.what = one.value = one.source = name;
    for (cost::Residual& one : data.fit->residuals) one.what = name;
    for (cost::FittedParameter& one : data.fit->parameters) one.name = one.source = name;
    data.fit->notes = {name};
    const std::string page = report_html(data, library);
    for (const char* tag : {"<script", "</script", "<img", "<!--", "-->"})
      EXPECT_EQ(count(page, tag), count(plain, tag));
    std::string outside = page;  // of JSON, whose own quotes are escaped there
    for (std::size_t at = outside.find("<script"); at != std::string::npos; at = outside.find("<script", at))
      outside.erase(at, outside.find("</script>", at) - at);
    EXPECT_THAT(outside, Not(HasSubstr("\" onload=")));
    EXPECT_THAT(outside, Not(HasSubstr("' onload=")));
    for (std::size_t at = page.find("class=\"spec\""); at != std::string::npos;
         at = page.find("class=\"spec\"", at + 1)) {
      const std::size_t from = page.find('>', at) + 1;
      const auto spec = nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from), nullptr, false);
      EXPECT_TRUE(spec.is_object()) << name;
    }
  }
}

}  // namespace hostile_names_test
}  // namespace orrery::reports
