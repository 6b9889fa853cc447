// Expressions that come with a vocabulary.
#include "exec/data/pretokenise.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::exec {
namespace pretokenise_test {

TEST(Pretokenise, ExpressionThatCutsCharactersIsRefusedAndOneThatTakesThemWholeIsNot) {
  for (const char* cutting : {"\\C", "a|\\C+?b"}) {
    const auto refused = Pretokeniser::of(cutting);
    ASSERT_FALSE(refused.has_value()) << cutting;
    EXPECT_EQ(refused.error().front().code, "E0616");
  }
  const auto whole = Pretokeniser::of("\\X");
  ASSERT_TRUE(whole.has_value());
  std::vector<std::string> pieces;
  whole->split("a\u00e9b", [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\u00e9", "b"}));
}

}  // namespace pretokenise_test
}  // namespace orrery::exec
