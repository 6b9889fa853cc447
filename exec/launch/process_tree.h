#pragma once
/// All processes of one run, whatever became of their parents: they carry the run's mark in their environment. mpiexec,
/// its proxy and the ranks each have a session of their own, so that no process group holds them all.
#include <chrono>
#include <string>
#include <vector>

namespace orrery::exec {

/// The environment variable that marks them; its value is the run's own.
inline constexpr const char* kRunMark = "ORRERY_SUPERVISED";

class ProcessTree {
 public:
  /// While it lives, processes that lose their parent become children of this one, so that they can be waited for.
  explicit ProcessTree(std::string mark);
  ~ProcessTree();  ///< ends what is left
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  /// Ids of those that live. One that was started a moment ago may not have the mark yet.
  [[nodiscard]] std::vector<int> members() const;
  /// SIGKILL to all, which ends stopped ones too, until none is left. False when some outlive `patience`.
  bool end(std::chrono::milliseconds patience = std::chrono::seconds(5)) const;

 private:
  std::string mark_;
  bool was_subreaper_ = false;
};

/// A process' state as /proc says: R, S, D, T (stopped), Z …; '\0' when there is none.
[[nodiscard]] char state_of_process(int process);

}  // namespace orrery::exec
