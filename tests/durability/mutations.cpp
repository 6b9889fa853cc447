// A bit, a page or an end of a file changes, shards are swapped or come from elsewhere, the manifest is another's: each
// is found and named, with the bytes where one file alone shows them, and the run goes on from the checkpoint before.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <regex>

#include "exec/files/checksum.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint_files.h"
#include "tests/durability/tiny_run.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;
using testing::TinyRun;

constexpr std::size_t kPage = 4096, kMostFile = 1 << 22;

std::string content(const fs::path& path) {
  return read_file(path, kMostFile);
}

void put(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// What was done, and what the message must say of it.
struct Mutation {
  std::string kind, file, says;
  std::size_t first = 0, last = 0;  ///< bytes that differ; of those kinds that name them
  bool places = false;
};

/// Two checkpoints of a run, and others to take pieces from.
class Mutations : public ::testing::Test {
 protected:
  Mutations() : folder_(scratch_.path() / "run"), newest_(folder_ / "step-000020"), older_(folder_ / "step-000010") {
    run_.save(folder_, 10);
    run_.save(folder_, 20);
    TinyRun("other job").save(scratch_.path() / "other", 20);
    // The same plan, step and rank, and other values: another run of this job, as far as its files can say.
    run_.save(scratch_.path() / "again", 10);
    run_.save(scratch_.path() / "again", 20);
    for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"})
      good_[name] = content(newest_ / name);
  }

  void restore() {
    for (const auto& [name, text] : good_) put(newest_ / name, text);
  }

  /// Changes the newest checkpoint.
  Mutation mutate() {
    const std::string shard = random_() % 2 ? "rank-00000.safetensors" : "rank-00001.safetensors";
    const std::string other = shard == "rank-00000.safetensors" ? "rank-00001.safetensors" : "rank-00000.safetensors";
    switch (random_() % 20) {
      case 0:
      case 1:
      case 2: return bit("bit of a shard", shard);
      case 3:
      case 4: return bit("bit of the manifest", "manifest.json");
      case 5:
      case 6: return page("page of a shard", shard);
      case 7: return page("page of the manifest", "manifest.json");
      case 8: return cut("end of a shard", shard);
      case 9: return cut("end of the manifest", "manifest.json");
      case 10: return longer("more behind a shard", shard);
      case 11: return longer("more behind the manifest", "manifest.json");
      case 12:
        put(newest_ / shard, good_.at(other));
        put(newest_ / other, good_.at(shard));
        return {"shards swapped", "rank-0000", "it is the file of rank-0000"};
      case 13: return from("shard of another rank", shard, newest_ / other, "it is the file of " + other);
      case 14:
        return from("shard of another run's plan", shard, scratch_.path() / "other/step-000020" / shard,
                    "another run's plan");
      case 15: return from("shard of another step", shard, older_ / shard, "of step 10");
      case 16: fs::remove(newest_ / shard); return {"shard missing", shard, "missing"};
      case 17: return from("manifest of another step", "manifest.json", older_ / "manifest.json", "of step 10");
      case 18:
        return from("manifest of another run", "", scratch_.path() / "other/step-000020/manifest.json",
                    "another run's");
      default: return middle("bytes in the middle", random_() % 3 ? shard : "manifest.json");
    }
  }

  Mutation bit(const char* kind, const std::string& file) {
    std::string text = good_.at(file);
    const std::size_t at = random_() % text.size();
    text[at] = static_cast<char>(text[at] ^ (1 << random_() % 8));
    put(newest_ / file, text);
    return {kind, file, "", at, at, true};
  }
  Mutation page(const char* kind, const std::string& file) {
    std::string text = good_.at(file);
    const std::size_t begin = random_() % text.size() / kPage * kPage, end = std::min(begin + kPage, text.size());
    const auto how = random_() % 3;
    const std::size_t from = random_() % text.size() / kPage * kPage;
    for (std::size_t i = begin; i < end; ++i)
      text[i] = how == 0   ? '\0'
                : how == 1 ? static_cast<char>(random_())
                           : good_.at(file)[(from + i - begin) % text.size()];
    std::size_t first = begin, last = end - 1;
    while (first < end && text[first] == good_.at(file)[first]) ++first;
    if (first == end) return mutate();  // the same page
    while (text[last] == good_.at(file)[last]) --last;
    put(newest_ / file, text);
    return {kind, file, "", first, first, true};  // the first tensor that is damaged is named
  }
  Mutation cut(const char* kind, const std::string& file) {
    const std::size_t keep = random_() % good_.at(file).size();
    put(newest_ / file, good_.at(file).substr(0, keep));
    const bool shard = file != "manifest.json";
    return {kind, file, shard ? "are missing" : "", keep, keep, shard};
  }
  Mutation longer(const char* kind, const std::string& file) {
    put(newest_ / file, good_.at(file) + std::string(1 + random_() % 100, random_() % 2 ? '\0' : ' '));
    const bool shard = file != "manifest.json";
    return {kind, file, shard ? "are too many" : "", good_.at(file).size(), good_.at(file).size(), shard};
  }
  Mutation middle(const char* kind, const std::string& file) {
    std::string text = good_.at(file);
    const std::size_t at = random_() % (text.size() - 8);
    if (random_() % 2)
      text.erase(at, 1 + random_() % 8);
    else
      text.insert(at, 1 + random_() % 8, 'x');
    put(newest_ / file, text);
    return {kind, file, ""};
  }
  Mutation from(const char* kind, const std::string& file, const fs::path& source, const std::string& says) {
    put(newest_ / (file.empty() ? "manifest.json" : file), content(source));
    return {kind, file, says};
  }

  /// Empty where the damage is found and named, and the run goes on from the checkpoint before.
  std::string fault_of(const Mutation& mutation) {
    const Resumed resumed = run_.resume(folder_);
    if (!resumed.from || *resumed.from != older_) return "it does not go on from step 10";
    if (!run_.holds(10)) return "the values are not those of step 10";
    if (resumed.damaged.size() != 1 || resumed.damaged[0].path != newest_) return "step 20 is not named";
    const std::string& why = resumed.damaged[0].why;
    if (why.find(mutation.file.empty() ? "rank-0000" : mutation.file) == std::string::npos) return "no file: " + why;
    if (why.find(mutation.says) == std::string::npos) return "not \"" + mutation.says + "\": " + why;
    if (!mutation.places) return "";
    std::smatch range;
    if (!std::regex_search(why, range, std::regex("bytes ([0-9]+) to ([0-9]+)"))) {
      // Of a manifest without its last line only the first place is known that is not as it must be.
      return mutation.file == "manifest.json" && std::regex_search(why, std::regex("manifest.json:[0-9]+:[0-9]+: "))
                 ? ""
                 : "no bytes: " + why;
    }
    const std::size_t first = std::stoull(range[1]), last = std::stoull(range[2]);
    if (mutation.first < first || mutation.first > last) return "other bytes: " + why;
    return "";
  }

  Scratch scratch_;
  TinyRun run_;
  fs::path folder_, newest_, older_;
  std::map<std::string, std::string> good_;
  std::mt19937 random_{20261122};
};

TEST_F(Mutations, AreAllFoundAndNamedAndTheRunGoesOnFromTheCheckpointBefore) {
  struct Count {
    int tried = 0, found = 0;
  };
  std::map<std::string, Count> kinds;
  int found = 0;
  const int all = testing::cases(1000);
  for (int i = 0; i < all; ++i) {
    const Mutation mutation = mutate();
    const std::string fault = fault_of(mutation);
    EXPECT_EQ(fault, "") << mutation.kind << " of " << mutation.file << " at " << mutation.first;
    kinds[mutation.kind].tried += 1;
    kinds[mutation.kind].found += fault.empty() ? 1 : 0;
    found += fault.empty() ? 1 : 0;
    restore();
  }
  for (const auto& [kind, count] : kinds)
    std::printf("[ mutation ] %-28s %d of %d\n", kind.c_str(), count.found, count.tried);
  std::printf("[ mutation ] %d of %d found, named and gone on from\n", found, all);
  const Resumed whole = run_.resume(folder_);
  ASSERT_TRUE(whole.from);
  EXPECT_EQ(*whole.from, newest_) << "and what was put back is whole";
  EXPECT_TRUE(run_.holds(20));
}

TEST_F(Mutations, OfBothCheckpointsLeaveNothingToGoOnFromAndNothingIsChanged) {
  fs::rename(newest_, folder_ / "between");
  fs::rename(older_, newest_);
  fs::rename(folder_ / "between", older_);
  const Resumed resumed = run_.resume(folder_);
  EXPECT_FALSE(resumed.from);
  ASSERT_EQ(resumed.damaged.size(), 2U);
  EXPECT_NE(resumed.damaged[0].why.find("it is of step 10, but its folder's name says 20"), std::string::npos)
      << resumed.damaged[0].why;
  EXPECT_NE(resumed.damaged[1].why.find("it is of step 20, but its folder's name says 10"), std::string::npos)
      << resumed.damaged[1].why;
  EXPECT_TRUE(fs::exists(newest_ / "manifest.json"));
  EXPECT_TRUE(fs::exists(older_ / "manifest.json"));
}

// Files that say the same of themselves, with other values.
TEST_F(Mutations, WithTheShardOfAnotherSaveOfTheSameStepAreFoundByTheValues) {
  TinyRun twin;
  const fs::path other = scratch_.path() / "twin";
  twin.save(other, 7);
  fs::copy_file(newest_ / "rank-00000.safetensors", other / "saved");  // the same header, and step 20's values
  std::string text = content(other / "saved");
  const std::size_t header = CheckpointReader(newest_).manifest().files[0].header_bytes;
  for (std::size_t i = header; i < text.size(); i += 4) text[i] = static_cast<char>(text[i] ^ 1);
  put(newest_ / "rank-00000.safetensors", text);
  const Resumed resumed = run_.resume(folder_);
  ASSERT_EQ(resumed.damaged.size(), 1U);
  EXPECT_NE(resumed.damaged[0].why.find("the file belongs to another run or another save"), std::string::npos)
      << resumed.damaged[0].why;
}

/// The manifest with one value changed, and sealed again: what it says is held against the files.
class Forged : public Mutations, public ::testing::WithParamInterface<std::array<const char*, 3>> {};

TEST_P(Forged, ManifestsAreHeldAgainstTheFiles) {
  const auto& [pattern, instead, says] = GetParam();
  std::string text = std::regex_replace(good_.at("manifest.json"), std::regex(pattern), instead,
                                        std::regex_constants::format_first_only);
  ASSERT_NE(text, good_.at("manifest.json"));
  text = seal_manifest(text.substr(0, text.rfind(",\n \"checksum\"")) + "\n}\n");
  put(newest_ / "manifest.json", text);
  const Resumed resumed = run_.resume(folder_);
  ASSERT_TRUE(resumed.from);
  EXPECT_EQ(*resumed.from, older_);
  ASSERT_EQ(resumed.damaged.size(), 1U);
  EXPECT_NE(resumed.damaged[0].why.find(says), std::string::npos) << resumed.damaged[0].why;
}

INSTANTIATE_TEST_SUITE_P(
    Values, Forged,
    ::testing::Values(
        std::array{"\"step\": 20", "\"step\": 30", "its folder's name says 20"},
        std::array{"\"bytes\": ([0-9]+)", "\"bytes\": 1$1", "the manifest says"},
        std::array{"\"begin\": 0", "\"begin\": 1", "it has no tensor"},
        std::array{"\"header_bytes\": ([0-9]+)", "\"header_bytes\": 8", "its header"},
        std::array{"\"tensor\": \"h.0.mlp.fc.weight\"", "\"tensor\": \"h.0.mlp.proj.weight\"", "have different shapes"},
        std::array{"\"state\": \"first_moment\"", "\"state\": \"second_moment\"", "are in no part"},
        std::array{"\"state\": \"second_moment\"", "\"state\": \"first_moment\"", "are in two parts"},
        std::array{"\"key\": \"weight/", "\"key\": \"height/", "it has no tensor height/"},
        std::array{"\"files\": \\[[^\\]]*\\]", "\"files\": []", "has a part and is not listed"},
        std::array{"\"name\": \"rank-00001", "\"name\": \"../rank-00001", "not the name of a file"},
        std::array{"\"crc32\": ([0-9]+)", "\"crc32\": 1, \"more\": 2", "is unknown to this program"},
        std::array{"\"sequences\": [0-9]+", "\"sequences\": -9", "must be from -1"},
        std::array{"\"format_version\": \"1.1\"", "\"format_version\": \"1.0\"", "format_version"},
        std::array{"\"optimizer\": \"adamw\"",
                   "\"optimizer\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                   "a string is expected"}));

TEST_F(Mutations, OfAManifestOfTheFormatBeforeAreFoundByItsFiles) {
  // As the format was: no checksum of its own, none of parts and headers.
  std::string text = good_.at("manifest.json");
  for (const char* line : {"\n *\"run_id\":[^\n]*", "\n *\"job\":[^\n]*", "\n *\"header_bytes\":[^\n]*",
                           ",\n *\"header_crc32\":[^\n]*", ",\n *\"checksum\":[^\n]*"})
    text = std::regex_replace(text, std::regex(line), "");
  text = std::regex_replace(text, std::regex("(\"end\": [0-9]+),\n *\"crc32\": [0-9]+"), "$1");
  text = std::regex_replace(text, std::regex("(\"crc32\": [0-9]+),"), "$1");
  text = std::regex_replace(text, std::regex("\"1.1\""), "\"1.0\"");
  put(newest_ / "manifest.json", text);
  Resumed resumed = run_.resume(folder_);
  ASSERT_TRUE(resumed.from);
  ASSERT_TRUE(resumed.damaged.empty()) << resumed.damaged[0].why;
  EXPECT_EQ(*resumed.from, newest_);
  EXPECT_FALSE(resumed.manifest.sealed);
  EXPECT_TRUE(run_.holds(20));
  std::string shard = good_.at("rank-00001.safetensors");
  shard.back() = static_cast<char>(shard.back() ^ 4);
  put(newest_ / "rank-00001.safetensors", shard);
  resumed = run_.resume(folder_);
  EXPECT_EQ(resumed.from, older_);
  ASSERT_EQ(resumed.damaged.size(), 1U);
  EXPECT_NE(resumed.damaged[0].why.find("rank-00001.safetensors: damaged"), std::string::npos);
}

}  // namespace
}  // namespace orrery::exec

int main(int count, char** arguments) {
  return orrery::exec::testing::run_tests(count, arguments);
}
