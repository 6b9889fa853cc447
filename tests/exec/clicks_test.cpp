// Criteo's lines, good ones and bad ones.
#include "exec/data/clicks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "exec/data/click_generator.h"
#include "exec/data/click_reader.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace clicks_test {

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

std::string said(const base::Diagnostics& found) {
  std::string out;
  for (const base::Diagnostic& one : found)
    out += one.code + ":" + std::to_string(one.where.line) + ":" + std::to_string(one.where.column) + ": " +
           one.message + "\n";
  return out;
}

std::string refused(const std::string& text, const std::string& name = ".tsv",
                    plan::BadLines bad = plan::BadLines::refuse,
                    std::optional<plan::Categories> categories = std::nullopt) {
  const auto file = ClickFile::open(write(text, name), shape(), bad, categories);
  return file ? "" : said(file.error());
}

/// A sample as one row: label, dense features, indices.
std::vector<double> sample_of(const ClickSource& file, std::int64_t at) {
  std::vector<float> dense(2), label(1);
  std::vector<std::int32_t> indices(3);
  file.read(at, {dense, label, indices});
  std::vector<double> row(label.begin(), label.end());
  row.insert(row.end(), dense.begin(), dense.end());
  row.insert(row.end(), indices.begin(), indices.end());
  return row;
}

/// Records of int32 as bytes.
std::string records(const std::vector<std::vector<std::int32_t>>& rows) {
  std::string out;
  for (const auto& row : rows) out.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(std::int32_t));
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
            "E0660:2:9: 5 fields, but the model reads 6: the label, 2 dense features, 3 categories\n");
  EXPECT_EQ(refused(good + "0\t1\t2\ta\tb\tc\td\n"),
            "E0660:2:13: 7 fields, but the model reads 6: the label, 2 dense features, 3 categories\n");
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

models::Recommender bags() {
  models::Recommender r;
  r.dense_features = 1;
  r.embedding_dim = 4;
  r.tables = {{16, models::Pooling::weighted, 3, 0},
              {8, models::Pooling::mean, 2, 1},
              {4, models::Pooling::sum, 1},
              {10, models::Pooling::weighted, 1}};
  return r;
}

std::string refused_bag(const std::string& line, plan::BadLines bad = plan::BadLines::refuse) {
  const auto file = ClickFile::open(write("0\t1\t1f:0.5\t1,2\t3\t4:2\n" + line + "\n", ".tsv"), bags(), bad);
  return file ? said((*file)->first_bad()) : said(file.error());
}

/// Index and weight of each lookup of a sample.
std::vector<std::pair<std::int32_t, float>> lookups_of(const ClickSource& file, std::int64_t at) {
  std::vector<float> dense(1), label(1);
  std::vector<std::int32_t> words(static_cast<std::size_t>(words_of_sample(file.model())));
  file.read(at, {dense, label, words});
  std::vector<std::pair<std::int32_t, float>> out;
  for (std::size_t i = 0; i < words.size(); i += 2) out.emplace_back(words[i], std::bit_cast<float>(words[i + 1]));
  return out;
}

TEST(Clicks, BagsOfSeveralLengthsAreListsAndMayHaveWeights) {
  using Lookups = std::vector<std::pair<std::int32_t, float>>;
  const Lookups first = {{1, 0.25F}, {15, 1.0F}, {-1, 0.0F}, {3, 0.5F}, {1, 0.5F}, {2, 1.0F}, {4, -2.0F}};
  const Lookups second = {{-1, 0.0F}, {-1, 0.0F}, {-1, 0.0F}, {7, 1.0F}, {-1, 0.0F}, {0, 1.0F}, {0, 1.0F}};
  const auto lines = ClickFile::open(write("1\t1\t11:0.25,f\t3,9\t2\t4:-2\n0\t\t\t7\t\t\n", ".tsv"), bags());
  ASSERT_TRUE(lines) << base::render(lines.error(), false);
  EXPECT_EQ(lookups_of(**lines, 0), first);
  EXPECT_EQ(lookups_of(**lines, 1), second) << "an empty bag; a mean of one; empty fields are value 0";
  const auto bits = [](float weight) { return std::bit_cast<std::int32_t>(weight); };
  const std::vector<std::vector<std::int32_t>> rows = {{1, 1, 1, 15, -1, bits(0.25F), bits(1), 0, 3, 1, 2, 4, bits(-2)},
                                                       {0, 0, -1, -1, -1, 0, 0, 0, 7, -1, 0, 0, bits(1)}};
  const auto file = ClickFile::open(write(records(rows), ".bin"), bags());
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ(lookups_of(**file, 0), first);
  EXPECT_EQ(lookups_of(**file, 1), second);
}

