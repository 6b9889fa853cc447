// Texts of others that may be shown, and what stands for those that may not.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace orrery::base {
namespace printable_test {

// What a name can do where it is shown: end a line, move a cursor, erase, speak in 8-bit controls, turn round what
// stands behind it.
const char* const kSteering[] = {"a\nb",
                                 "a\rb",
                                 "a\tb",
                                 "\x1b[31m",
                                 "\x1b]0;title\x07",
                                 "a\x7f",
                                 "\u009b31m",
                                 "a\u0085b",
                                 "a\u2028b",
                                 "a\u2029b",
                                 "\u202eabc",
                                 "\u2066abc",
                                 "\x9b"
                                 "31m",
                                 "\xff",
                                 "a\xc3",
                                 "\xed\xa0\x80"};

TEST(Printable, OneLineIsTextThatSteersNothing) {
  for (const char* text : {"", "gpt2-124m", "Größe µ 模型", "a'b\"c`d$(e);-f", "\u00a0", "\U0001f600"})
    EXPECT_TRUE(is_one_line(text)) << text;
  for (const char* text : kSteering) EXPECT_FALSE(is_one_line(text)) << printable(text);
  EXPECT_FALSE(is_one_line(std::string_view("a\0b", 3)));
}

TEST(Printable, EscapesWhatSteersAndNothingElse) {
  EXPECT_EQ(printable("Größe `x` $(y)"), "Größe `x` $(y)");
  EXPECT_EQ(printable("a\nb\tc\x1b[0m\x7f"), "a\\nb\\tc\\x1b[0m\\x7f");
  EXPECT_EQ(printable("\u009b\u2028\u202e"), "\\u{9b}\\u{2028}\\u{202e}");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  for (const char* text : kSteering) EXPECT_TRUE(is_one_line(printable(text))) << text;
}

TEST(Printable, BlanksTakeTheColumnsOfWhatTheyStandFor) {
  EXPECT_EQ(blanked("é\x1b[1m\tx\u2028y\xff"), "é [1m\tx y ");
}

TEST(Printable, LinesKeepTheirEndsTabsAndColoursOnly) {
  const std::string coloured = "a\tb\n\x1b[1;31mred\x1b[0m\n";
  EXPECT_EQ(printable_lines(coloured, true), coloured);
  EXPECT_EQ(printable_lines(coloured, false), "a\tb\n\\x1b[1;31mred\\x1b[0m\n");
  EXPECT_EQ(printable_lines("\x1b[2J\x1b]0;t\x07\x1b[31", true), "\\x1b[2J\\x1b]0;t\\x07\\x1b[31");
}

}  // namespace printable_test
}  // namespace orrery::base
