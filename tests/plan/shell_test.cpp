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

TEST(Shell, TestsDecideWhatRunsBehindThem) {
  EXPECT_THAT(last("M=7b\n[[ $M == \"7b\" ]] && L=32\n[[ $M == \"70b\" ]] && L=80\nrun $L\n"),
              ElementsAre("run", "32"));
  EXPECT_THAT(last("F=0\nE=none\n[ $F = 1 ] && E=fp8\nrun $E\n"), ElementsAre("run", "none"));
  EXPECT_THAT(last("M=x\n[ -z \"$M\" ] && H=128 || H=4096\nrun $H\n"), ElementsAre("run", "4096"));
  EXPECT_THAT(last("(( 0 )) && A=1\nfalse || A=2\ntest 1 = 1 || A=3\n! true || A=$((A + 1))\nrun $A\n"),
              ElementsAre("run", "3"));
  EXPECT_THAT(last("cd /work && A=1 || exit 1\nrun $A\n"), ElementsAre("run", "1")) << "what cannot be told succeeds";
  EXPECT_THAT(last("M=llama-70b-chat\n[[ $M == *70b* ]] && L=80\n[[ $M =~ ^llama-(70|405)b ]] && H=8192\n"
                   "[[ -v M ]] && V=1\ncase $M in gpt*) C=gpt;; [a-z]*-chat) C=chat;; esac\nrun $L $H $V $C\n"),
              ElementsAre("run", "80", "8192", "1", "chat"));
}

TEST(Shell, CallsFunctionsAndCalculates) {
  EXPECT_THAT(last("T=4\nA=\nsetup() { T=8; }\nadd() { A=\"$A $1\"; }\nsetup\nadd \"--x 1\"\nrun $T $A\n"),
              ElementsAre("run", "8", "--x", "1"));
  EXPECT_THAT(last("go() { run \"$@\" $#; }\ngo a b\n"), ElementsAre("run", "a", "b", "2"));
  EXPECT_THAT(last("f() { f; }\nf\nrun ends\n"), ElementsAre("run", "ends"));
  EXPECT_THAT(
      last("T=1\nlet T=T*8\n((M=2, M+=3))\n((M++))\nfor ((i=0;i<4;i++)); do L=$((i + 7)); done\nrun $T $M $L\n"),
      ElementsAre("run", "8", "6", "7"));
  EXPECT_THAT(last("A=(1 2 4)\nA[0]=8\nT=2\nT=4 true\nrun ${A[0]} $T\n"), ElementsAre("run", "8", "2"));
  std::string sums = "A=\"A";
  for (int i = 0; i < 3000; ++i) sums += "+A";
  EXPECT_EQ(hole_in(last(sums + "\"\nrun $((A))\n").at(1)).empty(), false) << "told without an answer, and soon";
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
