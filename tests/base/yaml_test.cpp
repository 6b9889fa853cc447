// What the strict reader accepts, what it refuses, and what it says.
#include "base/yaml.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "base/printable.h"
#include "tests/base/peak.h"

namespace orrery::base {
namespace yaml_test {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

Diagnostics errors(const std::string& text, const std::function<void(const Cursor&)>& read) {
  const auto result = read_document<int>(text, "t.yaml", [&](const Cursor& root) {
    read(root);
    return 1;
  });
  return result ? Diagnostics{} : result.error();
}

// Findings when the whole text is read by somebody.
Diagnostics syntax(const std::string& text) {
  return errors(text, [](const Cursor& root) { root.ignore(); });
}

std::string brief(const Diagnostics& all) {
  std::string out;
  for (const auto& d : all) {
    out += d.code + " " + std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + " " + d.message + "\n";
  }
  return out;
}

TEST(Yaml, ReadsScalarsListsAndMaps) {
  const auto result =
      read_document<std::string>("name: a\nn: -5\nx: 1e-3\non: true\nlist: [1, 2]\nmap: {k: 'q # r'}\nmemory: 80 GiB\n",
                                 "t.yaml", [](const Cursor& root) {
                                   EXPECT_EQ(root.at("n").integer(-10, 10), -5);
                                   EXPECT_EQ(root.at("x").number(0, 1), 1e-3);
                                   EXPECT_TRUE(root.at("on").boolean());
                                   EXPECT_EQ(root.at("list").items().size(), 2U);
                                   EXPECT_EQ(root.at("list").items()[1].integer(0, 9), 2);
                                   EXPECT_EQ(root.at("n").one_or_many().size(), 1U);
                                   EXPECT_EQ(root.at("map").at("k").text(), "q # r");
                                   EXPECT_EQ(root.at("map").at("k").path(), "map.k");
                                   EXPECT_EQ(root.at("list").items()[1].path(), "list[1]");
                                   EXPECT_EQ(root.at("memory").quantity(UnitKind::bytes, 0, 1e12), 80.0 * (1 << 30));
                                   EXPECT_FALSE(root.optional("absent").exists());
                                   EXPECT_EQ(root.optional("absent").at("below").integer(0, 1, 7), 7);
                                   return root.at("name").text();
                                 });
  ASSERT_TRUE(result.has_value()) << render(result.error(), false);
  EXPECT_EQ(*result, "a");
}

TEST(Yaml, ReadsJson) {
  const std::string text = "{\n\t\"a\":1,\n\t\"b\": [1,2,3], \"c\":{\"d\":null,\"e\":false,\"f\":\"x\\/y\\u00e9\"}}";
  EXPECT_EQ(brief(errors(text,
                         [](const Cursor& root) {
                           EXPECT_EQ(root.at("a").integer(0, 9), 1);
                           EXPECT_EQ(root.at("b").items().size(), 3U);
                           EXPECT_FALSE(root.at("c").optional("d").exists());
                           EXPECT_FALSE(root.at("c").at("e").boolean(true));
                           EXPECT_EQ(root.at("c").at("f").text(), "x/yé");
                         })),
            "");
}

TEST(Yaml, ReportsEveryErrorOfAFileAtOnceInOrder) {
  const std::string text =
      "layers: twelve\n"
      "hiden: 768\n"
      "heads: 0\n"
      "memory: 80\n"
      "kind: gtp\n";
  const Diagnostics found = errors(text, [](const Cursor& root) {
    (void)root.at("hidden").integer(1, 100);
    (void)root.at("kind").choice({"gpt", "bert"});
    (void)root.at("layers").integer(1, 100);
    (void)root.at("heads").integer(1, 100);
    (void)root.at("memory").quantity(UnitKind::bytes, 0, 1e12);
  });
  EXPECT_EQ(brief(found),
            "E0105 1:9 `layers` must be a whole number, found `twelve`\n"
            "E0102 2:1 key `hidden` is missing\n"
            "E0105 3:8 `heads` must be from 1 to 100, found `0`\n"
            "E0105 4:9 `memory`: `80` has no unit; write it like `80 GiB`, `512 MB` or `64 kB`\n"
            "E0106 5:7 `kind` must be one of gpt, bert, found `gtp`\n");
  EXPECT_EQ(render(found[1], false),
            "error[E0102]: key `hidden` is missing\n"
            " --> t.yaml:2:1\n"
            "  |\n"
            "2 | hiden: 768\n"
            "  | ^^^^^\n"
            "  |\n"
            "  = help: `hiden` looks like it; write `hidden`\n");
  EXPECT_EQ(found[4].help, "did you mean `gpt`?");
}

TEST(Yaml, RefusesDuplicateKeysWithBothLines) {
  const Diagnostics found = syntax("layers: 12\na: 1\nlayers: 96\n");
  EXPECT_EQ(brief(found), "E0107 3:1 key `layers` is given twice\n");
  EXPECT_EQ(found[0].help, "it was first given on line 1; keep one of them");
  EXPECT_EQ(found[0].where.length, 6);
  EXPECT_EQ(brief(syntax("a: {b: 1, c: 2, b: 3}\n")), "E0107 1:17 key `b` is given twice\n");
}

TEST(Yaml, RefusesUnknownKeysOnlyInMapsThatWereRead) {
  const std::string text = "a: {known: 1, other: 2}\nb: {x: 1}\nc: [{known: 1, more: 1}]\n";
  EXPECT_EQ(brief(errors(text,
                         [](const Cursor& root) {
                           (void)root.at("a").at("known");
                           root.at("b").ignore();
                           (void)root.at("c").items()[0].at("known");
                         })),
            "E0103 1:15 unknown key `other` in `a`\n"
            "E0103 3:16 unknown key `more` in `c[0]`\n");
}

TEST(Yaml, RefusesNumbersThatAreNotWhatTheyLookLike) {
  for (const char* text : {"010",
                           "0x10",
                           "0o10",
                           "1e3",
                           "3.7",
                           "1_000",
                           "4096k",
                           "18446744073709551616",
                           "9223372036854775808",
                           ".nan",
                           ".inf",
                           "-.inf",
                           "'5'",
                           "\"5\"",
                           "+5",
                           "",
                           "-",
                           "five",
                           "[5]",
                           "{a: 5}"}) {
    const Diagnostics found =
        errors(std::string("n: ") + text + "\n", [](const Cursor& root) { (void)root.at("n").integer(0, kMost); });
    ASSERT_EQ(found.size(), 1U) << text;
    EXPECT_EQ(found[0].where.line, 1) << text;
  }
  for (const char* text : {"010", "0x10", ".nan", ".inf", "1e999", "1,5", "'5'", "nan", "-1", "1_0"}) {
    const Diagnostics found =
        errors(std::string("n: ") + text + "\n", [](const Cursor& root) { (void)root.at("n").number(0, 1e300); });
    ASSERT_EQ(found.size(), 1U) << text;
    EXPECT_EQ(found[0].code, "E0105") << text;
  }
  for (const char* text : {"yes", "NO", "on", "True", "'true'", "1"}) {
    EXPECT_EQ(errors(std::string("n: ") + text + "\n", [](const Cursor& root) { (void)root.at("n").boolean(); }).size(),
              1U)
        << text;
  }
}

TEST(Yaml, HintsWhyANumberWasRefused) {
  const auto help = [](const std::string& text) {
    return errors("n: " + text + "\n", [](const Cursor& root) { (void)root.at("n").integer(0, 100); })[0].help;
  };
  EXPECT_EQ(help("010"), "remove the leading zero; octal numbers are not supported");
  EXPECT_EQ(help("0x10"), "write the number in decimal");
  EXPECT_EQ(help("1_000"), "write the digits without separators");
  EXPECT_EQ(help("'5'"), "remove the quotes");
  EXPECT_EQ(help("1e3"), "write a whole number without point or exponent");
}

TEST(Yaml, TakesAnEmptyValueAsNotGiven) {
  EXPECT_EQ(brief(errors("a:\nb: null\nc: ~\n",
                         [](const Cursor& root) {
                           EXPECT_FALSE(root.optional("a").exists());
                           EXPECT_EQ(root.optional("b").integer(0, 9, 3), 3);
                           (void)root.at("c").integer(0, 9);
                         })),
            "E0102 3:1 key `c` has no value\n");
}

TEST(Yaml, NamesTheMapThatShouldHaveBeenOne) {
  EXPECT_EQ(brief(errors("a: 5\n", [](const Cursor& root) { (void)root.at("a").at("b").integer(0, 9); })),
            "E0104 1:4 `a` must be a map of keys, found a single value\n");
  EXPECT_EQ(brief(errors("- 1\n", [](const Cursor& root) { (void)root.at("a"); })),
            "E0104 1:1 the file must be a map of keys, found a list\n");
  EXPECT_EQ(brief(errors("a: {b: 1}\n", [](const Cursor& root) { (void)root.at("a").items(); })),
            "E0104 1:4 `a` must be a list, found a map of keys\n");
}

TEST(Yaml, WritesAliasesOutAndRefusesThoseWithinThemselves) {
  EXPECT_EQ(brief(errors("a: &x {n: 1}\nb: *x\n",
                         [](const Cursor& root) {
                           EXPECT_EQ(root.at("a").at("n").integer(0, 9), 1);
                           EXPECT_EQ(root.at("b").at("n").integer(0, 9), 1);
                           EXPECT_EQ(root.at("b").at("n").path(), "b.n");
                         })),
            "");
  EXPECT_EQ(brief(syntax("&a [*a]")), "E0108 1:5 this alias is inside what it names\n");
}

TEST(Yaml, RefusesAliasBombsAtOnce) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) bomb += (k ? ", " : "") + before + " ";
    bomb += "]\n";
  }
  const Diagnostics found = syntax(bomb);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E0108");
  EXPECT_EQ(found[0].message, "more than 200000 values once aliases are written out");
}

