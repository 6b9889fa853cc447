// The strict JSON reader: what it reads, and that nothing slips through.
#include "base/json.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <limits>

#include "tests/base/peak.h"

namespace orrery::base {
namespace json_test {

std::string brief(const Diagnostics& all) {
  std::string out;
  for (const auto& d : all) {
    out += d.code + " " + std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + " " + d.message + "\n";
  }
  return out;
}

// Findings when the text is walked through as it is.
std::string walk(const std::string& text) {
  JsonReader in(text, "t.json");
  in.skip();
  in.finish();
  return brief(in.errors());
}

std::string as_text(const std::string& text) {
  JsonReader in(text, "t.json");
  const std::string out = in.text();
  in.finish();
  return in.failed() ? brief(in.errors()) : out;
}

TEST(Json, ReadsObjectsArraysAndScalars) {
  JsonReader in(
      R"({"n": -5, "x": 1.5e3, "on": true, "list": [1, 2, 3], "name": "a\n\u00e9\ud83d\ude00", "other": {"z": [null, {}]}})",
      "t.json");
  std::int64_t sum = 0;
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key == "n") {
      EXPECT_EQ(in.integer(-9, 9), -5);
    } else if (key == "x") {
      EXPECT_EQ(in.number(0, 1e9), 1500);
    } else if (key == "on") {
      EXPECT_TRUE(in.boolean());
    } else if (key == "list") {
      for (in.open_array(); in.item();) sum += in.integer(0, 9);
    } else if (key == "name") {
      EXPECT_EQ(in.text(), "a\né😀");
    } else {
      in.skip();
    }
  }
  in.finish();
  EXPECT_EQ(brief(in.errors()), "");
  EXPECT_EQ(sum, 6);
}

TEST(Json, RefusesDuplicateKeysWithTheirPlace) {
  EXPECT_EQ(walk("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}"), "E0107 3:2 key `a` is given twice\n");
  EXPECT_EQ(walk("[{\"a\": 1}, {\"a\": 2}]"), "");
}

TEST(Json, RefusesNumbersThatDoNotFit) {
  const auto integer = [](const std::string& text) {
    JsonReader in(text, "t.json");
    (void)in.integer(0, std::numeric_limits<std::int64_t>::max());
    in.finish();
    return brief(in.errors());
  };
  EXPECT_EQ(integer("9223372036854775807"), "");
  for (const char* text : {"9223372036854775808", "18446744073709551616", "-1", "1.0", "1e2", "01", "0x1", "\"1\"",
                           "null", "", "nan", "1-", "-"}) {
    EXPECT_NE(integer(text), "") << text;
  }
  for (const char* text : {"1e999", "NaN", "Infinity", ".5", "-.5", "1.", "+1", "01", "1,5", "- 1", "--1"}) {
    JsonReader in(text, "t.json");
    (void)in.number(-1e300, 1e300);
    in.finish();
    EXPECT_TRUE(in.failed()) << text;
  }
  JsonReader in("7", "t.json");
  (void)in.number(0, 5);
  EXPECT_EQ(brief(in.errors()), "E0130 1:1 must be from 0 to 5, found `7`\n");
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const char* text :
       {"",      "{",      "[",        "{]",    "[}",      "{\"a\"}",   "{\"a\":}",    "{\"a\":1,}",         "[1,]",
        "[1 2]", "{a: 1}", "{'a': 1}", "\"",    "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"a\nb\"",
        "tru",   "// c",   "1 2",      "{} {}", "[1]]",    "\"\\",      "\"\\u"}) {
    EXPECT_NE(walk(text), "") << text;
  }
  EXPECT_NE(walk(std::string("[1\0]", 4)), "");
  EXPECT_NE(walk("\"\xff\""), "");
}

TEST(Json, PointsAtLineAndColumn) {
  EXPECT_EQ(walk("{\n  \"é\": tru\n}"), "E0130 2:8 a value is expected here\n");
  JsonReader in("{\n  \"a\": oops\n}", "t.json");
  in.skip();
  ASSERT_TRUE(in.failed());
  EXPECT_EQ(render(in.errors()[0], false),
            "error[E0130]: a value is expected here\n"
            " --> t.json:2:8\n"
            "  |\n"
            "2 |   \"a\": oops\n"
            "  |        ^\n");
}

TEST(Json, EndsEveryLoopAfterTheFirstError) {
  JsonReader in("[1, x, 2, 3]", "t.json");
  int items = 0;
  for (in.open_array(); in.item(); ++items) EXPECT_EQ(in.integer(0, 9), items == 0 ? 1 : 0);
  EXPECT_EQ(items, 2);
  EXPECT_EQ(in.errors().size(), 1U);
  EXPECT_FALSE(in.item());
  EXPECT_EQ(in.text(), "");
  in.finish();
}

TEST(Json, RefusesDeepNesting) {
  EXPECT_EQ(walk(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_EQ(walk(std::string(65, '[') + std::string(65, ']')), "E0108 1:65 nested deeper than 64 levels\n");
  EXPECT_NE(walk(std::string(1'000'000, '[')), "");
}

TEST(Json, SaysWhatStandsNext) {
  JsonReader in(R"([{}, [], "", -1, 2, true, false, null, x])", "t.json");
  std::string kinds;
  for (in.open_array(); in.item(); in.skip()) kinds += in.kind() == '\0' ? '.' : in.kind();
  EXPECT_EQ(kinds, "{[\"00bbn.");
  EXPECT_TRUE(in.failed());
  JsonReader number("-1.5e3", "t.json");
  EXPECT_EQ(number.number_word(), "-1.5e3");
  JsonReader none("x", "t.json");
  EXPECT_EQ(none.number_word(), "0");
  EXPECT_TRUE(none.failed());
}

TEST(Json, KeysThatAreOpenAreCounted) {
  std::string text = "{";
  for (int i = 0; i < 1'100'000; ++i) text += fmt::format("\"{:x}\":1,", i);
  text += "\"z\":1}";
  const std::int64_t peak = tests::peak_mib([&] {
    if (walk(text).find("more than 1000000 keys") == std::string::npos) ::_exit(255);
  });
  EXPECT_GE(peak, 0);
  EXPECT_LT(peak, 160);
  EXPECT_EQ(walk("[" + std::string(R"({"a":1,"b":2})") + R"(,{"a":1,"b":2}])"), "") << "closed ones are not";
}

TEST(Json, StringsMayHoldDel) {
  EXPECT_EQ(as_text("\"a\x7f\""), "a\x7f");
}

TEST(JsonQuoted, ReadsBack) {
  for (const char* text : {"", "a\"b\\c\n\t\x01", "é", "/"}) EXPECT_EQ(as_text(json_quoted(text)), text);
}

}  // namespace json_test
}  // namespace orrery::base
