// Values of the command line over a text's.
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace orrery::base {
namespace yaml_override_test {

constexpr const char* kText = "batch: 8\nplan:\n  tensor: [1, 2]\n  zero_stage: 1\n";

std::string said(const Document& document) {
  std::string out;
  for (const Diagnostic& d : document.close())
    out += d.code + " " + d.where.file + ":" + std::to_string(d.where.line) + ":" + std::to_string(d.where.column) +
           " " + d.source_line + "\n";
  return out;
}

TEST(YamlOverride, TakesThePlaceOfAValueOrIsAdded) {
  const Document document =
      Document::parse(kText, "job.yaml", {{"batch", "16"}, {"plan.tensor", "4"}, {"training.optimizer.name", "lion"}});
  const Cursor root = document.root();
  EXPECT_EQ(root.at("batch").integer(1, 100), 16);
  EXPECT_EQ(root.at("plan").at("tensor").integer(1, 100), 4);
  EXPECT_EQ(root.at("plan").at("zero_stage").integer(0, 3), 1) << "what is not named stays";
  EXPECT_EQ(root.at("training").at("optimizer").at("name").text(), "lion");
  EXPECT_EQ(said(document), "");
}

TEST(YamlOverride, TheLastOfAKeyWinsAndNothingTakesAValueAway) {
  const Document document = Document::parse(kText, "job.yaml", {{"batch", "16"}, {"batch", "32"}, {"plan", ""}});
  EXPECT_EQ(document.root().at("batch").integer(1, 100), 32);
  EXPECT_FALSE(document.root().optional("plan").exists());
}

TEST(YamlOverride, IsJudgedAsTheFileIsAndSaysWhereItStands) {
  const Document document =
      Document::parse(kText, "job.yaml", {{"batch", "16"}, {"batch", "many"}, {"plan.tensr", "2"}});
  (void)document.root().at("batch").integer(1, 100);
  (void)document.root().at("plan").optional("tensor");
  (void)document.root().at("plan").optional("zero_stage");
  EXPECT_EQ(said(document), "E0105 --set:2:7 batch=many\nE0103 --set:3:1 plan.tensr=2\n");
}

TEST(YamlOverride, WhatIsNoYamlOrHasNoKeysIsRefused) {
  EXPECT_EQ(said(Document::parse(kText, "job.yaml", {{"plan.tensor", "[1, 2"}})).substr(0, 13), "E0101 --set:1");
  const Document below = Document::parse(kText, "job.yaml", {{"batch.size", "2"}});
  EXPECT_TRUE(below.findings().failed());
  EXPECT_EQ(below.findings().all().front().code, "E0104");
}

}  // namespace yaml_override_test
}  // namespace orrery::base
