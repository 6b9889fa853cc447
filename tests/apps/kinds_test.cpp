// Files, folders and names of another kind than is wanted: each is called what it is, with what to do about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace kinds_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kTinyJob = "examples/tiny-gpt-localhost-2.yaml";

TEST(WrongKind, APlanIsNoJobAndAJobNoPlan) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", kTinyJob, "-o", plan}).exit_code, 0);
  const Ran ran = orrery({"plan", plan});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("this is a plan, but a job is expected"));
  EXPECT_THAT(orrery({"simulate", kTinyJob}).err, HasSubstr("this is a job, but a plan is expected"));
}

TEST(WrongKind, OfAnyFileIsNamedWithWhatToDoAboutIt) {
  const Scratch scratch;
  const fs::path source = ORRERY_SOURCE_DIR;
  const std::string model = (source / "models/catalog/llama3-8b.yaml").string();
  const std::string cluster = (source / "clusters/catalog/dgx-a100.yaml").string();
  const std::string stack = (source / "cost/stacks/megatron-core.yaml").string();
  const std::string config = scratch.file("config.json", "{\"model_type\": \"llama\"}\n");
  const auto said = [](const std::vector<std::string>& words, const char* what, const char* help) {
    const Ran ran = orrery(words);
    EXPECT_EQ(ran.exit_code, 3) << words.front();
    EXPECT_THAT(ran.err, HasSubstr("error[E0125]")) << words.front();
    EXPECT_THAT(ran.err, HasSubstr(what));
    EXPECT_THAT(ran.err, HasSubstr(help));
    EXPECT_EQ(ran.err.find("error["), ran.err.rfind("error[")) << "one error: " << ran.err;
  };
  said({"plan", model}, "this is a model, but a job is expected", "`orrery init --model ");
  said({"plan", config}, "this is a model of Hugging Face's, but a job is expected", "`orrery model ");
  said({"simulate", cluster}, "this is a cluster, but a plan is expected", "`orrery explain --cluster ");
  said({"model", cluster}, "this is a cluster, but a model is expected", "`orrery explain --cluster ");
  said({"collective", model}, "this is a model, but a cluster is expected", "`orrery model ");
  said({"plan", kTinyJob, "--calibration", stack}, "this is a software stack, but a calibration is expected",
       "`stack: ");
  said({"validate", kTinyJob}, "this is a job, but a file of published runs is expected", "`orrery plan ");
}

TEST(WrongKind, OfACatalogueNameIsSaid) {
  EXPECT_THAT(orrery({"model", "hgx-h100"}).err, HasSubstr("`hgx-h100` is a cluster, but a model is expected"));
  EXPECT_THAT(orrery({"collective", "llama3-8b"}).err, HasSubstr("`llama3-8b` is a model, but a cluster is expected"));
  EXPECT_THAT(orrery({"model", "hgx-h100"}).err, HasSubstr("`orrery explain --cluster hgx-h100` shows it"));
  for (const char* verb : {"explain", "simulate"}) {
    const Ran ran = orrery({verb, "hgx-h100"});
    EXPECT_EQ(ran.exit_code, 3) << verb;
    EXPECT_THAT(ran.err, HasSubstr("error[E0125]: `hgx-h100` is a cluster, but a plan is expected")) << verb;
    EXPECT_THAT(ran.err, HasSubstr("`orrery explain --cluster hgx-h100` shows it")) << verb;
  }
  EXPECT_THAT(orrery({"plan", "llama3-8b"}).err, HasSubstr("`llama3-8b` is a model, but a job is expected"));
  EXPECT_THAT(orrery({"plan", "no-such-thing"}).err, HasSubstr("error[E0201]"));
}

TEST(WrongKind, AFolderThatIsNoRunAndAFileInPlaceOfOneAreTold) {
  const Scratch scratch;
  const std::string folder = scratch.path().string(), file = scratch.file("job.yaml", "model: tiny-gpt\n");
  const std::string page = (scratch.path() / "page.html").string();
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"report", folder, "-o", page}, {"calibrate", folder, "-o", page}, {"export", folder, "--as", "megatron"}})
    EXPECT_THAT(orrery(words).err, HasSubstr("is no run: it has no plan.yaml")) << words.front();
  EXPECT_THAT(orrery({"calibrate", file, "-o", page}).err, HasSubstr("the directory of a run is expected"));
}

TEST(MissingFile, IsNamedWithTheOneThatWasProbablyMeant) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: tiny-gpt\n");
  EXPECT_THAT(orrery({"plan", (scratch.path() / "jbo.yaml").string()}).err, HasSubstr("did you mean `" + job + "`?"));
}

TEST(WrongKind, ARunIsNoPlanButHasOne) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", kTinyJob, "-o", plan}).exit_code, 0);
  for (const char* verb : {"simulate", "explain"}) {
    const Ran ran = orrery({verb, scratch.path().string()});
    EXPECT_EQ(ran.exit_code, 3) << verb;
    EXPECT_THAT(ran.err, HasSubstr("its plan is " + plan)) << verb;
  }
}

}  // namespace kinds_test
}  // namespace orrery::tests
