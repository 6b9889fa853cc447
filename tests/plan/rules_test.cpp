// The rules of a plan: each once, in order, and on the page of errors, which says of them what their table says.
#include "plan/spec/rules.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace orrery::plan {
namespace rules_test {

constexpr const char* kPage = ORRERY_SOURCE_DIR "/docs/errors.md";
constexpr const char* kBegin =
    "<!-- Rules of plans: made from plan/spec/rules.h by test_plan (ORRERY_WRITE_DOCS=1). -->";

std::string page_of_errors() {
  std::stringstream page;
  page << std::ifstream(kPage).rdbuf();
  return page.str();
}

std::string capitalised(std::string text) {
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// What stands on the page between kBegin and the next paragraph.
std::string table_of_rules() {
  std::string out = "\n\n| code | meaning | remedy |\n|---|---|---|\n";
  for (const Rule& rule : kRules) {
    const std::string meaning(rule.meaning.empty() ? capitalised(std::string(rule.broken_by)) : rule.meaning);
    const std::string remedy(rule.remedy);
    out += "| " + std::string(rule.code) + " | " + meaning + " | " + remedy + (remedy.empty() ? "|\n" : " |\n");
  }
  return out;
}

TEST(Rules, HaveACodeOfTheirOwnInOrder) {
  std::set<int> numbers;
  for (const Rule& rule : kRules) {
    const int number = std::stoi(std::string(rule.code.substr(1)));
    EXPECT_TRUE(numbers.empty() || number > *numbers.rbegin()) << rule.code;
    numbers.insert(number);
    EXPECT_EQ(find_rule(rule.code), &rule);
  }
  EXPECT_EQ(find_rule("P00"), nullptr);
}

TEST(Rules, StandOnThePageOfErrorsAsInTheirTable) {
  std::string page = page_of_errors();
  const std::size_t marked = page.find(kBegin);
  ASSERT_NE(marked, std::string::npos) << "no line " << kBegin;
  const std::size_t begin = marked + std::string(kBegin).size(), header = page.find('|', begin);
  const std::size_t end = page.find("\n\n", header) + 1;
  if (std::getenv("ORRERY_WRITE_DOCS") != nullptr)
    std::ofstream(kPage) << page.replace(begin, end - begin, table_of_rules());
  else
    EXPECT_EQ(page.substr(begin, end - begin), table_of_rules()) << "ORRERY_WRITE_DOCS=1 writes it";
}

TEST(Rules, SayInMessagesWhatHelpsUnlessTheMessageKnowsBetter) {
  EXPECT_EQ(help_of({"P00", "", "", "Use `zero_stage: 1`, or none"}), "use zero_stage: 1, or none");
  EXPECT_EQ(help_of({"P00", "", "", "`zero_stage: 1`"}), "zero_stage: 1");
  const base::Diagnostic plain = RuleCode("P12").broken("data is 1"), own = RuleCode("P12").broken("data is 1", "wait");
  EXPECT_EQ(plain.code, "P12");
  EXPECT_EQ(plain.message, "data is 1");
  EXPECT_EQ(plain.help, help_of(*find_rule("P12")));
  EXPECT_EQ(own.help, "wait");
}

}  // namespace rules_test
}  // namespace orrery::plan
