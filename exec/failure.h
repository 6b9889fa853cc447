#pragma once
/// Failure: something outside the program failed (MPI, NCCL, CUDA, disk). Thrown in exec, caught once in apps/.
#include <stdexcept>
#include <string>
#include <utility>

#include "base/result.h"

namespace orrery::exec {

enum class FailureKind { run, environment, check, input };  ///< exit codes 1, 6, 5, 3

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& what, FailureKind kind = FailureKind::run)
      : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

/// A wait for other ranks took longer than it may.
class DeadlinePassed : public Failure {
 public:
  using Failure::Failure;
};

/// A fault in an input file that shows only when the file is read.
class InputFailure : public Failure {
 public:
  explicit InputFailure(base::Diagnostic diagnostic)
      : Failure(diagnostic.message, FailureKind::input), diagnostic_(std::move(diagnostic)) {}
  [[nodiscard]] const base::Diagnostic& diagnostic() const { return diagnostic_; }

 private:
  base::Diagnostic diagnostic_;
};

}  // namespace orrery::exec