TEST(Clicks, BadBagsAreRefusedByLineAndColumnOrCounted) {
  EXPECT_EQ(refused_bag("0\t1\t\t1\t3\t4"), "");
  EXPECT_EQ(refused_bag("0\t1\t1,2,3,4\t1\t3\t4"), "E0661:2:5: 4 categories for table 0, whose bags have at most 3\n");
  EXPECT_EQ(refused_bag("0\t1\t1\t\t3\t4"), "E0661:2:7: no category for table 1, whose bags have 1 to 2\n");
  EXPECT_EQ(refused_bag("0\t1\t1,\t1\t3\t4"), "E0661:2:7: a category is a hexadecimal number, found ``\n");
  EXPECT_EQ(refused_bag("0\t1\t1,2:x\t1\t3\t4"), "E0661:2:9: a category's weight is a number, found `x`\n");
  EXPECT_EQ(refused_bag("0\t1\t1:nan\t1\t3\t4"), "E0661:2:7: a category's weight is a number, found `nan`\n");
  EXPECT_EQ(refused_bag("0\t1\t1\t1:2\t3\t4"), "E0661:2:7: a category is a hexadecimal number, found `1:2`\n");
  EXPECT_EQ(refused_bag("0\t1\t1\t-1\t3\t4"), "E0661:2:7: a category is a hexadecimal number, found `-1`\n");
  EXPECT_EQ(refused_bag("0\t1\t1\t1\t3"),
            "E0660:2:9: 5 fields, but the model reads 6: the label, 1 dense features, 4 categories\n");
  EXPECT_EQ(refused_bag("0\t1\t1\t\t3\t4", plan::BadLines::skip),
            "E0661:2:7: no category for table 1, whose bags have 1 to 2\n");
  const auto record = [](const std::vector<std::int32_t>& row) {
    const auto file = ClickFile::open(write(records({row}), ".bin"), bags());
    return file ? "" : said(file.error());
  };
  constexpr std::int32_t kOne = std::bit_cast<std::int32_t>(1.0F), kNan = 0x7fc00000;
  EXPECT_EQ(record({0, 1, 5, -1, -1, kOne, 0, 0, -1, -1, 0, 0, kOne}),
            "E0661:1:9: a bag of 0 for table 1, whose bags have 1 to 2\n");
  EXPECT_EQ(record({0, 1, -1, 5, -1, kOne, 0, 0, 1, -1, 0, 0, kOne}),
            "E0661:1:4: a category behind the end of its bag, which is a -1: 5\n");
  EXPECT_EQ(record({0, 1, 5, -1, -1, kNan, 0, 0, 1, -1, 0, 0, kOne}),
            "E0661:1:6: a category's weight is a finite number\n");
}

// As a file has them, so to the last digit; every length is drawn.
TEST(Clicks, GeneratedBagsAreThoseOfTheirLines) {
  const ClickGenerator drawn(bags(), 0, 100, 7);
  const auto file = ClickFile::open(write(generate_clicks(bags(), 0, 100, 7).text, ".tsv"), bags());
  ASSERT_TRUE(file) << base::render(file.error(), false);
  int empty = 0, full = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const auto lookups = lookups_of(drawn, i);
    EXPECT_EQ(lookups_of(**file, i), lookups) << "sample " << i;
    empty += lookups[0].first < 0 ? 1 : 0;
    full += lookups[2].first >= 0 ? 1 : 0;
    EXPECT_GE(lookups[3].first, 0) << "at least one";
  }
  EXPECT_GT(empty, 10);
  EXPECT_GT(full, 10);
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

