#pragma once
/// Reads the command line of the public DLRM benchmark (facebookresearch/dlrm, dlrm_s_pytorch.py) as a model and the
/// training part of a job. Arguments that only display, log or place are accepted and have no effect.
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
  std::vector<std::string> notes;  ///< how the run differs from the benchmark's, one sentence each
};

/// `text`: the arguments, with or without the script before them; `--key=value` or `--key value`, quoted as in a shell.
/// Defaults are the script's. E0140: an unknown argument, or a value that cannot be read; E0141: an argument that asks
/// for what Orrery's models lack. All of them are reported at once, each with its column in `text`.
[[nodiscard]] base::Result<DlrmCommand> read_dlrm_arguments(std::string_view text);

}  // namespace orrery::plan
