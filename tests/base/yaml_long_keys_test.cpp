// Keys that can be read but not written back.
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace orrery::base {
namespace yaml_long_keys_test {

TEST(YamlKeys, KeyThatIsWrittenLongIsRefusedAndOneThatJustFitsIsReadAgain) {
  const auto findings_of = [](const std::string& text) { return Document::parse(text, "k.yaml").findings().all(); };
  for (const std::string& key : {std::string(1001, 'a'), "\"" + std::string(1100, 'e') + "\""}) {
    const auto found = findings_of("? " + key + "\n: 1\n");
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].code, "E0108");
    EXPECT_EQ(found[0].where.line, 1);
  }
  std::string accents;  // of two bytes each
  for (int i = 0; i < 499; ++i) accents += "\u00e9";
  for (const std::string& key : {std::string(1000, 'a'), "\"" + accents + "\""}) {
    const auto first = Document::parse("? " + key + "\n: {b: 2}\n", "k.yaml");
    ASSERT_TRUE(first.findings().all().empty()) << render(first.findings().all(), false);
    const std::string written = first.root().dump();
    const auto second = Document::parse(written, "k.yaml");
    EXPECT_FALSE(second.findings().failed()) << render(second.findings().all(), false);
    EXPECT_EQ(second.root().dump(), written);
  }
}

}  // namespace yaml_long_keys_test
}  // namespace orrery::base
