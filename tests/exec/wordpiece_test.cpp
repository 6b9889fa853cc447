// Word pieces: as an independent program makes them, in both kinds of vocabulary files, and files that are none.
#include "exec/data/wordpiece.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/data/data.h"
#include "exec/data/encode_data.h"
#include "exec/data/tokenizer.h"
#include "exec/files/files.h"

namespace orrery::exec {
namespace wordpiece_test {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

const fs::path kGolden = fs::path(ORRERY_SOURCE_DIR) / "tests/golden/wordpiece";

class WordPieces : public ::testing::Test {
 protected:
  WordPieces() : folder_(fs::temp_directory_path() / ("orrery-wordpiece-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~WordPieces() override { fs::remove_all(folder_); }
  fs::path file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static Tokenizer opened(const fs::path& path) {
    auto made = Tokenizer::open(path);
    if (!made) throw std::runtime_error(base::render(made.error(), false));
    return std::move(*made);
  }
  static std::string code(const fs::path& path) {
    const auto made = Tokenizer::open(path);
    return made ? "(accepted)" : made.error().front().code;
  }
  static std::string words() { return read_file(kGolden / "vocab.txt", 1 << 20); }
  static nlohmann::json whole(bool lower) {
    nlohmann::json out, ids;
    std::istringstream lines(words());
    std::string line;
    for (int id = 0; std::getline(lines, line); ++id) ids[line] = id;
    out["model"] = {{"type", "WordPiece"}, {"vocab", ids}};
    out["normalizer"] = {{"type", "BertNormalizer"}, {"lowercase", lower}, {"strip_accents", nullptr}};
    return out;
  }
  static void expect_golden(const Tokenizer& tokenizer, const char* as) {
    const auto golden = nlohmann::json::parse(read_file(kGolden / "encoded.json", 1 << 20));
    ASSERT_GE(golden.size(), 20U);
    for (const auto& one : golden) {
      Ids found;
      tokenizer.encode(one.at("text").get<std::string>(), found);
      EXPECT_EQ(found, one.at(as).get<Ids>()) << one.at("text") << " " << as;
    }
  }
  fs::path folder_;
};

TEST_F(WordPieces, AreThoseOfAnIndependentProgramOverUnicodesOwnTables) {
  expect_golden(opened(kGolden / "vocab.txt"), "lower");
  expect_golden(opened(kGolden), "lower");
  expect_golden(opened(file("tokenizer.json", whole(true).dump())), "lower");
}

TEST_F(WordPieces, KeepCaseAndAccentsWhereAConfigurationSaysSo) {
  file("tokenizer_config.json", R"({"do_lower_case": false})");
  expect_golden(opened(file("vocab.txt", words())), "as_it_is");
  expect_golden(opened(file("tokenizer.json", whole(false).dump())), "as_it_is");
}

TEST_F(WordPieces, NameTheSpecialTokensAndDivideDocumentsByASeparator) {
  const Tokenizer tokenizer = opened(kGolden);
  const auto special = tokenizer.special();
  ASSERT_TRUE(special);
  EXPECT_EQ(special->begin, 2);
  EXPECT_EQ(special->separator, 3);
  EXPECT_EQ(special->mask, 4);
  EXPECT_EQ(tokenizer.end_of_text(), 3);
  fs::create_directories(folder_ / "text");
  std::ofstream(folder_ / "text/a.txt") << "the cafe";
  std::ofstream(folder_ / "text/b.txt") << "naive!";
  const auto data = encoded_data(folder_ / "text", kGolden, folder_ / "cache", "train");
  ASSERT_TRUE(data);
  const auto stream = TokenStream::open(*data);
  ASSERT_EQ(stream->size(), 6);
  Ids ids(6);
  stream->read(0, ids, tokenizer.vocab());
  EXPECT_EQ(ids[2], 3);
  EXPECT_EQ(ids[5], 3);
}

TEST_F(WordPieces, RefuseVocabulariesThatAreNone) {
  EXPECT_EQ(code(file("vocab.txt", "just\nwords\n")), "E0616") << "without [UNK]";
  auto other = whole(true);
  other["normalizer"]["strip_accents"] = false;
  EXPECT_EQ(code(file("tokenizer.json", other.dump())), "E0617");
  other = whole(true);
  other["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(code(file("tokenizer.json", other.dump())), "E0617");
  other = whole(true);
  other["model"]["vocab"]["beyond"] = 1 << 20;
  EXPECT_EQ(code(file("tokenizer.json", other.dump())), "E0616");
}

}  // namespace wordpiece_test
}  // namespace orrery::exec