TEST(Yaml, RefusesDeepNestingWhereItGetsTooDeep) {
  for (const char* opening : {"[", "{a: ", "- "}) {
    for (const std::size_t levels : {65U, 1000U, 20000U}) {
      std::string text;
      for (std::size_t i = 0; i < levels; ++i) text += opening;
      const Diagnostics found = syntax(text);
      ASSERT_FALSE(found.empty());
      EXPECT_TRUE(found[0].code == "E0108" || found[0].code == "E0101") << brief(found);
    }
  }
  EXPECT_EQ(syntax(std::string(64, '[') + std::string(64, ']')).size(), 0U);
  EXPECT_EQ(brief(syntax(std::string(65, '[') + std::string(65, ']'))), "E0108 1:65 nested deeper than 64 levels\n");
}

TEST(Yaml, RefusesBytesThatAreNotText) {
  EXPECT_EQ(brief(syntax(std::string("a: b\nc: d\0e\n", 12))), "E0100 2:5 byte 0x00 does not belong in a text file\n");
  EXPECT_EQ(brief(syntax("a: \xff\n")), "E0100 1:4 byte 0xff does not belong in a text file\n");
  EXPECT_EQ(brief(syntax("a: \xed\xa0\x80\n")), "E0100 1:4 byte 0xed does not belong in a text file\n");  // a surrogate
  EXPECT_EQ(brief(syntax("a: \xc0\xaf\n")), "E0100 1:4 byte 0xc0 does not belong in a text file\n");      // overlong
  EXPECT_EQ(brief(syntax("a: 1\x04\nb: 2\n")),
            "E0100 1:5 byte 0x04 does not belong in a text file\n");  // yaml-cpp's end
  EXPECT_EQ(brief(syntax("é: \xf0\x9f\x98\x80 ok\n")), "");
  EXPECT_EQ(brief(syntax("\xEF\xBB\xBF"
                         "a: 1\r\nb: 2\r\n")),
            "");
}

