// The tutorial's commands, run as they stand in the page.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace tutorial_test {

namespace fs = std::filesystem;

TEST(LoopTutorial, EveryCommandOfThePageRuns) {
  const fs::path folder = fs::path(ORRERY_BINARY).parent_path();
  if (!fs::exists(folder / "orrery-worker")) GTEST_SKIP() << "the worker is not built";
  if (!fs::exists("/usr/share/common-licenses")) GTEST_SKIP() << "no text to train on";
  const Scratch scratch;
  fs::create_directory(scratch.path() / "work");
  std::string script = "set -eu\nexport PATH=" + folder.string() + ":$PATH\ncd " + (scratch.path() / "work").string();
  int commands = 0;
  std::istringstream page(text_of(fs::path(ORRERY_SOURCE_DIR) / "docs/tutorial.md"));
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("    $ ", 0) != 0) continue;
    script += "\necho '" + line + "' >&2\n" + line.substr(6);
    ++commands;
  }
  EXPECT_GT(commands, 12);
  const std::string file = scratch.file("tutorial.sh", script + "\n"), log = (scratch.path() / "log").string();
  const int status = std::system(("env -u COLUMNS bash " + file + " > " + log + " 2>&1").c_str());
  EXPECT_EQ(status, 0) << text_of(log);
  for (const char* made : {"here.yaml", "job.yaml", "plan.yaml", "trace.json", "run/completed.json", "calibration.yaml",
                           "report.html", "train.sh"})
    EXPECT_TRUE(fs::exists(scratch.path() / "work" / made)) << made;
}

}  // namespace tutorial_test
}  // namespace orrery::tests
