#pragma once
/// Failure: the world let us down (MPI, NCCL, CUDA, disk). Thrown in exec, caught once in apps/.
#include <stdexcept>
#include <string>

namespace orrery::exec {

enum class FailureKind { run, environment, check };  ///< exit codes 1, 6, 5

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& what, FailureKind kind = FailureKind::run)
      : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

}  // namespace orrery::exec
