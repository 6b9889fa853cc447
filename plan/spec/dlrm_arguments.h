#pragma once
/// The command line of the public DLRM benchmark (facebookresearch/dlrm, dlrm_s_pytorch.py): its arguments as a model
/// and what a job says of its training. Arguments that only show, log or place are taken and have no effect.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/model.h"
#include "plan/spec/job.h"

namespace orrery::plan {

struct DlrmCommand {
  models::Model model;
  std::int64_t batch = 1;
  Training training;
  std::vector<std::string> notes;  ///< in what the run differs from the benchmark's, a sentence each
};

/// `text`: the arguments, with or without the script before them; `--key=value` or `--key value`, quotes as a shell's.
/// Defaults are the script's. E0140: an argument that it has not, or whose value does not read; E0141: one that asks
/// for what Orrery's models have not. All of them at once, each with its column of `text`.
[[nodiscard]] base::Result<DlrmCommand> read_dlrm_arguments(std::string_view text);

}  // namespace orrery::plan
