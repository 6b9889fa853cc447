#pragma once
/// All processes of one run, whatever became of their parents: their environment carries the run's mark. mpiexec, its
/// proxy and the ranks each have a session of their own, so no process group holds them all.
#include <chrono>
#include <string>
#include <vector>

namespace orrery::exec {

/// The environment variable that marks them; its value identifies the run.
inline constexpr const char* kRunMark = "ORRERY_SUPERVISED";

class ProcessTree {
 public:
  /// While this object lives, processes that lose their parent become children of this one, which can wait for them.
  explicit ProcessTree(std::string mark);
  ~ProcessTree();  ///< kills what is left
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  /// Ids of the living members. A process that has only just started may not have the mark yet.
  [[nodiscard]] std::vector<int> members() const;
  /// Sends SIGKILL to all, which also ends stopped ones, until none is left. False if some outlive `patience`.
  bool end(std::chrono::milliseconds patience = std::chrono::seconds(5)) const;

 private:
  std::string mark_;
  bool was_subreaper_ = false;
};

/// A process's state from /proc: R, S, D, T (stopped), Z …; '\0' if there is no such process.
[[nodiscard]] char state_of_process(int process);

}  // namespace orrery::exec
