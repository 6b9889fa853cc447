// export: a run's weights in Hugging Face's files.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/inputs.h"
#include "apps/verbs.h"
#include "base/units.h"
#include "exec/checkpoint.h"
#include "exec/export.h"

namespace orrery::apps {

namespace fs = std::filesystem;

Outcome run_export(const ExportOptions& options, const Context& context) {
  const fs::path run = options.run;
  const auto loaded = load_plan(context.catalog, (run / "plan.yaml").string());
  if (!loaded) return bad_input(loaded.error());
  std::optional<fs::path> checkpoint = exec::latest_checkpoint(run / "checkpoints");
  if (options.step > 0) {
    checkpoint = run / "checkpoints" / fmt::format("step-{:06}", options.step);
    if (std::error_code error; !fs::exists(*checkpoint / "manifest.json", error)) checkpoint.reset();
  }
  if (!checkpoint)
    return bad_input(
        {base::Diagnostic{base::Severity::error,
                          "E0619",
                          {options.run, 0, 0, 1},
                          options.step > 0 ? fmt::format("the run has no checkpoint of step {}", options.step)
                                           : "the run has no checkpoint to take the model from",
                          "`orrery train` saves one at its end, and as often as --checkpoint-every says",
                          {}}});
  const auto exported = exec::export_checkpoint(loaded->file.model, *checkpoint, options.output);
  if (!exported) return bad_input(exported.error());
  Outcome outcome;
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

}  // namespace orrery::apps
