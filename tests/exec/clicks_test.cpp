// Criteo's lines, good ones and bad ones.
#include "exec/clicks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

namespace orrery::exec {
namespace {

models::Recommender shape() {
  models::Recommender r;
  r.dense_features = 2;
  r.embedding_dim = 4;
  r.tables = {{10, models::Pooling::sum, 1}, {16, models::Pooling::sum, 2}};
  return r;
}

std::string write(const std::string& text, const std::string& name) {
  const std::string path = ::testing::TempDir() + "lines-" + std::to_string(::getpid()) + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string refused(const std::string& text) {
  const std::string path = write(text, ".tsv");
  const auto file = ClickFile::open(path, shape());
  if (file) return "";
  std::string out;
  for (const base::Diagnostic& one : file.error())
    out += one.code + ":" + std::to_string(one.where.line) + ":" + std::to_string(one.where.column) + ": " +
           one.message + "\n";
  return out;
}

TEST(Clicks, AreReadAsTheContractSays) {
  const auto file = ClickFile::open(write("1\t3\t-7\ta\tff\t11\n0\t\t0\t\t\t1f\r\n", ".tsv"), shape());
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ((*file)->size(), 2);
  std::vector<float> dense(2), label(1);
  std::vector<std::int32_t> indices(3);
  (*file)->read(0, {dense, label, indices});
  EXPECT_FLOAT_EQ(dense[0], std::log(4.0F));
  EXPECT_EQ(dense[1], 0.0F);
  EXPECT_EQ(label[0], 1.0F);
  EXPECT_EQ(indices, (std::vector<std::int32_t>{0, 15, 1}));  // 10 mod 10, 255 mod 16, 17 mod 16
  (*file)->read(3, {dense, label, indices});                  // goes through them again
  EXPECT_EQ(indices, (std::vector<std::int32_t>{0, 0, 15}));
  EXPECT_EQ(label[0], 0.0F);
}

TEST(Clicks, BadLinesAreRefusedByLineAndColumn) {
  const std::string good = "1\t3\t4\ta\tb\tc\n";
  EXPECT_EQ(refused(good), "");
  EXPECT_EQ(refused(good + "0\t1\t2\ta\tb\n"),
            "E0660:2:9: 5 fields, and the model reads 6: the label, 2 dense features, 3 categories\n");
  EXPECT_EQ(refused(good + "0\t1\t2\ta\tb\tc\td\n"),
            "E0660:2:13: 7 fields, and the model reads 6: the label, 2 dense features, 3 categories\n");
  EXPECT_EQ(refused("2\t1\t2\ta\tb\tc\n"), "E0661:1:1: the label is 0 or 1, found `2`\n");
  EXPECT_EQ(refused("1\tnan\t2\ta\tb\tc\n"), "E0661:1:3: a dense feature is a number, found `nan`\n");
  EXPECT_EQ(refused("1\t1\tinf\ta\tb\tc\n"), "E0661:1:5: a dense feature is a number, found `inf`\n");
  EXPECT_EQ(refused("1\t1\t2\ta\t-b\tc\n"), "E0661:1:9: a category is a hexadecimal number, found `-b`\n");
  EXPECT_EQ(refused("1\t1\t2\ta\tb\t0xc\n"), "E0661:1:11: a category is a hexadecimal number, found `0xc`\n");
  EXPECT_EQ(refused("1\t1x\t2\tg\tb\tc\n"),
            "E0661:1:3: a dense feature is a number, found `1x`\n"
            "E0661:1:8: a category is a hexadecimal number, found `g`\n");
  EXPECT_NE(refused(""), "");
  EXPECT_NE(refused("\n" + good), "");
}

// Beyond 64 MiB lines are parsed where training comes to them.
TEST(Clicks, OfALargeFileAreFoundByPlace) {
  const std::string path = ::testing::TempDir() + "large-" + std::to_string(::getpid()) + ".tsv";
  const std::string tail(8000, '0');
  constexpr int kLines = 17'000;
  {
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < kLines; ++i)
      out << (i % 2) << "\t" << i << "\t" << (i == 16'500 ? "bad" : "1") << "\ta\t0\t" << (i % 3 == 0 ? "" : tail)
          << std::hex << i << std::dec << "\n";
  }
  const auto file = ClickFile::open(path, shape());
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ((*file)->size(), kLines);
  std::vector<float> dense(2), label(1);
  std::vector<std::int32_t> indices(3);
  for (const int at : {0, 255, 256, 1001, 12'345, kLines - 1}) {
    (*file)->read(at, {dense, label, indices});
    EXPECT_FLOAT_EQ(dense[0], std::log1p(static_cast<float>(at))) << at;
    EXPECT_EQ(indices[2], at % 16) << at;
  }
  try {
    (*file)->read(16'500, {dense, label, indices});
    ADD_FAILURE() << "a bad line was read";
  } catch (const InputFailure& failure) {
    EXPECT_EQ(failure.diagnostic().where.line, 16'501);
    EXPECT_EQ(failure.diagnostic().where.column, 9);
  }
  std::remove(path.c_str());
}

TEST(Clicks, AreaUnderTheCurveCountsPairs) {
  const std::vector<float> scores = {0.1F, 0.4F, 0.35F, 0.8F}, labels = {0, 0, 1, 1};
  EXPECT_DOUBLE_EQ(area_under_curve(scores, labels), 0.75);  // of 4 pairs 3 are in order
  const std::vector<float> ties = {0.5F, 0.5F, 0.5F, 0.5F};
  EXPECT_DOUBLE_EQ(area_under_curve(ties, labels), 0.5);
  const std::vector<float> alike = {1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(area_under_curve(scores, alike), 0.5);
}

}  // namespace
}  // namespace orrery::exec
