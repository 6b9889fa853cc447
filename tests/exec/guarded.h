#pragma once
/// Runs small models with their run directory and with planted faults, in threads of this process.
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/run/run.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {

struct Guarded {
  std::vector<base::Diagnostics> found;  ///< by rank: what run() came back with; none where it ended well
  std::vector<nlohmann::json> events;    ///< rank 0's
  std::string failure;                   ///< of the first rank that threw
  /// Rank 0's findings as text.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool completed() const;
  /// Events of that name.
  [[nodiscard]] std::vector<nlohmann::json> of(const std::string& name) const;
};

/// `more` sets what differs from a run of trial.training.steps steps without checkpoints by time.
[[nodiscard]] Guarded run_guarded(const Trial& trial, const std::filesystem::path& folder,
                                  const std::function<void(RunOptions&)>& more = {});

/// A model of two layers and some 20 thousand parameters, seeded, on so many replicas.
[[nodiscard]] Trial small_trial(int data, std::int64_t steps);

}  // namespace orrery::exec::testing
