// What a run finds in its directory: nothing is removed that was not asked for, what is damaged is kept, and in doubt
// the run does not begin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <map>

#include "exec/failure.h"
#include "exec/files/file_system.h"
#include "exec/files/files.h"
#include "exec/launch/supervise.h"
#include "exec/state/checkpoint.h"
#include "exec/state/checkpoint_files.h"
#include "tests/exec/runs.h"

namespace orrery::exec {
namespace run_start_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Trial;

void resume(RunOptions& options) {
  options.resume = true;
}
void overwrite(RunOptions& options) {
  options.overwrite = true;
}
void every_step(RunOptions& options) {
  options.checkpoint_every = 1;
}

class StartOfARun : public testing::RunFolder {
 protected:
  static Trial trial() {
    Trial trial = testing::golden_trial("constant");
    trial.spec.mesh.data = 2;
    trial.spec.states.zero_stage = 1;
    return trial;
  }
  fs::path dir(const char* inside = "") const { return folder_ / "run" / inside; }
  /// The run; what it refuses, as text.
  std::string refusal(std::int64_t steps, const std::function<void(RunOptions&)>& more = {}) {
    try {
      go(trial(), "run", steps, more);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  static base::Diagnostics warnings(const std::vector<nlohmann::json>& events) {
    base::Diagnostics out;
    for (const auto& event : events)
      if (event.at("event") == "diagnostic")
        out.push_back({base::Severity::warning,
                       event.at("code"),
                       {event.at("file"), 0, 0, 1},
                       event.at("message"),
                       event.at("help"),
                       {}});
    return out;
  }
  static std::vector<std::string> codes(const std::vector<nlohmann::json>& events) {
    std::vector<std::string> out;
    for (const base::Diagnostic& one : warnings(events)) out.push_back(one.code);
    return out;
  }
  /// Everything in the run's directory but the lock.
  std::map<std::string, std::string> all() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(dir())) {
      const std::string name = entry.path().lexically_relative(dir()).string();
      if (entry.is_symlink())
        out[name] = "-> " + fs::read_symlink(entry.path()).string();
      else if (entry.is_regular_file() && name != "lock")
        out[name] = read_file(entry.path(), 1 << 26);
    }
    return out;
  }
  void touch(const char* name, const std::string& text = "x") const {
    fs::create_directories(dir(name).parent_path());
    std::ofstream(dir(name)) << text;
  }
  void damage(const char* name) const {
    std::string text = read_file(dir(name), 1 << 26);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 16);
    std::ofstream(dir(name), std::ios::binary) << text;
  }
};

TEST_F(StartOfARun, RefusesAUsedDirectoryAndLeavesItAsItIs) {
  go(trial(), "run", 2, every_step);
  const auto before = all();
  const std::string why = refusal(3);
  EXPECT_THAT(why, HasSubstr("E0640"));
  EXPECT_THAT(why, HasSubstr("records of 2 steps, the record of its end, a timeline, 2 checkpoints"));
  EXPECT_EQ(all(), before);
  for (const char* name : {"completed.json", "timeline.json", "metrics.jsonl"}) fs::remove(dir(name));
  EXPECT_THAT(refusal(3), HasSubstr("2 checkpoints"));
  fs::remove_all(dir("checkpoints"));
  EXPECT_THAT(refusal(3), HasSubstr("the mark that checkpoints were saved"));
}

TEST_F(StartOfARun, OverwritesWhenAskedToAndOnlyWhatIsARuns) {
  go(trial(), "run", 3, [](RunOptions& o) { o.dump_gradients = {1}; });
  touch("notes.txt");
  touch("checkpoints/notes.txt");
  fs::create_directories(dir("checkpoints/step-000001.damaged"));
  touch("removing", "");  // killed while it removed: what is left is not gone on from
  EXPECT_EQ(codes(go(trial(), "run", 1, resume)), std::vector<std::string>{"E0627"});
  EXPECT_EQ(read_completion(dir())->resumed_from, 0);
  EXPECT_FALSE(fs::exists(dir("removing")));
  fs::create_directories(dir("checkpoints/step-000003"));
  go(trial(), "run", 2, overwrite);
  EXPECT_EQ(lines("run").size(), 2U);
  EXPECT_TRUE(fs::exists(dir("notes.txt")));
  EXPECT_TRUE(fs::exists(dir("checkpoints/notes.txt")));
  EXPECT_FALSE(fs::exists(dir("checkpoints/step-000001.damaged")));
  EXPECT_FALSE(fs::exists(dir("checkpoints/step-000003")));
  EXPECT_FALSE(fs::exists(dir("gradients")));
  EXPECT_EQ(read_completion(dir())->steps, 2);
}

