// Files and lines of others that want the executor's stack or its memory: vocabularies, indices, headers, events.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/data/data.h"
#include "exec/data/tokenizer.h"
#include "exec/events.h"
#include "exec/files/safetensors.h"
#include "exec/probe/measure.h"
#include "exec/state/weight_names.h"
#include "tests/base/peak.h"

namespace orrery::exec {
namespace hostile_files_test {

namespace fs = std::filesystem;

constexpr std::int64_t kMostMib = 512;

std::string repeated(const std::string& piece, std::size_t times) {
  std::string text;
  text.reserve(piece.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

class HostileFiles : public ::testing::Test {
 protected:
  HostileFiles() : folder_(fs::temp_directory_path() / ("orrery-hostile-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~HostileFiles() override { fs::remove_all(folder_); }
  fs::path file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  /// Peak memory of opening a vocabulary that must be refused with `code`.
  static std::int64_t refused(const fs::path& path, const std::string& code) {
    return tests::peak_mib([&] {
      const auto made = Tokenizer::open(path);
      if (made || made.error().front().code != code) ::_exit(255);
    });
  }
  void expect_refused(const std::string& name, const std::string& text, const std::string& code = "E0616") {
    const std::int64_t peak = refused(file(name, text), code);
    EXPECT_GE(peak, 0) << name << " " << text.substr(0, 40);
    EXPECT_LT(peak, kMostMib) << name << " " << text.substr(0, 40);
    fs::remove(folder_ / name);
  }
  fs::path folder_;
};

TEST_F(HostileFiles, NestedVocabulariesBreakNoStack) {
  expect_refused("tokenizer.json", nested(200'000));
  expect_refused("tokenizer.json", R"({"model":)" + nested(200'000) + "}");
  expect_refused("tokenizer.json", R"({"model":{"type":"BPE","vocab":)" + nested(200'000) + "}}");
  expect_refused("vocab.json", R"({"a":)" + nested(200'000) + "}");
  file("vocab.txt", "[UNK]\n");
  const fs::path config = file("tokenizer_config.json", nested(200'000));
  EXPECT_GE(refused(folder_ / "vocab.txt", "E0616"), 0);
}

TEST_F(HostileFiles, VocabulariesAreBoundedBeforeTheyAreBuilt) {
  expect_refused("tokenizer.json", R"({"model":[)" + repeated("[],", 5'000'000) + "0]}");
  expect_refused("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":2000000000}}})", "E0617");
  expect_refused("vocab.json", R"({"a":2097152})");
  expect_refused("vocab.txt", repeated("\n", 4'000'000));
  std::ofstream(folder_ / "vocab.txt").close();
  fs::resize_file(folder_ / "vocab.txt", std::uintmax_t{1} << 40);
  EXPECT_GE(refused(folder_ / "vocab.txt", "E0615"), 0) << "a hole of a terabyte";
}

TEST_F(HostileFiles, AnIndexOfWeightsIsReadStrictly) {
  for (const std::string& text : {R"({"weight_map":)" + nested(200'000) + "}", R"({"x":)" + nested(200'000) + "}",
                                  nested(200'000), std::string(R"({"weight_map":{"a":1}})"), std::string("{}"),
                                  std::string(R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})")}) {
    const fs::path index = file("model.safetensors.index.json", text);
    const std::int64_t peak = tests::peak_mib([&] {
      const auto files = open_weights(index);
      if (files || files.error().front().code != "E0603") ::_exit(255);
    });
    EXPECT_GE(peak, 0) << text.substr(0, 60);
    EXPECT_LT(peak, kMostMib) << text.substr(0, 60);
  }
}

TEST(HostileHeader, TakesMemoryByItsBytes) {
  for (const std::string& text :
       {std::string(R"({"a":)") + nested(200'000) + "}", "{\"a\":{\"shape\":[" + repeated("1,", 10'000'000) + "1]}}",
        "{\"__metadata__\":{\"a\":" + nested(200'000) + "}}", "{" + repeated("\"\":{},", 3'000'000) + "}"}) {
    const std::int64_t peak = tests::peak_mib([&] {
      if (parse_safetensors_header(text, 0, "f")) ::_exit(255);
    });
    EXPECT_GE(peak, 0) << text.substr(0, 40);
    EXPECT_LT(peak, 64) << text.substr(0, 40);
  }
}

TEST_F(HostileFiles, AnIndexOfScatteredSequencesIsBounded) {
  constexpr std::uint64_t kSequences = 1'500'000;
  std::string index("MMIDIDX\0\0", 9);
  const auto put = [&index](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint64_t{1}), put(std::uint8_t{8}), put(kSequences), put(std::uint64_t{0});
  for (std::uint64_t i = 0; i < kSequences; ++i) put(std::int32_t{1});
  for (std::uint64_t i = 0; i < kSequences; ++i) put(static_cast<std::int64_t>(i % 2 == 0 ? 0 : 4));
  file("t.bin", "abcdef");
  const fs::path path = file("t.idx", index);
  const std::int64_t peak = tests::peak_mib([&] {
    const auto stream = TokenStream::open(path);
    if (stream || stream.error().front().message.find("1000000 parts") == std::string::npos) ::_exit(255);
  });
  EXPECT_GE(peak, 0);
  EXPECT_LT(peak, 128);
}

// ---- what a child says

TEST(HostileEvents, AreNoEvents) {
  for (const std::string& line :
       {std::string(), std::string("x"), std::string("[1]"), std::string("{}"), std::string(R"({"event":1})"),
        R"({"event":"step","x":)" + nested(200'000) + "}", R"({"event":)" + nested(200'000) + "}"})
    EXPECT_TRUE(event_of_line(line).is_null()) << line.substr(0, 40);
  const nlohmann::json event = event_of_line(R"({"event":"step","step":3})");
  EXPECT_EQ(event.at("step"), 3);
}

TEST(HostileEvents, DiagnosticsWithoutTheirPartsAreNone) {
  const base::Diagnostic sound{base::Severity::warning, "E0100", {"f", 3, 4, 5}, "m\n\x1b", "h", "s"};
  const nlohmann::json event = diagnostic_event(sound);
  ASSERT_TRUE(diagnostic_of(event).has_value());
  EXPECT_EQ(*diagnostic_of(event), sound);
  for (const auto& [key, value] : event.items()) {
    if (key == "event") continue;
    for (const nlohmann::json& wrong : {nlohmann::json(), nlohmann::json(1e300), nlohmann::json(-1),
                                        nlohmann::json::array(), nlohmann::json(UINT64_MAX)}) {
      nlohmann::json other = event;
      other[key] = wrong;
      EXPECT_FALSE(diagnostic_of(other)) << key << " " << wrong;
    }
    nlohmann::json without = event;
    without.erase(key);
    EXPECT_FALSE(diagnostic_of(without)) << key;
  }
  EXPECT_EQ(unpack_diagnostics(pack_diagnostics({sound, sound})).size(), 2U);
  for (const std::string& text : {std::string(), std::string("{"), nested(200'000), std::string("[1,{}]")})
    EXPECT_TRUE(unpack_diagnostics(text).empty());
}

TEST(HostileEvents, AMeasurementOfNonsenseIsNone) {
  const std::int64_t peak = tests::peak_mib([&] {
    for (const std::string& text : {repeated("{}\n", 200'000), R"({"event":"end","ranks":)" + nested(200'000) + "}\n",
                                    R"({"event":"workload","ops":)" + nested(200'000) + "}\n"})
      if (read_measurement(text).end == MeasureEnd::completed) ::_exit(255);
  });
  EXPECT_GE(peak, 0);
  EXPECT_LT(peak, 128);  // also where a sanitizer surrounds each block
}

}  // namespace hostile_files_test
}  // namespace orrery::exec
