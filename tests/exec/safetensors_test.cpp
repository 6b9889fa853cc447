// safetensors: what is written is read back; what is malformed is refused with a reason.
#include "exec/files/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "exec/files/checksum.h"
#include "exec/files/files.h"

namespace orrery::exec {
namespace safetensors_test {

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("orrery-" + std::to_string(getpid()) + "-" + name);
}

std::string why(const std::string& json, std::int64_t bytes) {
  const auto header = parse_safetensors_header(json, bytes, "f");
  return header ? "" : header.error().front().message;
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const auto path = temporary("written.safetensors");
  SafetensorsWriter writer(path, {{"a", "F32", {2, 3}, 0, 0}, {"b", "F32", {}, 0, 0}}, {{"format", "test"}});
  writer.append(std::vector<float>{0, 1, 2});
  writer.append(std::vector<float>{3, 4, 5, 6});
  const std::uint32_t crc = writer.finish();
  const std::string raw = read_file(path, 1 << 20);
  EXPECT_EQ(crc, crc32(std::as_bytes(std::span(raw))));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  EXPECT_EQ(file->header().metadata.at("format"), "test");
  EXPECT_EQ(file->header().data_start % 8, 0);
  std::vector<float> part(3);
  file->read(*file->header().find("a"), 2, part);
  EXPECT_EQ(part, (std::vector<float>{2, 3, 4}));
  part.resize(1);
  file->read(*file->header().find("b"), 0, part);
  EXPECT_EQ(part[0], 6);
  std::filesystem::remove(path);
}

TEST(Safetensors, ReadsHalfAndBrainFloats) {
  const auto path = temporary("half.safetensors");
  const std::string json =
      R"({"h":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
  const std::uint64_t length = json.size();
  const std::uint16_t data[5] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x4049};
  {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << json;
    out.write(reinterpret_cast<const char*>(data), sizeof data);
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << base::render(file.error(), false);
  std::vector<float> h(4), b(1);
  file->read(*file->header().find("h"), 0, h);
  file->read(*file->header().find("b"), 0, b);
  EXPECT_EQ(h, (std::vector<float>{1, -2, 0x1p-24F, 65504}));
  EXPECT_EQ(b[0], 3.140625F);
  std::filesystem::remove(path);
}

TEST(Safetensors, RefusesMalformedHeaders) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(why(good, 8), "");
  EXPECT_NE(why(good, 9).find("end at byte 8"), std::string::npos);
  EXPECT_NE(why(R"([])", 0), "");
  EXPECT_NE(why("", 0), "");
  EXPECT_NE(why("{", 0).find("not valid JSON"), std::string::npos);
  const auto entry = [](const std::string& rest) { return R"({"a":{)" + rest + "}}"; };
  EXPECT_NE(why(entry(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8).find("unknown dtype"),
            std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8).find("needs 12 bytes"),
            std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8).find("negative"), std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), 8).find("whole"), std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0).find("overflows"),
            std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])"), 8), "");
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8), "");
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8).find("data_offsets"),
            std::string::npos);
  EXPECT_NE(why(entry(R"("dtype":"F32","shape":[2])"), 8).find("exactly"), std::string::npos);
  EXPECT_NE(why(R"({"__metadata__":{"a":1}})", 0).find("strings"), std::string::npos);
}

TEST(Safetensors, RefusesDuplicatesHolesAndOverlaps) {
  const auto tensor = [](const std::string& name, int begin, int end) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[)" + std::to_string((end - begin) / 4) + R"(],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  EXPECT_NE(why("{" + tensor("a", 0, 8) + "," + tensor("a", 8, 16) + "}", 16).find("twice"), std::string::npos);
  EXPECT_NE(why("{" + tensor("a", 0, 8) + "," + tensor("b", 12, 16) + "}", 16).find("no holes"), std::string::npos);
  EXPECT_NE(why("{" + tensor("a", 0, 8) + "," + tensor("b", 4, 16) + "}", 16).find("no overlaps"), std::string::npos);
}

TEST(Safetensors, SurvivesDeepNestingAndNoise) {
  EXPECT_NE(why("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0), "");
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (std::uint64_t i = 0; i < 2000; ++i) {  // no crash, whatever the byte
    std::string bad = good;
    bad[base::below(bad.size(), 1, 1, i)] = static_cast<char>(base::below(256, 1, 2, i));
    (void)parse_safetensors_header(bad, 8, "f");
  }
}

TEST(Safetensors, RefusesCutFilesAndHugeLengths) {
  const auto path = temporary("cut.safetensors");
  for (const std::uint64_t length : {std::uint64_t{1} << 63, std::uint64_t{1000}, std::uint64_t{0}}) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8);
    EXPECT_FALSE(SafetensorsFile::open(path));
  }
  std::ofstream(path, std::ios::binary) << "abc";
  EXPECT_FALSE(SafetensorsFile::open(path));
  std::filesystem::remove(path);
  EXPECT_FALSE(SafetensorsFile::open(path));
  EXPECT_FALSE(SafetensorsFile::open("/dev/zero"));
}

TEST(Checksum, HasTheStandardCheckValue) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(digits))), 0xcbf43926U);
  const auto all = std::as_bytes(std::span(digits));
  for (std::size_t cut = 0; cut <= digits.size(); ++cut)
    EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), 0xcbf43926U);
}

}  // namespace safetensors_test
}  // namespace orrery::exec
