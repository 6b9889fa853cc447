#pragma once
/// Times each operator of a workload on any backend, with the backend's own marks.
#include <functional>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "exec/probe/workload.h"

namespace orrery::exec {

/// A workload, with its memory on a backend.
class LoadedWorkload {
 public:
  /// Allocates; nothing is written yet.
  LoadedWorkload(const Workload& workload, Backend& backend);
  /// Writes the initial contents (and so touches every page).
  void fill();
  /// Runs all operators once. With `seconds`, appends the time of each operator to its list.
  void pass(std::vector<std::vector<double>>* seconds);
  [[nodiscard]] const Workload& workload() const { return workload_; }
  /// First value of the first output of the first operator of a kind, to check that real numbers were computed.
  [[nodiscard]] float value_of(const std::string& kind) const;

 private:
  [[nodiscard]] Operand operand(int view) const;

  const Workload& workload_;
  Backend& backend_;
  std::vector<std::int64_t> offsets_;
  std::byte* arena_;
  std::vector<Backend::Mark> marks_;
};

/// The time of an operator. Equal operators of a workload (same shapes and flags) share one entry.
struct OpTime {
  models::Op op;     ///< its operands only say which optional ones are present
  double count = 0;  ///< executions in one pass
  double seconds = 0;
};

/// From samples by operator and pass: the median over passes, so that other load on the machine does not count, then
/// the mean over equal operators, so that the parts add up to a pass.
[[nodiscard]] std::vector<OpTime> summarise(const Workload& workload, const std::vector<std::vector<double>>& samples);

}  // namespace orrery::exec