TEST_F(StartOfARun, TakesADirectoryWhereNothingWasRecordedAndClearsWhatWasHalfWritten) {
  touch("plan.yaml", "not a plan any more");
  touch("metrics.jsonl", "");
  touch("metrics.jsonl.tmp");
  touch("completed.json.tmp");
  touch("tokens/train.bin");
  touch("checkpoints/step-000007.tmp/rank-00000.safetensors");
  touch("checkpoints/step-000006.earlier.tmp/manifest.json");
  touch("offload-0123-rank-00001.state");
  touch("letter.tmp");
  go(trial(), "run", 2);
  EXPECT_EQ(lines("run").size(), 2U);
  for (const char* gone : {"metrics.jsonl.tmp", "completed.json.tmp", "checkpoints/step-000007.tmp",
                           "checkpoints/step-000006.earlier.tmp", "offload-0123-rank-00001.state"})
    EXPECT_FALSE(fs::exists(dir(gone))) << gone;
  EXPECT_TRUE(fs::exists(dir("letter.tmp"))) << "it is not a run's";
  EXPECT_TRUE(fs::exists(dir("tokens/train.bin")));
}

TEST_F(StartOfARun, ResumesNothingFromStepOneWhereNothingWasSaved) {
  const auto fresh = go(trial(), "run", 2, [](RunOptions& o) {
    resume(o);
    o.checkpoint = false;
  });
  EXPECT_EQ(codes(fresh), std::vector<std::string>{"E0627"});
  // Killed before its first checkpoint: two steps are told of, and nothing was promised.
  fs::remove(dir("completed.json"));
  fs::remove(dir("timeline.json"));
  const auto again = go(trial(), "run", 3, resume);
  EXPECT_EQ(codes(again), std::vector<std::string>{"E0627"});
  EXPECT_EQ(lines("run").size(), 3U);
  EXPECT_EQ(read_completion(dir())->resumed_from, 0);
}

TEST_F(StartOfARun, RefusesToResumeInDoubtAndChangesNothing) {
  go(trial(), "run", 2, every_step);
  const fs::path elsewhere = folder_ / "elsewhere";
  const auto whole = all();
  const auto refused = [&](const char* what) {
    SCOPED_TRACE(what);
    const auto before = all();
    const std::string why = refusal(3, resume);
    EXPECT_THAT(why, HasSubstr("E0641"));
    EXPECT_THAT(why, HasSubstr(what));
    EXPECT_THAT(why, HasSubstr("--overwrite"));
    EXPECT_EQ(all(), before);
  };
  fs::rename(dir("checkpoints"), elsewhere);
  refused("the run has saved checkpoints (saved.json says so)");
  fs::create_directory_symlink(folder_ / "unmounted", dir("checkpoints"));
  refused("which does not exist: a disk may not be mounted");
  fs::remove(dir("checkpoints"));
  touch("checkpoints");
  refused("is not a folder");
  fs::remove(dir("checkpoints"));
  fs::create_directories(dir("checkpoints/step-000002.old"));
  refused("has no checkpoint, but step-000002.old");
  fs::remove_all(dir("checkpoints"));
  fs::create_directory_symlink(elsewhere, dir("checkpoints"));
  for (const char* step : {"step-000001", "step-000002"})
    fs::rename(elsewhere / step / "manifest.json", elsewhere / (std::string(step) + ".json"));
  refused("no checkpoint is whole");
  for (const char* step : {"step-000001", "step-000002"})
    fs::rename(elsewhere / (std::string(step) + ".json"), elsewhere / step / "manifest.json");
  EXPECT_EQ(refusal(3, resume), "") << "and with everything back it goes on, through the link";
  EXPECT_EQ(read_completion(dir())->resumed_from, 2);
  EXPECT_TRUE(fs::exists(elsewhere / "step-000003"));
}

TEST_F(StartOfARun, ThatWasCompletedWithoutCheckpointsIsNotBegunAnewByResume) {
  go(trial(), "run", 2, [](RunOptions& o) { o.checkpoint = false; });
  EXPECT_THAT(refusal(3, resume), HasSubstr("the run has finished"));
  EXPECT_TRUE(read_completion(dir()));
}

TEST_F(StartOfARun, FallsBackToTheNewestWholeCheckpointAndKeepsTheDamagedOne) {
  go(trial(), "whole", 5);
  go(trial(), "run", 4, every_step);
  damage("checkpoints/step-000004/rank-00001.safetensors");
  const auto records = read_file(dir("metrics.jsonl"), 1 << 20);
  const auto events = go(trial(), "run", 5, resume);
  const base::Diagnostics said = warnings(events);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].code, "E0642");
  EXPECT_THAT(said[0].message, HasSubstr("step-000004/rank-00001.safetensors: damaged in bytes "));
  EXPECT_THAT(said[0].message, HasSubstr("the run continues from " + dir("checkpoints/step-000003").string()));
  EXPECT_TRUE(fs::exists(dir("checkpoints/step-000004.damaged/rank-00001.safetensors")));
  EXPECT_EQ(read_file(dir("checkpoints/step-000004.damaged/metrics.jsonl"), 1 << 20), records);
  EXPECT_EQ(read_completion(dir())->resumed_from, 3);
  const auto whole = lines("whole"), parts = lines("run");
  ASSERT_EQ(parts.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(parts[i].at("loss"), whole[i].at("loss"));
}

