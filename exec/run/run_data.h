#pragma once
/// What a run reads: its batches, and those for its evaluation.
#include <filesystem>
#include <optional>

#include "exec/data/data.h"
#include "exec/engine/transport.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

struct RunData {
  Batches batches;
  std::optional<Batches> held_out;
};

/// Collective; an error on one rank is one on all. Only rank 0 encodes text, into the run directory `run`.
[[nodiscard]] base::Result<RunData> open_data(const plan::Plan& plan, const plan::Training& training,
                                              Transport& transport, const std::filesystem::path& run);

/// Warnings if a run of `steps` steps reads some of its data more than once, or if lines of it are skipped.
[[nodiscard]] base::Diagnostics data_warnings(const plan::Training& training, const plan::PlanSpec& spec,
                                              const Batches& batches, std::int64_t steps);

}  // namespace orrery::exec
