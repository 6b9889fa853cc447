// How diagnostics look, and the nearest word.
#include "base/result.h"

#include <gtest/gtest.h>

namespace orrery::base {
namespace result_test {

Diagnostic sample() {
  return {Severity::error,
          "E0103",
          {"job.yaml", 3, 3, 12},
          "unknown key `gpus_per_nod` in `cluster`",
          "did you mean `gpus_per_node`?",
          "  gpus_per_nod: 8"};
}

TEST(Render, PointsAtTheLineWithACaret) {
  EXPECT_EQ(render(sample(), false),
            "error[E0103]: unknown key `gpus_per_nod` in `cluster`\n"
            " --> job.yaml:3:3\n"
            "  |\n"
            "3 |   gpus_per_nod: 8\n"
            "  |   ^^^^^^^^^^^^\n"
            "  |\n"
            "  = help: did you mean `gpus_per_node`?\n");
}

TEST(Render, AlignsTheGutterWithLongLineNumbers) {
  Diagnostic d = sample();
  d.where.line = 120;
  d.help.clear();
  EXPECT_EQ(render(d, false),
            "error[E0103]: unknown key `gpus_per_nod` in `cluster`\n"
            "   --> job.yaml:120:3\n"
            "    |\n"
            "120 |   gpus_per_nod: 8\n"
            "    |   ^^^^^^^^^^^^\n");
}

TEST(Render, LeavesAwayWhatIsNotKnown) {
  EXPECT_EQ(render(fail("P01", "no mesh").value()[0], false), "error[P01]: no mesh\n");
  EXPECT_EQ(render(Diagnostic{Severity::warning, "", {"a.yaml"}, "empty", "write a key", ""}, false),
            "warning: empty\n --> a.yaml\n  = help: write a key\n");
}

TEST(Render, KeepsTabsAndCountsCharactersNotBytes) {
  Diagnostic d = sample();
  d.where.column = 4;
  d.where.length = 1;
  d.help.clear();
  d.source_line = "\té: x";
  EXPECT_NE(render(d, false).find("3 | \té: x\n  | \t  ^\n"), std::string::npos) << render(d, false);
}

TEST(Render, ShowsOfALongLineOnlyWhatStandsAroundTheColumn) {
  const std::string line = std::string(500, 'a') + "\u00e4WRONG" + std::string(500, 'b');
  const std::string out = render({Severity::error, "", {"f", 1, 502, 5}, "m", "", line}, false);
  EXPECT_NE(out.find("\n1 | ..." + std::string(29, 'a') + "\u00e4WRONGbbb"), out.npos) << out;
  EXPECT_NE(out.find("\n  | " + std::string(33, ' ') + "^^^^^\n"), out.npos) << out;
  EXPECT_EQ(out.find(std::string(100, 'b')), out.npos) << out;
  const std::string end = render({Severity::error, "", {"f", 1, 1002, 400}, "m", "", line}, false);
  EXPECT_NE(end.find("b\n  | " + std::string(98, ' ') + "^^^^^\n"), end.npos) << end;
  const std::string whole = render({Severity::error, "", {"f", 1, 1, 1}, "m", "", std::string(100, 'c')}, false);
  EXPECT_NE(whole.find("| " + std::string(100, 'c') + "\n"), whole.npos) << "what fits is shown whole: " << whole;
}

TEST(Render, NeverLetsInputSteerTheTerminal) {
  Diagnostic d = sample();
  d.message = "found \033[31m\nred";
  d.source_line = "a\033[31mb";
  EXPECT_EQ(render(d, false).find('\033'), std::string::npos);
  EXPECT_NE(render(d, false).find("found \\x1b[31m\\nred"), std::string::npos);
}

TEST(Render, ColoursOnlyWhenAsked) {
  EXPECT_NE(render(sample(), true).find("\033["), std::string::npos);
  EXPECT_EQ(render(sample(), false).find("\033["), std::string::npos);
}

TEST(DidYouMean, FindsTheNearestWordOnly) {
  EXPECT_EQ(did_you_mean("hiden", {"heads", "hidden", "layers"}), "hidden");
  EXPECT_EQ(did_you_mean("presicion", {"precision", "position"}), "precision");
  EXPECT_EQ(did_you_mean("zzz", {"heads", "hidden"}), "");
  EXPECT_EQ(did_you_mean("num_heads", {"kv_heads", "heads", "full_layers"}), "heads") << "a part of the word";
  EXPECT_EQ(did_you_mean("kv-head", {"heads", "kv_heads"}), "kv_heads");
  EXPECT_EQ(did_you_mean("kv_headz", {"heads", "kv_heads"}), "kv_heads") << "one letter away";
  EXPECT_EQ(did_you_mean("size_of_it", {"a_size", "siz"}), "") << "a part that is not whole";
  EXPECT_EQ(did_you_mean("", {"heads"}), "");
  EXPECT_EQ(did_you_mean(std::string(1000, 'a'), {std::string(1000, 'a')}), "");
}

TEST(Quoted, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(quoted("a"), "`a`");
  EXPECT_EQ(quoted(std::string(59, 'a') + "éé"), "`" + std::string(59, 'a') + "...`");
}

}  // namespace result_test
}  // namespace orrery::base