TEST(Clicks, WhatIsNoFileOfSamplesIsRefused) {
  EXPECT_EQ(refused(""), "E0660:1:1: the file has no samples\n");
  EXPECT_EQ(refused("1\t3\t4\ta\tb\t" + std::string(std::size_t{5} << 20, 'c')),
            "E0660:1:1: a line of more than 4 MiB is not a sample\n");
  EXPECT_EQ(refused("1\t3\t4\ta\tb\tfffffffffffffffff\n"),
            "E0661:1:11: a category is a hexadecimal number, found `fffffffffffffffff`\n");
  EXPECT_EQ(refused("1\t1e999\t4\ta\tb\tc\n"), "E0661:1:3: a dense feature is a number, found `1e999`\n");
  EXPECT_EQ(refused("\t1\t4\ta\tb\tc\n"), "E0661:1:1: the label is 0 or 1, found ``\n");
  EXPECT_EQ(refused("PK", ".npz"), "E0611:0:0: numpy arrays are not a file of samples\n");
  const auto missing = ClickFile::open("/nowhere/clicks.tsv", shape());
  ASSERT_FALSE(missing);
  EXPECT_EQ(said(missing.error()), "E0611:0:0: the training data cannot be read: No such file or directory\n");
}

TEST(Clicks, BadLinesAreCountedAndSkippedWhereTheJobSaysSo) {
  const std::string one = "1\t3\t4\ta\tb\tc\n", two = "0\t5\t6\td\te\tf\n", bad = "1\tnan\t4\ta\tb\tc\n";
  EXPECT_NE(refused(one + bad + two), "");
  const auto file =
      ClickFile::open(write(bad + one + "1\t2\n" + two + "0\t5\t6\td\te\tzz", ".tsv"), shape(), plan::BadLines::skip);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ((*file)->size(), 2);
  EXPECT_EQ((*file)->bad_lines(), 3);
  EXPECT_EQ(said((*file)->first_bad()), "E0661:1:3: a dense feature is a number, found `nan`\n");
  const auto sound = ClickFile::open(write(one + two, "-sound.tsv"), shape());
  for (const std::int64_t at : {0, 1, 2}) EXPECT_EQ(sample_of(**file, at), sample_of(**sound, at)) << at;
  EXPECT_EQ(refused(bad + bad, ".tsv", plan::BadLines::skip),
            "E0661:1:3: a dense feature is a number, found `nan`\nE0660:1:1: none of the file's lines can be read\n");
}

