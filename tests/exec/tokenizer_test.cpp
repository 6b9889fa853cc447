// Byte-pair encoding: GPT-2's pieces and tokens, the way back, and vocabulary files that are none.
#include "exec/data/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "exec/data/data.h"
#include "exec/data/encode_data.h"
#include "exec/files/files.h"

namespace orrery::exec {
namespace tokenizer_test {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

const fs::path kGolden = fs::path(ORRERY_SOURCE_DIR) / "tests/golden/bpe";

std::string text_of(const fs::path& path) {
  return read_file(path, 1 << 24);
}

Tokenizer opened(const fs::path& path) {
  auto made = Tokenizer::open(path);
  if (!made) throw std::runtime_error(base::render(made.error(), false));
  return std::move(*made);
}

Ids ids_of(const Tokenizer& tokenizer, std::string_view text) {
  Ids out;
  tokenizer.encode(text, out);
  return out;
}

class Bpe : public ::testing::Test {
 protected:
  Bpe() : folder_(fs::temp_directory_path() / ("orrery-bpe-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Bpe() override { fs::remove_all(folder_); }
  fs::path file(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string why(const fs::path& path) {
    const auto made = Tokenizer::open(path);
    return made ? "(accepted)" : made.error().front().code + ": " + made.error().front().message;
  }
  /// The golden vocabulary as a tokenizer.json.
  static nlohmann::json whole() {
    nlohmann::json file;
    auto words = nlohmann::json::parse(text_of(kGolden / "vocab.json"));
    const auto end = words.at("<|endoftext|>");
    words.erase("<|endoftext|>");
    nlohmann::json merges = nlohmann::json::array();
    std::istringstream lines(text_of(kGolden / "merges.txt"));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) merges.push_back(line);
    file["model"] = {{"type", "BPE"}, {"vocab", words}, {"merges", merges}};
    file["added_tokens"] = {{{"id", end}, {"content", "<|endoftext|>"}, {"special", true}}};
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    return file;
  }
  fs::path folder_;
};

TEST_F(Bpe, SplitsAndEncodesAsGpt2Does) {
  const Tokenizer tokenizer = opened(kGolden);
  const Pretokeniser splitter = Pretokeniser::gpt2();
  const auto golden = nlohmann::json::parse(text_of(kGolden / "encoded.json"));
  ASSERT_GE(golden.size(), 100U);
  for (const auto& one : golden) {
    const auto text = one.at("text").get<std::string>();
    std::vector<std::string> pieces;
    splitter.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    EXPECT_EQ(pieces, one.at("pieces").get<std::vector<std::string>>()) << one.at("text");
    EXPECT_EQ(ids_of(tokenizer, text), one.at("ids").get<Ids>()) << one.at("text");
    EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, text)), text);
  }
}

TEST_F(Bpe, ComesBackToEveryByteOfAnyText) {
  const Tokenizer tokenizer = opened(kGolden), bytes = Tokenizer::bytes();
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::string text;
    for (std::uint32_t i = 0; i < 3 * seed; ++i) {
      const auto draw = base::philox({i, seed, 0, 0}, {7, 7});
      // Bytes of all kinds, and between them well-formed text, so that both meet.
      if (draw[0] % 3 == 0)
        text += std::array{"é", "日", "🙂", " the", "\n", "'s"}[draw[1] % 6];
      else
        text += static_cast<char>(draw[1] & 0xffU);
    }
    EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, text)), text) << "seed " << seed;
    EXPECT_EQ(bytes.decode(ids_of(bytes, text)), text) << "seed " << seed;
  }
}

TEST(Utf8, KnowsWhatIsNone) {
  EXPECT_EQ(sequence_at("a"), 1U);
  EXPECT_EQ(sequence_at("\xc3\xa9"), 2U);
  EXPECT_EQ(sequence_at("\xe6\x97\xa5"), 3U);
  EXPECT_EQ(sequence_at("\xf0\x9f\x99\x82"), 4U);
  for (const char* none : {"", "\x80", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xe6\x97", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    EXPECT_EQ(sequence_at(none), 0U);
}

TEST_F(Bpe, TakesAMegabyteThatIsOnePiece) {
  const Tokenizer tokenizer = opened(kGolden);
  const std::string text(1 << 20, 'e');
  EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, text)), text);
}

TEST_F(Bpe, ReadsATokenizerJsonAlike) {
  const Tokenizer files = opened(kGolden / "vocab.json");
  nlohmann::json both = whole();
  const Tokenizer one = opened(file("tokenizer.json", both.dump()));
  for (auto& pair : both["model"]["merges"]) {  // newer files have lists
    const auto text = pair.get<std::string>();
    pair = nlohmann::json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
  }
  const Tokenizer other = opened(file("newer/tokenizer.json", both.dump()));
  const std::string text = "The planets turn, don't they?  Größe 🙂\n\n1704 <|endoftext|>";
  EXPECT_EQ(ids_of(one, text), ids_of(files, text));
  EXPECT_EQ(ids_of(other, text), ids_of(files, text));
  EXPECT_EQ(one.end_of_text(), files.end_of_text());
  EXPECT_EQ(one.piece(*one.end_of_text()), "<|endoftext|>");
  EXPECT_EQ(one.vocab(), files.vocab());
}

TEST_F(Bpe, SplitsByAVocabularysOwnExpression) {
  nlohmann::json other = whole();
  other["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "\\p{N}|[^\\p{N}]+"}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const Tokenizer tokenizer = opened(file("tokenizer.json", other.dump()));
  EXPECT_EQ(ids_of(tokenizer, "17").size(), 2U);
  EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, "a 17 b\xff")), "a 17 b\xff");
  other["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(";
  EXPECT_EQ(why(file("tokenizer.json", other.dump())).rfind("E0616", 0), 0U);
}

