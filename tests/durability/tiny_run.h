#pragma once
/// Checkpoints of a tiny model on two ranks of this process, in milliseconds: values that tell their step, saving,
/// resuming, and whether what came back is what was saved.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "exec/state/generations.h"

namespace orrery::exec::testing {

/// A new folder where files are cheap, removed at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class TinyRun {
 public:
  /// `job`: what tells runs apart; it is in every value too.
  explicit TinyRun(std::string job = "job");
  ~TinyRun();
  /// Values of `step`, saved into `folder`. Throws Failure where ranks do: all of them, or the test is told so.
  /// Returns what was said and stopped nothing.
  std::vector<std::string> save(const std::filesystem::path& folder, std::int64_t step, int keep = 2);
  /// Wipes the values and loads the newest whole checkpoint.
  [[nodiscard]] Resumed resume(const std::filesystem::path& folder);
  /// Whether every state of every tensor, on both ranks, has the values of `step` of a run of this job.
  [[nodiscard]] bool holds(std::int64_t step);

 private:
  struct Rank;
  void on_ranks(const std::function<void(const CheckpointContext&)>& body);
  std::string job_;
  std::unique_ptr<plan::Schedule> schedule_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

/// Entries of a folder of checkpoints that are left of something unfinished.
[[nodiscard]] std::vector<std::string> debris_in(const std::filesystem::path& folder);

/// How many cases a program runs: of `--cases N` on its command line, else `otherwise`.
[[nodiscard]] int cases(int otherwise);
/// Reads the command line, GoogleTest's flags included, and runs all tests.
int run_tests(int count, char** arguments);

}  // namespace orrery::exec::testing
