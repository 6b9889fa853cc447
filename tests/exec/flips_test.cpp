// One bit flipped in what a rank holds from step to step: on any rank, of any tensor and state, in many plans. With a
// look after every step each flip is found in its step, whoever else has the value. With a look every few steps some
// are not: how many, and whether they did harm, is counted. tests/guards/long asks for many.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>

#include "exec/files/checksum.h"
#include "exec/files/files.h"
#include "exec/run/faults.h"
#include "exec/state/held_states.h"
#include "plan/lower/lower.h"
#include "tests/exec/guarded.h"

namespace orrery::exec {
namespace flips_test {

namespace fs = std::filesystem;
using testing::Guarded;
using testing::run_guarded;
using testing::Trial;

constexpr std::int64_t kSteps = 9;

struct Split {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

constexpr Split kSplits[] = {
    {"data 2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"data 4", [](plan::PlanSpec& s) { s.mesh.data = 4; }},
    {"data 2, ZeRO 1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
    {"data 4, ZeRO 2", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 2; }},
    {"data 2, ZeRO 3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
    {"tensor 2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"data 2, tensor 2, ZeRO 1",
     [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 1; }},
    {"data 2, pipeline 2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2; }},
    {"data 2, bf16", [](plan::PlanSpec& s) { s.mesh.data = 2, s.numerics.precision = models::DType::bf16; }},
    {"data 2, ZeRO 1, bf16",
     [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.numerics.precision = models::DType::bf16; }},
};

Trial trial_of(const Split& split) {
  Trial trial = testing::small_trial(1, kSteps);
  split.set(trial.spec);
  return trial;
}

/// A number for all that the run has saved.
std::uint32_t saved_by(const fs::path& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run / "checkpoints"))
    if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = read_file(entry.path(), 1 << 28);
  std::uint32_t crc = 0;
  for (const auto& [name, text] : files) crc = crc32(std::as_bytes(std::span(text)), crc);
  return crc;
}

struct Counts {
  std::map<std::string, int> found;  ///< by code
  int healed = 0, missed = 0, flips = 0;
};

class FlippedStates : public ::testing::Test {
 protected:
  FlippedStates() : folder_(fs::temp_directory_path() / ("orrery-flips-" + std::to_string(getpid()))) {}
  ~FlippedStates() override { fs::remove_all(folder_); }

  /// One flip; counted by plan and state.
  void flip(const Split& split, std::int64_t every) {
    const Trial trial = trial_of(split);
    const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
    Fault fault;
    fault.rank = pick(schedule.spec.mesh.ranks());
    fault.step = 2 + pick(kSteps - 2);
    const std::vector<HeldPart> parts = held_parts(schedule, static_cast<int>(fault.rank));
    fault.part = pick(static_cast<std::int64_t>(parts.size()));
    const HeldPart& part = parts[static_cast<std::size_t>(fault.part)];
    fault.element = pick(part.elements);
    fault.bit = pick(32);
    const Guarded ended = run_guarded(trial, folder_, [&](RunOptions& o) {
      o.guards.hash_every = every;
      o.faults = fmt_of(fault);
    });
    Counts& counts = counts_[std::string(split.name) + " | " + part.state];
    ++counts.flips;
    EXPECT_EQ(ended.failure, "");
    if (ended.completed()) {
      if (undisturbed_.count(split.name) == 0) {
        const std::uint32_t disturbed = saved_by(folder_);
        EXPECT_TRUE(run_guarded(trial, folder_).completed());
        undisturbed_[split.name] = saved_by(folder_);
        ++(disturbed == undisturbed_[split.name] ? counts.healed : counts.missed);
      } else {
        ++(saved_by(folder_) == undisturbed_[split.name] ? counts.healed : counts.missed);
      }
      EXPECT_NE(every, 1) << split.name << ": " << fmt_of(fault) << " was not found";
      return;
    }
    ++counts.found[ended.found.front().front().code];
    const std::int64_t next_look = std::min(kSteps, (fault.step + every - 1) / every * every);
    EXPECT_LE(ended.of("step").back().at("step").get<std::int64_t>(), next_look) << fmt_of(fault);
    EXPECT_FALSE(fs::exists(folder_ / "checkpoints")) << "nothing is saved of it";
  }

  void show(const char* title) const {
    std::printf("%s\n| plan | state | flips | found | by | healed | missed |\n|---|---|---|---|---|---|---|\n", title);
    for (const auto& [what, counts] : counts_) {
      int found = 0;
      std::string by;
      for (const auto& [code, n] : counts.found)
        found += n, by += (by.empty() ? "" : ", ") + code + " x" + std::to_string(n);
      std::printf("| %s | %d | %d | %s | %d | %d |\n", what.c_str(), counts.flips, found, by.c_str(), counts.healed,
                  counts.missed);
    }
  }

  std::int64_t pick(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  static std::string fmt_of(const Fault& f) {
    return "flip:state=any,rank=" + std::to_string(f.rank) + ",step=" + std::to_string(f.step) +
           ",part=" + std::to_string(f.part) + ",element=" + std::to_string(f.element) +
           ",bit=" + std::to_string(f.bit);
  }
  static std::int64_t asked_for() {
    const char* const text = std::getenv("ORRERY_FLIPS");
    return text != nullptr ? std::atoll(text) : static_cast<std::int64_t>(std::size(kSplits));
  }
  static std::uint64_t seed() {
    const char* const text = std::getenv("ORRERY_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  }

  fs::path folder_;
  std::mt19937_64 random_{seed()};
  std::map<std::string, Counts> counts_;
  std::map<std::string, std::uint32_t> undisturbed_;
};

TEST_F(FlippedStates, AreFoundInTheirStepWithALookAfterEach) {
  for (std::int64_t i = 0; i < asked_for(); ++i) flip(kSplits[static_cast<std::size_t>(i) % std::size(kSplits)], 1);
  if (std::getenv("ORRERY_FLIPS") != nullptr) show("A look after every step:");
}

TEST_F(FlippedStates, OfReplicasAreFoundAtTheNextLookOrHaveHealed) {
  for (std::int64_t i = 0; i < asked_for() / 3; ++i) flip(kSplits[static_cast<std::size_t>(i) % 2], 3);
  for (const auto& [what, counts] : counts_) EXPECT_EQ(counts.missed, 0) << what;
  if (std::getenv("ORRERY_FLIPS") == nullptr) return;
  counts_.clear();
  for (std::int64_t i = 0; i < asked_for(); ++i) flip(kSplits[static_cast<std::size_t>(i) % std::size(kSplits)], 3);
  show("A look after every third step:");
}

}  // namespace flips_test
}  // namespace orrery::exec
