#pragma once
/// Runs of the worker under mpiexec, for tests: a folder of its own, a plan file, the supervisor, what it left behind.
#include <filesystem>
#include <string>
#include <vector>

#include "exec/launch/supervise.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {

/// A new folder below the system's temporary one, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A line of metrics.jsonl.
struct Line {
  std::int64_t step = 0;
  double loss = 0, gradient_norm = 0, memory_peak = 0;
  std::vector<std::int64_t> arena_peak, resident_growth, outside_peak;
  std::string loss_text;  ///< as printed
};
[[nodiscard]] std::vector<Line> read_metrics(const std::filesystem::path& run);
[[nodiscard]] LogicalTensors read_tensors(const std::filesystem::path& file);

/// The command that trains `trial` in `folder`/run: plan written, worker and ranks set.
[[nodiscard]] TrainCommand command_for(const Trial& trial, const Folder& folder);

}  // namespace orrery::exec::testing
