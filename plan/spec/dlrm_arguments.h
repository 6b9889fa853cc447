#pragma once
/// Reads the command line of the public DLRM benchmark (facebookresearch/dlrm at 090956e, 2025-10-02: dlrm_s_pytorch.py
/// and torchrec_dlrm/dlrm_main.py) as a model and the training part of a job.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/model.h"
#include "plan/spec/job.h"

namespace orrery::plan {

enum class DlrmScript : std::uint8_t { dlrm_s_pytorch, dlrm_main };
[[nodiscard]] const char* name_of(DlrmScript script);  ///< "dlrm_s_pytorch.py"

enum class DlrmFate : std::uint8_t {
  read,
  without_effect,  ///< on what a job says: it displays, logs, places, or modifies an argument that is refused
  refused          ///< unless it has the script's default
};
struct DlrmArgument {
  const char* name;  ///< without its dashes
  DlrmFate fate = DlrmFate::read;
  bool flag = false;            ///< takes no value
  const char* why = "";         ///< if refused: what is missing
  const char* usual = nullptr;  ///< if refused: the value that is accepted
};
/// All arguments of a script; dlrm_s_pytorch.py's with four of other versions.
[[nodiscard]] std::span<const DlrmArgument> dlrm_arguments(DlrmScript script);

struct DlrmCommand {
  models::Model model;
  std::int64_t batch = 1;  ///< samples of a step, over all ranks
  Training training;
  std::vector<std::string> notes;  ///< how the run differs from the benchmark's, one sentence each
};

/// `text`: the arguments, with or without what launches the script before them; `--key=value` or `--key value`, quoted
/// as in a shell. Without a script's name, arguments that only dlrm_main.py has say that it is that. Defaults are the
/// script's. E0140: an unknown argument, or a value that cannot be read; E0141: an argument that asks for what Orrery's
/// models lack. All of them are reported at once, each with its column in `text`.
[[nodiscard]] base::Result<DlrmCommand> read_dlrm_arguments(std::string_view text);

}  // namespace orrery::plan
