// export: a run's weights as Hugging Face's files, or its plan in another framework's words.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/runs.h"
#include "apps/verbs/verb.h"
#include "base/units.h"
#include "exec/state/export.h"
#include "exec/state/generations.h"
#include "reports/exports/frameworks.h"

namespace orrery::apps {

namespace fs = std::filesystem;

namespace {

struct ExportOptions {
  std::string run;        ///< run directory; a plan file is enough with `as`
  std::int64_t step = 0;  ///< of the checkpoint; 0: the newest
  std::string as;         ///< framework whose words to export the plan in; empty: export the weights
  std::string output;     ///< folder; for a plan a file, empty: stdout
};

Outcome export_plan(const ExportOptions& options, const Context& context) {
  std::error_code error;
  const fs::path given = options.run;
  const bool run = fs::is_directory(given, error);
  if (base::Diagnostics refused = run ? not_a_run(options.run) : base::Diagnostics(); !refused.empty())
    return bad_input(refused);
  const std::string path = (run ? given / "plan.yaml" : given).string();
  const auto loaded = load_plan_argument(context.catalog, path);
  if (!loaded) return bad_input(loaded.error());
  const auto framework = options.as == "megatron"    ? reports::Framework::megatron
                         : options.as == "deepspeed" ? reports::Framework::deepspeed
                                                     : reports::Framework::torchtitan;
  auto settings = reports::settings_for(framework, loaded->file, loaded->plan, path, placing(*loaded));
  if (!settings) return bad_input(settings.error());
  Outcome outcome;
  outcome.diagnostics = std::move(settings->warnings);
  outcome.json = nlohmann::json{{"plan", path}, {"framework", options.as}, {"text", settings->text}}.dump();
  if (options.output.empty()) {
    outcome.text = std::move(settings->text);
    return outcome;
  }
  context.outputs.write(options.output, settings->text);
  if (framework == reports::Framework::megatron && !context.outputs.dry_run())
    fs::permissions(options.output, fs::perms::owner_exec, fs::perm_options::add, error);
  outcome.text = fmt::format("{} {}\n", context.outputs.wrote(), options.output);
  return outcome;
}

Outcome run_export(const ExportOptions& options, const Context& context) {
  if (!options.as.empty()) return export_plan(options, context);
  if (options.output.empty())
    return usage("`export` writes a run's weights into a folder",
                 "name the folder with -o; or export the plan with --as megatron");
  const fs::path run = options.run;
  if (base::Diagnostics refused = not_a_run(options.run); !refused.empty()) return bad_input(refused);
  const auto loaded = load_plan(context.catalog, (run / "plan.yaml").string());
  if (!loaded) return bad_input(loaded.error());
  std::optional<fs::path> checkpoint;
  Outcome outcome;
  if (options.step > 0) {
    checkpoint = run / "checkpoints" / fmt::format("step-{:06}", options.step);
    if (std::error_code error; !fs::exists(*checkpoint / "manifest.json", error)) checkpoint.reset();
  } else {
    const exec::Resumed newest = exec::newest_whole(run / "checkpoints");
    checkpoint = newest.from;
    outcome.diagnostics = exec::passed_over(newest);
  }
  if (!checkpoint) {
    outcome.exit_code = kBadInput;
    outcome.diagnostics.push_back(
        {base::Severity::error,
         "E0619",
         {options.run, 0, 0, 1},
         options.step > 0 ? fmt::format("the run has no checkpoint of step {}", options.step)
                          : "the run has no whole checkpoint to take the model from",
         "`orrery train` saves a checkpoint at the end, and as often as --checkpoint-every says; with --verify-serial "
         "it saves none",
         {}});
    return outcome;
  }
  if (const auto refused = context.outputs.refused_weights(options.output); !refused.empty())
    return {kUsage, {}, {}, refused};
  if (context.outputs.dry_run()) {
    outcome.text = fmt::format("Would write the weights of {} into {}\n", checkpoint->string(), options.output);
    outcome.json = nlohmann::json{{"run", options.run}, {"folder", options.output}}.dump();
    return outcome;
  }
  const auto exported = exec::export_checkpoint(loaded->file.model, *checkpoint, options.output);
  if (!exported) return bad_input(exported.error());
  outcome.json = nlohmann::json{{"run", options.run},
                                {"step", exported->step},
                                {"folder", options.output},
                                {"tensors", exported->tensors},
                                {"parameters", exported->parameters},
                                {"bytes", exported->bytes}}
                     .dump();
  outcome.text = fmt::format("{} after step {}: {} tensors, {} in {}\n", loaded->file.model.name, exported->step,
                             exported->tensors, base::human(base::Bytes{static_cast<double>(exported->bytes)}),
                             (fs::path(options.output) / "model.safetensors").string());
  return outcome;
}

void add_export_flags(Flags flags, ExportOptions& o) {
  flags.option("RUN", o.run, "Run directory; with --as also a plan file").required();
  flags
      .option("--as", o.as,
              "Instead of the weights, the plan as Megatron-LM's flags, DeepSpeed's JSON or torchtitan's TOML")
      .one_of({"megatron", "deepspeed", "torchtitan"})
      .value("megatron|deepspeed|torchtitan");
  flags.option("--step", o.step, "Step of the checkpoint; default: the newest")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .value("N");
  flags.option("-o,--output", o.output, "Folder to write; with --as a file; default: stdout").value("PATH");
}

}  // namespace

Verb export_verb() {
  return verb_of<ExportOptions>({
      .name = "export",
      .says = "A run's weights for Hugging Face, or a plan for another framework",
      .examples = "  orrery export runs/first -o weights                    for Hugging Face\n"
                  "  orrery export plan.yaml --as megatron -o train.sh      a plan as another framework's flags",
      .flags = add_export_flags,
      .run = run_export,
      .outputs = [](const ExportOptions& o) -> std::vector<OutputFile> {
        return {{o.as.empty() ? "" : o.output, FileKind::settings}};
      },
      .inputs = [](const ExportOptions& o) -> std::vector<std::string> { return {o.run}; },
  });
}

}  // namespace orrery::apps
