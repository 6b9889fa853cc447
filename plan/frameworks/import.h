#pragma once
/// Reads what a run of another framework is launched with, as a plan: a script with Megatron-LM's flags, torchtitan's
/// TOML, NeMo's or GPT-NeoX's YAML, DeepSpeed's JSON with the model's config.json beside it. Nothing of it is run.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/frameworks/settings.h"

namespace orrery::plan {

enum class RunFormat : std::uint8_t { megatron, torchtitan, deepspeed, nemo, neox, config };
[[nodiscard]] const char* name_of(RunFormat format);  ///< "megatron"; config: "config.json"
/// By content, and by the name of what is too short to tell.
[[nodiscard]] std::optional<RunFormat> run_format(std::string_view text, const std::string& name);

struct RunFile {
  std::string text, name;
  RunFormat format{};
};

struct RunQuestion {
  int ranks = 0;                           ///< 0: as the files say
  int ranks_otherwise = 0;                 ///< where they do not
  std::string model;                       ///< of the catalogue or a file, instead of the files' own
  std::string name;                        ///< of the model that is read
  std::map<std::string, std::string> set;  ///< variables of scripts, and settings
  std::function<base::Result<models::Model>(const std::string&)> find_model;
};

struct ImportedRun {
  std::string framework;  ///< as its users write it
  models::Model model;
  std::string model_name;  ///< of the catalogue; empty: `model` is the file's own
  PlanSpec spec;
  Training training;
  std::string stack;
  Software software;               ///< as far as the files say it; the stack may not know all of it
  int per_node = 0;                ///< GPUs of a node; 0: the files do not say
  std::vector<std::string> notes;  ///< for the head of what is written: which file says what, what was assumed
  base::Diagnostics warnings;      ///< E0113, E0655, E0656
};

/// E0650: the files are not one run; E0651: one is no such file, or is cut; E0652: a value that only a run can tell;
/// E0653: a value without counterpart; E0654: something is not given.
[[nodiscard]] base::Result<ImportedRun> import_run(const std::vector<RunFile>& files, const RunQuestion& question);

/// Bounds that leave nothing of a plan open.
[[nodiscard]] Bounds bounds_of(const PlanSpec& spec, const models::Model& model);

}  // namespace orrery::plan
