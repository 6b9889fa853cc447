// Trees of JSON: the same values, and nothing that copying, writing or destroying them could fall over.
#include "base/json_tree.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/base/peak.h"

namespace orrery::base {
namespace json_tree_test {

using nlohmann::json;

TEST(JsonTree, HoldsWhatTheTextSays) {
  const std::string text =
      R"({"a": [1, -2, 2.5, 1e3, true, false, null, "x\u00e9\n"], "b": {}, "c": [], "d": 9223372036854775807})";
  const auto tree = parse_json(text, "t.json");
  ASSERT_TRUE(tree) << render(tree.error(), false);
  EXPECT_EQ(*tree, json::parse(text));
  EXPECT_TRUE((*tree)["a"][0].is_number_integer());
  EXPECT_TRUE((*tree)["a"][3].is_number_float());
}

TEST(JsonTree, SaysWhereTheTextIsWrong) {
  const auto tree = parse_json("{\"a\": 1,\n \"a\": 2}", "t.json");
  ASSERT_FALSE(tree);
  EXPECT_EQ(tree.error().front().code, "E0107");
  EXPECT_EQ(tree.error().front().where.line, 2);
  for (const char* wrong : {"", "{", "[1,]", "{} {}", "tru", "[01]", "\"\\ud800\"", "[1e999]"})
    EXPECT_FALSE(parse_json(wrong, "t.json")) << wrong;
}

TEST(JsonTree, RefusesNestingThatNobodyCanCopy) {
  for (const std::size_t levels : {std::size_t{65}, std::size_t{200'000}, std::size_t{1'000'000}}) {
    const auto tree = parse_json(std::string(levels, '[') + std::string(levels, ']'), "t.json");
    ASSERT_FALSE(tree);
    EXPECT_EQ(tree.error().front().code, "E0108");
  }
  auto deepest = parse_json(std::string(64, '[') + std::string(64, ']'), "t.json");
  ASSERT_TRUE(deepest);
  const json copy = *deepest;
  EXPECT_EQ(copy.dump(), std::string(64, '[') + std::string(64, ']'));
}

TEST(JsonTree, TakesMemoryByItsBoundAndNotByTheText) {
  std::string text = "[";
  for (int i = 0; i < 4'000'000; ++i) text += "{},";
  text += "0]";
  const std::int64_t peak = tests::peak_mib([&] {
    const auto tree = parse_json(text, "t.json");
    if (tree || tree.error().front().code != "E0108") ::_exit(255);
  });
  EXPECT_GE(peak, 0);
  EXPECT_LT(peak, 128);
}

TEST(JsonLine, IsAnObjectOrNothing) {
  EXPECT_EQ(parse_json_line(R"({"event":"x"})").at("event"), "x");
  for (const char* line : {"", "x", "[1]", "1", "{\"a\":1", "{\"a\":1}{}"})
    EXPECT_TRUE(parse_json_line(line).is_null());
}

TEST(WholeNumber, IsNeverCast) {
  EXPECT_EQ(whole_number(json(5), 0, 9), 5);
  EXPECT_EQ(whole_number(json(-5), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(json(10), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(json(3.9), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(json(1e300), INT64_MIN, INT64_MAX), std::nullopt);
  EXPECT_EQ(whole_number(json(UINT64_MAX), INT64_MIN, INT64_MAX), std::nullopt);
  EXPECT_EQ(whole_number(json("5"), 0, 9), std::nullopt);
}

}  // namespace json_tree_test
}  // namespace orrery::base
