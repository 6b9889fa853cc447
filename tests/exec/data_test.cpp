// Token files: each format read, each fault named, each order as promised.
#include "exec/data/data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <set>

#include "exec/failure.h"

namespace orrery::exec {
namespace data_test {

namespace fs = std::filesystem;

class Data : public ::testing::Test {
 protected:
  Data() : folder_(fs::temp_directory_path() / ("orrery-data-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Data() override { fs::remove_all(folder_); }

  template <class T>
  static std::string raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  fs::path file(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  static std::string llmc(std::int32_t magic, std::int32_t count, const std::string& tokens, std::int32_t version = 1) {
    std::vector<std::int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    return raw(header) + tokens;
  }
  static std::string megatron(std::uint8_t type, const std::vector<std::int32_t>& lengths,
                              const std::vector<std::int64_t>& pointers, std::uint64_t count) {
    std::string out("MMIDIDX\0\0", 9);
    out += raw(std::vector<std::uint64_t>{1}) + std::string(1, static_cast<char>(type)) +
           raw(std::vector<std::uint64_t>{count, 2});
    return out + raw(lengths) + raw(pointers) +
           raw(std::vector<std::int64_t>{0, static_cast<std::int64_t>(lengths.size())});
  }
  static std::vector<std::int32_t> read(const TokenStream& stream, std::int64_t first, std::size_t count,
                                        std::int64_t vocab = 1 << 20) {
    std::vector<std::int32_t> out(count);
    stream.read(first, out, vocab);
    return out;
  }
  static std::string why(const fs::path& path) {
    const auto stream = TokenStream::open(path);
    return stream ? "" : stream.error().front().message;
  }
  fs::path folder_;
};

using Ids = std::vector<std::int32_t>;

TEST_F(Data, ReadsBytesOfATextAndWrapsAtItsEnd) {
  const auto stream = TokenStream::open(file("text.txt", "abc"));
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->size(), 3);
  EXPECT_EQ(read(*stream, 1, 7), (Ids{'b', 'c', 'a', 'b', 'c', 'a', 'b'}));
  EXPECT_EQ(read(*stream, 3000000001, 1), Ids{'b'});
}

TEST_F(Data, ReadsAFolderInTheOrderOfPathsWithoutFollowingLinks) {
  file("d/b/x", "34");
  file("d/a.txt", "12");
  file("d/c", "56");
  file("d/empty", "");
  fs::create_symlink("c", folder_ / "d/aa");
  fs::create_symlink("nowhere", folder_ / "d/ab");
  const auto stream = TokenStream::open(folder_ / "d");
  ASSERT_TRUE(stream) << base::render(stream.error(), false);
  EXPECT_EQ(read(*stream, 0, 6), (Ids{'1', '2', '3', '4', '5', '6'}));
}

TEST_F(Data, ReadsLlmcFilesOfBothWidths) {
  const auto narrow = TokenStream::open(file("n.bin", llmc(20240520, 3, raw(std::vector<std::uint16_t>{1, 65535, 7}))));
  ASSERT_TRUE(narrow);
  EXPECT_EQ(read(*narrow, 0, 4), (Ids{1, 65535, 7, 1}));
  const auto wide = TokenStream::open(file("w.bin", llmc(20240801, 2, raw(std::vector<std::uint32_t>{128000, 5}))));
  ASSERT_TRUE(wide);
  EXPECT_EQ(read(*wide, 0, 2), (Ids{128000, 5}));
}

TEST_F(Data, ReadsLlamaTokensOfTheVersionThatLlmcWrites) {
  const auto llama = TokenStream::open(file("l.bin", llmc(20240801, 2, raw(std::vector<std::uint32_t>{128000, 5}), 7)));
  ASSERT_TRUE(llama) << base::render(llama.error(), false);
  EXPECT_EQ(read(*llama, 0, 2), (Ids{128000, 5}));
  EXPECT_NE(why(file("gpt.bin", llmc(20240520, 1, "ab", 7))).find("version 7, expected 1"), std::string::npos);
  EXPECT_NE(why(file("next.bin", llmc(20240801, 1, "abcd", 8))).find("version 8, expected 7"), std::string::npos);
}

TEST_F(Data, ReadsMegatronSequencesWhereverTheyLie) {
  file("m.bin", raw(std::vector<std::uint16_t>{9, 1, 2, 3, 8, 4, 5}));
  const auto stream = TokenStream::open(file("m.idx", megatron(8, {3, 2}, {2, 10}, 2)));
  ASSERT_TRUE(stream) << base::render(stream.error(), false);
  EXPECT_EQ(stream->format(), DataFormat::megatron);
  EXPECT_EQ(read(*stream, 0, 5), (Ids{1, 2, 3, 4, 5}));
  EXPECT_TRUE(TokenStream::open(folder_ / "m.bin"));
}

TEST_F(Data, RefusesWhatContradictsItself) {
  EXPECT_NE(why(folder_ / "missing").find("No such file"), std::string::npos);
  EXPECT_NE(why(file("one.txt", "a")).find("at least 2"), std::string::npos);
  EXPECT_NE(why(file("cut.bin", llmc(20240520, 3, "ab"))).find("its header says 3 tokens"), std::string::npos);
  EXPECT_NE(why(file("long.bin", llmc(20240520, 1, "abcd"))).find("its header says 1 tokens"), std::string::npos);
  EXPECT_NE(why(file("negative.bin", llmc(20240520, -1, "ab"))), "");
  EXPECT_NE(why(file("version.bin", llmc(20240520, 1, "ab", 2))).find("version 2"), std::string::npos);
  EXPECT_NE(why(file("noise.bin", std::string(4096, 'x'))).find("neither"), std::string::npos);
  EXPECT_NE(why("/dev/zero").find("not a regular file"), std::string::npos);
  file("h.bin", "abcd");
  EXPECT_NE(why(file("h.idx", megatron(8, {3, 2}, {0, 6}, 2))).find("lies outside"), std::string::npos);
  EXPECT_NE(why(file("h.idx", megatron(8, {1}, {0}, std::uint64_t{1} << 60))).find("do not fit"), std::string::npos);
  EXPECT_NE(why(file("h.idx", megatron(7, {1}, {0}, 1))).find("element type 7"), std::string::npos);
  EXPECT_NE(why(file("h.idx", megatron(8, {-1}, {0}, 1))).find("lies outside"), std::string::npos);
  EXPECT_NE(why(file("h.idx", megatron(8, {1}, {-8}, 1))).find("lies outside"), std::string::npos);
  EXPECT_NE(why(file("h.idx", "MMIDIDX")).find("not a Megatron index"), std::string::npos);
}

TEST_F(Data, NamesFileAndByteOfAnIdOutsideTheVocabulary) {
  const auto stream = TokenStream::open(file("v.bin", llmc(20240520, 3, raw(std::vector<std::uint16_t>{1, 2, 300}))));
  try {
    (void)read(*stream, 0, 3, 300);
    FAIL() << "it was accepted";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("v.bin: token 300 at byte 1028 is outside the vocabulary of 300"),
              std::string::npos)
        << failure.what();
  }
}

TEST_F(Data, NoticesAFileThatShrinksWhileItIsRead) {
  const fs::path path = file("s.txt", std::string(100, 'a'));
  const auto stream = TokenStream::open(path);
  fs::resize_file(path, 10);
  EXPECT_THROW((void)read(*stream, 50, 1), Failure);
}

TEST_F(Data, SequentialOrderReadsStepByStepRowByRowAndTargetsAreNext) {
  std::string text(50, ' ');
  std::iota(text.begin(), text.end(), '\0');
  const Batches batches(std::move(*TokenStream::open(file("q", text))), plan::DataOrder::sequential, 1, 3, 4, 256);
  Ids tokens(8), targets(8);
  batches.load(1, 1, 2, tokens, targets);  // sequences 1 and 2 of step 1: tokens from (1 * 3 + 1) * 4
  EXPECT_EQ(tokens, (Ids{16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(targets, (Ids{17, 18, 19, 20, 21, 22, 23, 24}));
  batches.load(4, 0, 1, std::span(tokens).first(4), std::span(targets).first(4));  // token 48 and on, wrapping at 50
  EXPECT_EQ(tokens[0], 48);
  EXPECT_EQ(tokens[2], 0);
  EXPECT_EQ(targets[1], 0);
}

TEST_F(Data, ShuffledOrderVisitsEveryWindowOnceAnEpochAndRepeats) {
  const auto make = [&](std::uint64_t seed) {
    return Batches(std::move(*TokenStream::open(file("z", std::string(101, 'a')))), plan::DataOrder::shuffled, seed, 5,
                   4, 256);
  };
  const Batches batches = make(1);
  std::set<std::int64_t> seen;
  std::vector<std::int64_t> first, second;
  for (std::int64_t g = 0; g < 25; ++g) {
    first.push_back(batches.position(g / 5, g % 5));
    second.push_back(batches.position(5 + g / 5, g % 5));
  }
  seen.insert(first.begin(), first.end());
  EXPECT_EQ(seen.size(), 25U);
  EXPECT_EQ(*seen.rbegin(), 96);
  EXPECT_NE(first, second) << "two epochs in one order";
  EXPECT_EQ(first[7], make(1).position(1, 2));
  EXPECT_NE(first, [&] {
    std::vector<std::int64_t> o;
    for (std::int64_t g = 0; g < 25; ++g) o.push_back(make(2).position(g / 5, g % 5));
    return o;
  }());
}

TEST(Permutation, IsOneForEveryCount) {
  for (const std::uint64_t count : {1ULL, 2ULL, 3ULL, 16ULL, 17ULL, 1000ULL}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < count; ++i) seen.insert(permuted(i, count, 7, 3));
    EXPECT_EQ(seen.size(), count);
    EXPECT_LT(*seen.rbegin(), count);
  }
}

}  // namespace data_test
}  // namespace orrery::exec