TEST_F(Bpe, RefusesWhatWouldEncodeOtherwiseThanItsOwner) {
  const auto refused = [&](const char* key, const nlohmann::json& value, const std::string& expected) {
    nlohmann::json other = whole();
    other[nlohmann::json::json_pointer(key)] = value;
    EXPECT_NE(why(file("tokenizer.json", other.dump())).find(expected), std::string::npos)
        << why(folder_ / "tokenizer.json");
  };
  refused("/model/type", "Unigram", "E0617");
  refused("/normalizer", {{"type", "NFC"}}, "normalises text (`NFC`)");
  refused("/model/byte_fallback", true, "not byte-level");
  refused("/pre_tokenizer/add_prefix_space", true, "add_prefix_space");
  refused("/pre_tokenizer/type", "Whitespace", "`Whitespace` is not supported");
  refused("/model/merges/0", "one", "not a pair");
  refused("/model/merges/0", 7, "not a pair");
  refused("/model/vocab/e", -1, "the id of");
  refused("/model/vocab/e", 0, "two words have the id 0");
}

TEST_F(Bpe, NamesFileAndLineOfWhatIsWrong) {
  EXPECT_EQ(why(folder_ / "nowhere.json").rfind("E0615", 0), 0U);
  EXPECT_NE(why(folder_).find("contains no vocabulary"), std::string::npos);
  file("vocab.json", "[1]");
  EXPECT_NE(why(folder_).find("not a vocabulary in JSON"), std::string::npos);
  file("vocab.json", "{\"a\": 0}");
  EXPECT_NE(why(folder_).find("no token for byte 0x00"), std::string::npos);
  file("vocab.json", text_of(kGolden / "vocab.json"));
  EXPECT_NE(why(folder_).find("no merges.txt"), std::string::npos);
  const std::string golden = text_of(kGolden / "merges.txt");
  const std::size_t second = golden.find('\n', golden.find('\n') + 1) + 1;  // the version, and a pair that is good
  file("merges.txt", golden.substr(0, second) + "the\n");
  const auto made = Tokenizer::open(folder_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().front().where.line, 3);
  EXPECT_EQ(made.error().front().where.file, (folder_ / "merges.txt").string());
  file("merges.txt", "q q\n");
  EXPECT_NE(why(folder_).find("the vocabulary has no `qq`"), std::string::npos);
}

class Encoded : public Bpe {
 protected:
  Ids read(const fs::path& bin) const {
    const auto stream = TokenStream::open(bin);
    if (!stream) throw std::runtime_error(base::render(stream.error(), false));
    EXPECT_EQ(stream->format(), DataFormat::megatron);
    Ids out(static_cast<std::size_t>(stream->size()));
    stream->read(0, out, 1 << 20);
    return out;
  }
  fs::path encode(const fs::path& data) const {
    const auto made = encoded_data(data, kGolden, folder_ / "cache", "train");
    if (!made) throw std::runtime_error(base::render(made.error(), false));
    return *made;
  }
};

TEST_F(Encoded, PutsTheEndOfTextBehindEachDocument) {
  const Tokenizer tokenizer = opened(kGolden);
  file("d/b.txt", "The sun<|endoftext|>\nMars");
  file("d/a.txt", "the Earth<|endoftext|>");
  const std::int32_t end = *tokenizer.end_of_text();
  Ids expected;
  for (const char* document : {"the Earth", "The sun", "\nMars"}) {
    tokenizer.encode(document, expected);
    expected.push_back(end);
  }
  EXPECT_EQ(read(encode(folder_ / "d")), expected);
}

TEST_F(Encoded, IsTheSameInPiecesAsInOne) {
  const Tokenizer tokenizer = opened(kGolden);
  std::string text;
  for (int i = 0; text.size() < (9U << 20); ++i)
    text += i % 7 == 0 ? "don't\n\n   stop 🙂 now" : i % 3 == 0 ? "planet\n" : " 1704!\n\n";
  Ids expected = ids_of(tokenizer, text);
  expected.push_back(*tokenizer.end_of_text());
  EXPECT_EQ(read(encode(file("long.txt", text))), expected);
  EXPECT_EQ(safe_cut("one\ntwo 2\nthree"), 3U);
  EXPECT_EQ(safe_cut("1\n2\n"), 0U);
  EXPECT_EQ(safe_cut("\n"), 0U);
}

TEST_F(Encoded, IsKeptUntilTextOrVocabularyChanges) {
  const fs::path data = file("t.txt", "The planets");
  const fs::path bin = encode(data);
  const auto written = fs::last_write_time(bin);
  EXPECT_EQ(encode(data), bin);
  EXPECT_EQ(fs::last_write_time(bin), written) << "encoded again";
  file("t.txt", "The planets turn");
  EXPECT_EQ(opened(kGolden).decode(read(encode(data))), "The planets turn<|endoftext|>");
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kGolden / name, folder_ / name);
  fs::resize_file(folder_ / "merges.txt", text_of(kGolden / "merges.txt").find('\n', 200) + 1);  // fewer merges
  const auto fewer = encoded_data(data, folder_ / "vocab.json", folder_ / "cache", "train");
  ASSERT_TRUE(fewer);
  EXPECT_GT(read(*fewer).size(), ids_of(opened(kGolden), "The planets turn").size() + 1);
}

TEST_F(Encoded, LeavesTokenFilesAsTheyAre) {
  EXPECT_EQ(*encoded_data("tokens.bin", "nowhere", folder_, "train"), fs::path("tokens.bin"));
  const auto missing = encoded_data(folder_ / "none.txt", kGolden, folder_, "train");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().front().code, "E0611");
}

}  // namespace tokenizer_test
}  // namespace orrery::exec