TEST(Yaml, RefusesFilesThatAreTooLarge) {
  const Diagnostics found = syntax(std::string((std::size_t{4} << 20) + 1, 'a'));
  EXPECT_EQ(brief(found), "E0100 0:0 the file has 4194305 bytes; at most 4194304 are read\n");
}

TEST(Yaml, RefusesTooManyValues) {
  std::string text = "[";
  for (int i = 0; i < 300'000; ++i) text += "1,";
  EXPECT_EQ(syntax(text + "]")[0].code, "E0108");
  EXPECT_EQ(brief(syntax(std::string(200'001, '['))), "E0108 1:200001 more than 200000 opening brackets\n");
  EXPECT_EQ(brief(syntax("a:\n  " + std::string(1'000'001, ','))),
            "E0108 2:1000002 more than 1000000 brackets, commas, colons and quotes\n");
}

TEST(Yaml, RefusesWhatOtherReadersUnderstandDifferently) {
  EXPECT_EQ(syntax("a: 1\n---\nb: 2\n")[0].message, "a second document begins here");
  EXPECT_EQ(syntax("a: !!python/object x\n")[0].code, "E0101");
  EXPECT_EQ(syntax("a: &x {b: 1}\nc:\n  <<: *x\n")[0].message, "merge keys `<<` are not supported");
  EXPECT_EQ(syntax("? [a, b]\n: 1\n")[0].code, "E0101");
  EXPECT_EQ(syntax("a: \"x\\_y\"\n")[0].message, "an escape in this text is not supported");
  EXPECT_EQ(syntax("a: *nobody\n")[0].code, "E0101");
}

TEST(Yaml, SaysWhereTextIsNoYaml) {
  const Diagnostics found = syntax("a: 1\nb: c: d\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E0101");
  EXPECT_EQ(found[0].where.line, 2);
  EXPECT_EQ(found[0].help, "put a text that holds `: ` in quotes");
  EXPECT_EQ(syntax("[1,2")[0].help, "if this is to be a value, close its bracket");
  EXPECT_EQ(syntax("a: {b: [1, 2}\n")[0].help, "another kind of bracket is still open");
  EXPECT_EQ(syntax("node:\n\tdevices: 8\n")[0].help, "indent with spaces: YAML takes no tabs there");
  for (const char* text : {"", "   \n", "# only a comment\n", "~"})
    EXPECT_EQ(syntax(text)[0].message, "the file is empty") << text;
  for (const char* text :
       {"{", "[", "\"", "'", "a: [1, 2\n", "a: b\n c\n: d: e", "\t- x: [", "&", "*", "%", "@", "`", "|", ">", "!"}) {
    (void)syntax(text);  // whatever it is, it ends
  }
}

TEST(Yaml, CutsTheListOfErrors) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "k" + std::to_string(i) + ": 1\n";
  const Diagnostics found = errors(text, [](const Cursor& root) { (void)root.optional("x"); });
  EXPECT_EQ(found.size(), 21U);
  EXPECT_EQ(found.back().message, "after 20 errors the rest of the file is not reported");
}

TEST(Yaml, CutsTheListOfWarningsAndSaysHowManyMoreThereAre) {
  const auto warned = [](int count) {
    Diagnostics found;
    const std::function<int(const Cursor&)> read = [&](const Cursor& root) {
      for (int i = 0; i < count; ++i) root.warning("W1", "warning " + std::to_string(i));
      root.ignore();
      return 0;
    };
    EXPECT_TRUE(read_document("a: 1\n", "t.yaml", read, &found));
    return found;
  };
  EXPECT_EQ(warned(20).size(), 20U) << "as many as are shown";
  EXPECT_EQ(warned(21).back().message, "1 more warning of this file is not shown");
  const Diagnostics found = warned(45);
  ASSERT_EQ(found.size(), 21U);
  EXPECT_EQ(found.back().severity, Severity::note);
  EXPECT_EQ(found.back().message, "25 more warnings of this file are not shown");
}

TEST(Yaml, KnowsWhereAKeyStands) {
  const Document document = Document::parse("plan:\n  data: 4\n", "t.yaml");
  const Cursor plan = document.root().at("plan");
  EXPECT_EQ(plan.where().line, 2) << "the value of a map begins at its first key";
  EXPECT_EQ(plan.where_key(), (Location{"t.yaml", 1, 1, 4}));
  EXPECT_EQ(plan.at("data").where_key().column, 3);
  EXPECT_EQ(document.root().where_key(), document.root().where()) << "in no map";
}

TEST(Yaml, RefusesTextThatIsEmptyOrSteersATerminal) {
  EXPECT_EQ(brief(errors("a: ''\nb: \"\\e[31m\"\nc: \"x\\ny\"\nd: \u202eabc\ne: |\n  x\n  y\nf: a'b`c$(d);\n",
                         [](const Cursor& root) {
                           for (const auto& key : root.keys()) (void)root.at(key).text();
                         })),
            "E0105 1:4 `a` is empty text\nE0105 2:4 `b` holds control characters\n"
            "E0105 3:4 `c` holds control characters\nE0105 4:4 `d` holds control characters\n"
            "E0105 5:4 `e` holds control characters\n");
  EXPECT_EQ(brief(syntax("\"a\\nb\": 1\n")), "E0101 1:1 a key holds control characters\n");
  EXPECT_EQ(brief(syntax("a: {'': t}\n")), "E0101 1:5 a key is empty text\n");
  (void)errors("a: \"x\\ny\"\n", [](const Cursor& root) { EXPECT_EQ(root.at("a").scalar_text(), "x\\ny"); });
}

TEST(Yaml, PathsAreThoseOfTheReaderNotOfTheAlias) {
  (void)errors("a: &x {b: [1, {c: 2}]}\nd: *x\n", [](const Cursor& root) {
    EXPECT_EQ(root.at("d").at("b").items()[1].at("c").path(), "d.b[1].c");
    EXPECT_EQ(root.at("a").at("b").items()[1].at("c").path(), "a.b[1].c");
    EXPECT_EQ(root.optional("e").optional("f").optional("g").path(), "e.f.g");
    EXPECT_EQ(root.path(), "");
  });
}

// Each is refused, or read, in memory that does not depend on what it writes out to.
TEST(Yaml, BombsTakeNoMemory) {
  const auto repeated = [](const std::string& piece, std::size_t bytes) {
    std::string text;
    while (text.size() + piece.size() <= bytes) text += piece;
    return text;
  };
  constexpr std::size_t kFull = (std::size_t{4} << 20) - 64;
  const std::pair<const char*, std::string> bombs[] = {
      {"one scalar of 250 KB, named 75,000 times",
       "a: &a " + std::string(250'000, 'x') + "\nb: [" + repeated("*a,", 225'000) + "]\n"},
      {"one key of 250 KB, named 75,000 times",
       "a: &a {" + std::string(250'000, 'x') + ": 1}\nb: [" + repeated("*a,", 225'000) + "]\n"},
      {"a long path over many values", std::string(100'000, 'k') + ": [" + repeated("1,", 380'000) + "1]\n"},
      {"brackets", repeated("[", kFull)},
      {"braces", repeated("{a: ", kFull)},
      {"commas", "[" + repeated("1,", kFull) + "1]"},
      {"quotes", "[" + repeated("\"\" ", kFull) + "]"},
      {"pairs of JSON", "{" + repeated("\"\":1,", kFull) + "}"},
      {"dashes", repeated("- ", kFull)},
      {"questions", repeated("? ", kFull)},
      {"anchors", repeated("&a ", kFull)},
      {"line ends", repeated("\n", kFull)},
      {"one scalar", "a: " + repeated("x", kFull - 8)},
  };
  for (const auto& [what, text] : bombs) {
    const std::int64_t peak = tests::peak_mib([&bomb = text] {
      const Document document = Document::parse(bomb, "t.yaml");
      if (document.root().exists()) document.root().ignore();
      (void)document.close();
    });
    EXPECT_GE(peak, 0) << what;
    EXPECT_LT(peak, 384) << what;
  }
}

TEST(Yaml, WhatAliasesWriteOutIsCountedInBytes) {
  const std::string bomb =
      "a: &a " + std::string(250'000, 'x') + "\nb: [" + std::string("*a, *a, *a, *a, *a, *a, *a, *a,");
  std::string many = bomb;
  for (int i = 0; i < 10; ++i) many += "*a, *a, *a, *a, *a, *a, *a, *a,";
  EXPECT_EQ(brief(syntax(bomb + "]\n")), "");
  EXPECT_EQ(syntax(many + "]\n")[0].message, "more than 16777216 bytes once aliases are written out");
}

TEST(Yaml, UnderlinesQuotedText) {
  const Diagnostics found = errors("é: 1\nn: \"a \\\" b\"  # c\n", [](const Cursor& root) {
    (void)root.at("é");
    (void)root.at("n").integer(0, 1);
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(render(found[0], false).find("2 | n: \"a \\\" b\"  # c\n  |    ^^^^^^^^\n"), std::string::npos)
      << render(found[0], false);
}

TEST(Yaml, DumpKeepsKeysOrderAndValues) {
  const std::string text =
      "z: 1\na: [x, \"2\", {b: null, c: 'it''s: # so'}]\ne: []\nm: {}\nn: \"line\\nbreak\"\nquoted: \"true\"\n";
  const Document first = Document::parse(text, "t.yaml");
  ASSERT_FALSE(first.findings().failed());
  const std::string dumped = first.root().dump();
  const Document second = Document::parse(dumped, "t.yaml");
  ASSERT_FALSE(second.findings().failed()) << dumped;
  EXPECT_EQ(second.root().dump(), dumped);
  EXPECT_EQ(second.root().keys(), (std::vector<std::string>{"z", "a", "e", "m", "n", "quoted"}));
  EXPECT_EQ(second.root().at("a").items()[2].at("c").text(), "it's: # so");
  EXPECT_EQ(second.root().at("n").scalar_text(), "line\\nbreak");
  (void)second.root().at("quoted").boolean();
  EXPECT_TRUE(second.findings().failed()) << "quoted text must stay text";
}

TEST(Yaml, DumpKeepsWhatOnlyFlowStyleMayWritePlain) {
  for (const char* text :
       {"[0,,-,.5,-1e-9,?x,a b: c,é]", "{a: -, b: -.5, c: ..., d: 80 GiB, e: 'x'}", "a:\n  - b\n    - c\n"}) {
    const Document first = Document::parse(text, "t.yaml");
    if (first.findings().failed()) continue;
    const std::string dumped = first.root().dump();
    const Document second = Document::parse(dumped, "t.yaml");
    ASSERT_FALSE(second.findings().failed()) << text << "\n" << dumped;
    EXPECT_EQ(second.root().dump(), dumped);
  }
  const Document numbers =
      Document::parse(Document::parse("[-.5, -1e-9, .5, 1, true]", "t.yaml").root().dump(), "t.yaml");
  EXPECT_EQ(numbers.root().items().at(0).number(-1, 1), -0.5);
  EXPECT_EQ(numbers.root().items().at(1).number(-1, 1), -1e-9);
  EXPECT_TRUE(numbers.root().items().at(4).boolean());
  EXPECT_FALSE(numbers.findings().failed());
}

TEST(YamlText, QuotesWhatYamlWouldReadDifferently) {
  EXPECT_EQ(yaml_text("GPT-3 175B, table"), "\"GPT-3 175B, table\"");
  EXPECT_EQ(yaml_text("gpt2-124m"), "gpt2-124m");
  for (const char* text :
       {"", "null", "true", "1", "-", "a: b", "#x", " a", "a ", "~", "é", "a\nb", "\"", "\\", "*a", "..."}) {
    const Document document = Document::parse("k: " + yaml_text(text) + "\nl: " + yaml_quoted(text) + "\n", "t.yaml");
    ASSERT_FALSE(document.findings().failed()) << text;
    if (*text == '\0') continue;  // an empty text is an error of its own
    EXPECT_EQ(document.root().at("k").scalar_text(), printable(text));
    EXPECT_EQ(document.root().at("l").scalar_text(), printable(text));
  }
}

TEST(YamlRow, ReadsTheSameOnLinesOfAtMost120Columns) {
  const std::vector<std::string> words = {"two  spaces", "a \"quote\"", "back\\slash", ", and", "#", "plain", "'", ":"};
  for (std::size_t first = 0; first < words.size(); ++first) {
    std::string text;
    for (std::size_t i = 0; i < 60; ++i) text += words[(first + i * (i + 1) / 2) % words.size()] + " ";
    text += "end";
    const std::string row = yaml_row("k: {a: 1, b: [2, 3], c: " + yaml_quoted(text) + ", d: 4}", 2);
    std::size_t lines = 0;
    std::istringstream read(row);
    for (std::string line; std::getline(read, line); ++lines) EXPECT_LE(line.size(), 120U) << line;
    EXPECT_GT(lines, 1U);
    const Document document = Document::parse(row + "\n", "t.yaml");
    ASSERT_FALSE(document.findings().failed()) << row;
    EXPECT_EQ(document.root().at("k").at("c").scalar_text(), text);
    EXPECT_EQ(document.root().at("k").at("d").scalar_text(), "4");
  }
  EXPECT_EQ(yaml_row("k: {a: 1, b: 2}", 2), "k: {a: 1, b: 2}");
  const std::string whole = "k: " + yaml_quoted(std::string(200, 'x'));
  EXPECT_EQ(yaml_row(whole, 2), whole) << "there is no place to break";
}

}  // namespace yaml_test
}  // namespace orrery::base
