// The rules of a plan: each once, in order, and on the page of errors.
#include "plan/spec/rules.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace orrery::plan {
namespace {

TEST(Rules, HaveACodeOfTheirOwnAndARowOnThePageOfErrors) {
  std::stringstream page;
  page << std::ifstream(ORRERY_SOURCE_DIR "/docs/errors.md").rdbuf();
  std::set<std::string_view> codes;
  for (const Rule& rule : kRules) {
    EXPECT_TRUE(codes.insert(rule.code).second) << rule.code;
    EXPECT_NE(page.str().find("| " + std::string(rule.code) + " |"), std::string::npos) << rule.code;
    EXPECT_EQ(find_rule(rule.code), &rule);
  }
  EXPECT_EQ(find_rule("P00"), nullptr);
}

}  // namespace
}  // namespace orrery::plan