// The same fields by both ways: what is made of them is one function.
TEST(Clicks, OfRecordsAreThoseOfTheSameLines) {
  std::string text;
  std::vector<std::vector<std::int32_t>> rows;
  for (int i = 0; i < 500; ++i) {
    const std::vector<std::int32_t> row = {i % 2, i * 37 % 1000 - 5, i * i, i * 11 % 97, i * 7919 % 100'000, i};
    rows.push_back(row);
    char line[128];
    std::snprintf(line, sizeof line, "%d\t%d\t%d\t%x\t%x\t%x\n", row[0], row[1], row[2], static_cast<unsigned>(row[3]),
                  static_cast<unsigned>(row[4]), static_cast<unsigned>(row[5]));
    text += line;
  }
  const auto lines = ClickFile::open(write(text, "-same.tsv"), shape());
  const auto binary =
      ClickFile::open(write(records(rows), "-same.bin"), shape(), plan::BadLines::refuse, plan::Categories::hashed);
  ASSERT_TRUE(lines && binary);
  ASSERT_EQ((*binary)->size(), 500);
  EXPECT_EQ((*binary)->mark().format, DataFormat::criteo_binary);
  for (std::int64_t at = 0; at < 500; ++at) ASSERT_EQ(sample_of(**binary, at), sample_of(**lines, at)) << at;
}

TEST(Clicks, BadRecordsAreRefusedByNumberAndFieldOrSkipped) {
  const std::vector<std::int32_t> good = {1, 3, 4, 5, 6, 7}, other = {0, -9, 0, 1, 2, 3};
  EXPECT_EQ(refused(records({good, other}), ".bin"), "");
  EXPECT_EQ(refused(records({good, {7, 3, 4, 5, 6, 7}}), ".bin"), "E0661:2:1: the label is 0 or 1, found 7\n");
  EXPECT_EQ(refused(records({good, {1, 3, 4, 5, -6, 7}}), ".bin"),
            "E0661:2:5: a category must not be negative, found -6\n");
  EXPECT_EQ(refused(records({good}) + "12345", ".bin"),
            "E0660:2:1: 5 bytes, but a record for the model has 24: the label, 2 dense features, 3 fields of "
            "categories, 4 bytes "
            "each\n");
  EXPECT_EQ(refused("", ".bin"), "E0660:1:1: the file has no samples\n");
  const auto file =
      ClickFile::open(write(records({{1, 3, 4, 5, -6, 7}, good, {2, 0, 0, 0, 0, 0}, other}) + "123", ".bin"), shape(),
                      plan::BadLines::skip);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ((*file)->size(), 2);
  EXPECT_EQ((*file)->bad_lines(), 3);
  EXPECT_EQ(sample_of(**file, 0),
            (std::vector<double>{1, static_cast<float>(std::log1p(3)), static_cast<float>(std::log1p(4)), 5, 6, 7}));
  EXPECT_EQ(sample_of(**file, 1), (std::vector<double>{0, 0, 0, 1, 2, 3}));
}

// Criteo's lines hold hashes, which every table takes; what a preprocessing numbered is a row, or wrong.
TEST(Clicks, ARowBeyondItsTableIsRefusedByLineAndColumnOrSkippedUnlessCategoriesAreHashes) {
  constexpr auto kRefuse = plan::BadLines::refuse;
  const std::string good = "1\t3\t4\t9\tf\t0\n", beyond = "1\t3\t4\ta\tf\tffffffff\n";
  const std::string wrong =
      "E0661:2:7: row 10 of table 0, which has 10\nE0661:2:11: row 4294967295 of table 1, which has 16\n";
  EXPECT_EQ(refused(good + beyond), "");
  EXPECT_EQ(refused(good + beyond, ".tsv", kRefuse, plan::Categories::rows), wrong);
  const std::string of_rows = records({{1, 3, 4, 9, 15, 0}, {1, 3, 4, 10, 15, 16}});
  EXPECT_EQ(refused(of_rows, ".bin"),
            "E0661:2:4: row 10 of table 0, which has 10\n"
            "E0661:2:6: row 16 of table 1, which has 16\n");
  EXPECT_EQ(refused(of_rows, ".bin", kRefuse, plan::Categories::hashed), "");
  const auto file = ClickFile::open(write(of_rows, "-beyond.bin"), shape(), plan::BadLines::skip);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ((*file)->size(), 1);
  EXPECT_EQ((*file)->bad_lines(), 1);
}

/// More than what is read as a whole: records whose first dense feature is their number, some of them bad.
std::string large_records(const std::string& name, std::int64_t count, const std::vector<std::int64_t>& bad) {
  constexpr std::size_t kFields = 6;
  std::vector<std::int32_t> all(static_cast<std::size_t>(count) * kFields, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) all[i * kFields + 1] = static_cast<std::int32_t>(i);
  for (const std::int64_t one : bad) all[static_cast<std::size_t>(one) * kFields + 3] = -1;
  return write(records({all}), name);
}

TEST(Clicks, OfALargeFileAreSkippedAsOfASmallOne) {
  constexpr std::int64_t kRecords = 2'900'000;  // 66 MiB
  const std::vector<std::int64_t> bad = {0, 1, 5000, 5001, 5003, kRecords - 1};
  const std::string path = large_records("-large.bin", kRecords, bad);
  const auto file = ClickFile::open(path, shape(), plan::BadLines::skip);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  const std::int64_t size = kRecords - static_cast<std::int64_t>(bad.size());
  EXPECT_EQ((*file)->size(), size);
  const auto number = [](std::int64_t sample) {
    return sample < 4998 ? sample + 2 : sample == 4998 ? 5002 : sample + 5;
  };
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{4990}, std::int64_t{4998}, size - 3}) {
    constexpr std::int64_t kRun = 12;  // across those that are skipped, and beyond the end
    std::vector<float> dense(2 * kRun), labels(kRun);
    std::vector<std::int32_t> indices(3 * kRun);
    (*file)->read(first, {dense, labels, indices});
    for (std::int64_t i = 0; i < kRun; ++i)
      EXPECT_FLOAT_EQ(dense[static_cast<std::size_t>(2 * i)],
                      std::log1p(static_cast<float>(number((first + i) % size))))
          << first + i;
  }
  const auto whole = ClickFile::open(path, shape());
  EXPECT_FALSE(whole) << "the first record is bad";
  std::filesystem::remove(path);
}

