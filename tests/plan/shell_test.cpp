// Launch scripts, read without running them.
#include "plan/frameworks/shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/frameworks/arithmetic.h"
#include "plan/frameworks/layouts.h"

namespace orrery::plan {
namespace shell_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The words of a script's last command.
std::vector<std::string> last(const std::string& text, const std::map<std::string, std::string>& set = {}) {
  const ShellScript script = read_shell(text, "run.sh", set);
  std::vector<std::string> out;
  if (!script.errors.empty()) return {script.errors.front().message};
  if (script.commands.empty()) return {};
  for (const TracedText& one : script.commands.back().words) out.push_back(one.text);
  return out;
}

TEST(Shell, VariablesAndArraysBecomeWords) {
  EXPECT_THAT(last("N=4\nA=(--x $N # why\n  \"--y 2\")\nA+=(--z)\nrun ${A[@]} \"${A[@]}\" $A\n"),
              ElementsAre("run", "--x", "4", "--y", "2", "--z", "--x", "4", "--y 2", "--z", "--x"));
  EXPECT_THAT(last("O=\" \\\n --a 1 \\\n --b 'c d' \"\nrun \\\n $O '$O'\n"),
              ElementsAre("run", "--a", "1", "--b", "'c", "d'", "$O"));
  EXPECT_THAT(last("run ${A:-5} ${B:+6} ${C-7}8\n"), ElementsAre("run", "5", "78"));
}

TEST(Shell, ArithmeticIsDoneAndWhatIsMissingStaysAHole) {
  EXPECT_THAT(last("A=8\nB=2\nrun $((A*$B + (10 % 4) ** 2)) $((A > 7 ? 1 : 0))\n"), ElementsAre("run", "20", "1"));
  const auto words = last("run $((NODES * 8)) $(date)\n");
  ASSERT_EQ(words.size(), 3U);
  EXPECT_EQ(hole_in(words[1]), "$NODES");
  EXPECT_EQ(hole_in(words[2]), "$(date)");
  EXPECT_THAT(last("run $((NODES * 8))\n", {{"NODES", "2"}}), ElementsAre("run", "16"));
  EXPECT_EQ(arithmetic("1/0", [](const std::string&) { return std::nullopt; }), std::nullopt);
  EXPECT_EQ(arithmetic("9223372036854775807 + 1", [](const std::string&) { return std::nullopt; }), std::nullopt);
}

TEST(Shell, TakesTheBranchThatHolds) {
  const std::string script =
      "if [[ \"$M\" == \"moe\" ]]; then run moe; elif [ $N -gt 1 ]; then run many; else run one; fi\n";
  EXPECT_THAT(last("M=moe\n" + script), ElementsAre("run", "moe"));
  EXPECT_THAT(last("N=2\n" + script), ElementsAre("run", "many"));
  EXPECT_THAT(last("N=1\n" + script), ElementsAre("run", "one"));
  EXPECT_THAT(last("case $S in a|b) run ab;; *) run other;; esac\n", {{"S", "b"}}), ElementsAre("run", "ab"));
  EXPECT_THAT(last("f() { run inside; }\nrun outside\n"), ElementsAre("run", "outside"));
}

TEST(Shell, ReadsHereDocumentsNestedShellsAndBatchLines) {
  const ShellScript script = read_shell(
      "#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --gres=gpu:4\nS=2\ncat <<EOT > ds.json\n{\"stage\": $S}\nEOT\n"
      "srun bash -c \"python train.py --n $SLURM_NNODES\" | tee log\n",
      "run.sh");
  ASSERT_TRUE(script.errors.empty()) << base::render(script.errors, false);
  EXPECT_EQ(script.documents.at("ds.json").text, "{\"stage\": 2}\n");
  EXPECT_EQ(script.batch.nodes, 3);
  EXPECT_EQ(script.batch.gpus_per_node, 4);
  bool found = false;
  for (const ShellCommand& one : script.commands) found |= one.words.size() > 1 && one.words[1].text == "train.py";
  EXPECT_TRUE(found);
}

TEST(Shell, AScriptThatBreaksOffIsAnErrorWithItsPlace) {
  for (const char* text :
       {"run 'open", "if true; then\nrun\n", "A=(1 2\n", "cat <<E > f\nx\n", "run ${A", "case a in"}) {
    const ShellScript script = read_shell(text, "cut.sh");
    ASSERT_EQ(script.errors.size(), 1U) << text;
    EXPECT_EQ(script.errors[0].code, "E0651");
    EXPECT_GE(script.errors[0].where.line, 1);
  }
}

TEST(Shell, AWordKnowsWhereItWasWritten) {
  const std::string text = "A=12\nrun --n $A\n";
  const ShellScript script = read_shell(text, "run.sh");
  const base::Location where = place_in(text, "run.sh", script.commands.at(0).words.at(2).from.front());
  EXPECT_EQ(where.line, 1);
  EXPECT_EQ(where.column, 3);
}

TEST(Layouts, OfExpertsAndOfStages) {
  EXPECT_EQ(layers_of_pattern("([0]*1+[1]*2)", 3), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(layers_of_pattern("2", 4), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(layers_of_pattern("[1]*3", 4), std::nullopt);
  EXPECT_EQ(layers_of_pattern("__import__('os')", 4), std::nullopt);
  EXPECT_EQ(stages_of_layout("Et*3|(t|)*2t*3L"), (std::vector<std::int64_t>{3, 1, 1, 3}));
  EXPECT_EQ(stages_of_layout("Et*99999999|L"), std::nullopt);
}

}  // namespace shell_test
}  // namespace orrery::plan