TEST_F(StartOfARun, CompletesARunOfWhichOnlyTheRecordIsMissing) {
  go(trial(), "run", 3);
  const auto record = read_completion(dir());
  const std::string timeline = read_file(dir("timeline.json"), 1 << 26);
  EXPECT_THAT(refusal(3, resume), HasSubstr("E0621")) << "nothing is missing";
  fs::remove(dir("completed.json"));
  go(trial(), "run", 3, resume);
  auto written = read_completion(dir());
  ASSERT_TRUE(written);
  EXPECT_TRUE(written->completed);
  EXPECT_EQ(written->steps, 3);
  EXPECT_NEAR(written->first_loss, record->first_loss, 1e-8);
  EXPECT_NEAR(written->final_loss, record->final_loss, 1e-8);
  EXPECT_EQ(written->memory_peak_bytes, record->memory_peak_bytes);
  EXPECT_GT(written->step_time_s, 0);
  EXPECT_EQ(read_file(dir("timeline.json"), 1 << 26), timeline);
  for (const char* name : {"completed.json", "metrics.jsonl"}) fs::remove(dir(name));
  go(trial(), "run", 3, resume);
  written = read_completion(dir());
  ASSERT_TRUE(written) << "also where no step is told of";
  EXPECT_TRUE(std::isnan(written->final_loss));
  fs::remove(dir("completed.json"));
  EXPECT_THAT(refusal(2, resume), HasSubstr("E0621")) << "fewer steps than are done";
}

TEST_F(StartOfARun, SaysThatTheDataHasChanged) {
  fs::create_directories(folder_);
  const fs::path text = folder_ / "text.txt";
  std::string words(5000, 'a');
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<char>(i * i % 61);
  write_atomically(text, words);
  Trial other = trial();
  other.training.data = text.string();
  go(other, "run", 2);
  EXPECT_EQ(codes(go(other, "run", 3, resume)), std::vector<std::string>());
  write_atomically(folder_ / "copy.txt", words);
  Trial moved = other;
  moved.training.data = (folder_ / "copy.txt").string();
  EXPECT_EQ(codes(go(moved, "run", 4, resume)), std::vector<std::string>()) << "the same tokens from elsewhere";
  words[2500] = static_cast<char>(words[2500] ^ 1);
  write_atomically(text, words);
  const base::Diagnostics said = warnings(go(other, "run", 5, resume));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].code, "E0628");
  EXPECT_EQ(said[0].where.file, text.string());
  EXPECT_THAT(said[0].message, HasSubstr("the data has changed since"));
}

TEST_F(StartOfARun, KeepsLinesOfItsRecordsThatItCannotRead) {
  go(trial(), "run", 2);
  const std::string good = read_file(dir("metrics.jsonl"), 1 << 20);
  const std::size_t second = good.find('\n') + 1;
  write_atomically(dir("metrics.jsonl"), good.substr(0, second) + "{\"step\": 2, \"loss\": " + std::string(200, '[') +
                                             "\n" + good.substr(second) + "{\"step\": 3, \"lo");
  EXPECT_EQ(codes(go(trial(), "run", 3, resume)), std::vector<std::string>{"E0645"});
  EXPECT_EQ(lines("run").size(), 3U);
  EXPECT_THAT(read_file(dir("metrics.jsonl.damaged"), 1 << 20), HasSubstr("[[[["));
}

/// A disk on which rank 1's shard of one checkpoint cannot be written.
class BadSector final : public FileSystem {
 public:
  int open(const Path& path, int flags) override {
    if (path.string().find("step-000002.tmp/rank-00001") == std::string::npos) return FileSystem::open(path, flags);
    errno = EIO;
    return -1;
  }
};

TEST_F(StartOfARun, StopsOnAllRanksWhereOneCannotSaveAndGoesOnFromTheCheckpointBefore) {
  go(trial(), "whole", 3);
  BadSector files;
  {
    const WithFileSystem with(files);
    const std::string why = refusal(3, every_step);
    EXPECT_THAT(why, HasSubstr("the checkpoint of step 2 was not saved; earlier ones remain: cannot write"));
    EXPECT_THAT(why, HasSubstr("rank-00001.safetensors: Input/output error"));
  }
  EXPECT_FALSE(fs::exists(dir("checkpoints/step-000002.tmp")));
  EXPECT_FALSE(read_completion(dir()));
  go(trial(), "run", 3, resume);
  EXPECT_EQ(read_completion(dir())->resumed_from, 1);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lines("run")[i].at("loss"), lines("whole")[i].at("loss"));
}

TEST_F(StartOfARun, SaysOnAllRanksThatItsDirectoryCannotBeMade) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "run") << "a file";
  EXPECT_THAT(refusal(1), HasSubstr("cannot make"));
}

}  // namespace run_start_test
}  // namespace orrery::exec