TEST(ClickReader, GivesWhatReadingEachStepByItselfGives) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "1\t" + std::to_string(i) + "\t4\ta\tb\t" + std::to_string(i % 10) + "\n";
  for (const plan::DataOrder order : {plan::DataOrder::sequential, plan::DataOrder::shuffled}) {
    const Batches batches(*ClickFile::open(write(text, "-ahead.tsv"), shape()), order, 3, 16);
    for (const int ahead : {1, 2, 5}) {
      ClickReader reader(batches, 4, 8, ahead);
      for (const std::int64_t step : {0, 1, 2, 3, 3, 7, 8, 1, 2}) {  // a step again, a leap, and back
        std::vector<float> dense(16), labels(8), direct(16), same(8);
        std::vector<std::int32_t> indices(24), others(24);
        reader.load(step, {dense, labels, indices});
        batches.load_clicks(step, 4, 8, {direct, same, others});
        EXPECT_EQ(dense, direct) << step;
        EXPECT_EQ(indices, others) << step;
      }
    }
  }
}

TEST(ClickReader, ReadsComingStepsBeforeTheyAreAskedForAndFailsWhereTheyDo) {
  constexpr std::int64_t kRecords = 2'900'000;
  const std::string path = large_records("-shrinks.bin", kRecords, {});
  const Batches batches(*ClickFile::open(path, shape()), plan::DataOrder::sequential, 1, 100);
  ClickReader reader(batches, 0, 100, 3);
  std::vector<float> dense(200), labels(100);
  std::vector<std::int32_t> indices(300);
  const ClickBatch out{dense, labels, indices};
  reader.load(0, out);
  while (reader.ready() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::filesystem::resize_file(path, 0);
  for (const std::int64_t step : {1, 2, 3}) {
    reader.load(step, out);
    EXPECT_FLOAT_EQ(dense[0], std::log1p(static_cast<float>(100 * step)));
  }
  EXPECT_THROW(reader.load(4, out), InputFailure);
  std::filesystem::remove(path);
}

TEST(Clicks, AreaUnderTheCurveCountsPairs) {
  const std::vector<float> scores = {0.1F, 0.4F, 0.35F, 0.8F}, labels = {0, 0, 1, 1};
  EXPECT_DOUBLE_EQ(area_under_curve(scores, labels), 0.75);  // of 4 pairs 3 are in order
  const std::vector<float> ties = {0.5F, 0.5F, 0.5F, 0.5F};
  EXPECT_DOUBLE_EQ(area_under_curve(ties, labels), 0.5);
  const std::vector<float> alike = {1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(area_under_curve(scores, alike), 0.5);
}

TEST(GeneratedSamples, AreThoseOfAFileOfThem) {
  constexpr std::int64_t kFirst = 100, kCount = 50, kSeed = 7;
  const GeneratedClicks lines = generate_clicks(shape(), kFirst, kCount, kSeed);
  const auto file = ClickFile::open(write(lines.text, "-generated.tsv"), shape());
  ASSERT_TRUE(file) << base::render(file.error(), false);
  const ClickGenerator drawn(shape(), kFirst, kCount, kSeed);
  EXPECT_EQ(drawn.size(), kCount);
  for (std::int64_t at = 0; at <= kCount; ++at) EXPECT_EQ(sample_of(drawn, at), sample_of(**file, at)) << at;
  // Whatever is drawn besides.
  const ClickGenerator all(shape(), 0, 1000, kSeed);
  EXPECT_EQ(sample_of(all, kFirst + 3), sample_of(drawn, 3));
  std::vector<float> chances(kCount), labels(kCount);
  ASSERT_TRUE(drawn.knows_chances());
  drawn.read_chances(0, chances, labels);
  EXPECT_EQ(area_under_curve(chances, labels), lines.best_auc);
  EXPECT_FALSE((*file)->knows_chances());
}

TEST(GeneratedSamples, OfAnotherSeedOrAnotherModelAreOthers) {
  const ClickGenerator one(shape(), 0, 100, 7);
  EXPECT_EQ(one.mark(), ClickGenerator(shape(), 0, 100, 7).mark());
  EXPECT_NE(one.mark(), ClickGenerator(shape(), 0, 100, 8).mark());
  EXPECT_NE(one.mark(), ClickGenerator(shape(), 0, 101, 7).mark());
  models::Recommender wider = shape();
  wider.tables[0].rows = 1000;
  EXPECT_NE(one.mark(), ClickGenerator(wider, 0, 100, 7).mark());
  EXPECT_EQ(describe(one.mark()).substr(0, 23), "100 samples (generated)");
}

}  // namespace clicks_test
}  // namespace orrery::exec
