#pragma once
/// What one rank of a run works with, and how it speaks to the user.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exec/run/run.h"

namespace orrery::exec {

/// All references must outlive the run.
struct RunParts {
  const plan::Plan& plan;
  const plan::Training& training;
  const plan::Schedule& schedule;
  Backend& backend;
  Transport& transport;
  const Waiter& waiter;
  const RunOptions& options;

  [[nodiscard]] bool first_rank() const { return transport.rank() == 0; }
  /// Of a step.
  [[nodiscard]] double tokens() const;
  /// Rank 0 reports an event (RunOptions::report); the others are silent.
  void report(const nlohmann::ordered_json& event) const;
  /// A warning about the run's directory, as an event.
  void warn(const char* code, std::string message, std::string help) const;
};

}  // namespace orrery::exec
