// doctor: one line per capability: what was found, and what to do about what was not.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/verbs/verb.h"
#include "base/result.h"
#include "exec/probe/capabilities.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

struct DoctorOptions {
  std::vector<std::string> require;  ///< capabilities that must be present
};

exec::Capability catalogue(const Catalog& catalog) {
  const auto count = [&](const char* folder) { return std::to_string(catalog.names(folder).size()); };
  if (catalog.names(kModels).empty())
    return {"catalogue", exec::Presence::missing, "no models found", "name its folder with --catalog or ORRERY_DATA"};
  return {"catalogue",
          exec::Presence::ok,
          catalog.roots().front().string() + ": " + count(kModels) + " models, " + count(kClusters) + " clusters",
          {}};
}

Outcome run_doctor(const DoctorOptions& options, const Context& context) {
  std::vector<exec::Capability> found = exec::probe_capabilities(program_folder());
  found.push_back(catalogue(context.catalog));

  reports::Table table;
  table.columns = {{"capability", reports::Align::left},
                   {"is", reports::Align::left},
                   {"found", reports::Align::left},
                   {"what to do", reports::Align::left}};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::vector<std::string> names;
  for (const exec::Capability& one : found) {
    table.rows.push_back({one.name, exec::name_of(one.presence), one.detail, one.remedy});
    rows.push_back({{"name", one.name},
                    {"presence", exec::name_of(one.presence)},
                    {"detail", one.detail},
                    {"remedy", one.remedy}});
    names.push_back(one.name);
  }
  Outcome outcome;
  outcome.text = reports::text_of(table, context.terminal.style);
  outcome.json = nlohmann::ordered_json{{"capabilities", rows}}.dump();
  for (const std::string& required : options.require) {
    const auto one = std::find_if(found.begin(), found.end(), [&](const auto& c) { return c.name == required; });
    if (one == found.end()) {
      const std::string near = base::did_you_mean(required, names);
      outcome.diagnostics =
          base::fail("U0001", "`" + required + "` is not a capability that doctor knows",
                     fmt::format("{}doctor knows {}", near.empty() ? "" : "did you mean `" + near + "`? ",
                                 fmt::join(names, ", ")))
              .value();
      outcome.exit_code = kUsage;
      return outcome;
    }
    if (one->presence == exec::Presence::missing) {
      outcome.diagnostics.push_back(
          base::fail("R0004", "`" + required + "` is missing: " + one->detail, one->remedy).value().front());
      outcome.exit_code = kMissing;
    }
  }
  return outcome;
}

void add_doctor_flags(Flags flags, DoctorOptions& o) {
  flags.option("--require", o.require, "Exit 6 unless this is available: mpi, cuda, chromium …; may be repeated")
      .one_each()
      .value("NAME");
}

}  // namespace

Verb doctor_verb() {
  return verb_of<DoctorOptions>({
      .name = "doctor",
      .says = "Show which of the things that Orrery can use this machine has",
      .examples = "  orrery doctor --require mpi                            exit 6 unless it is there",
      .flags = add_doctor_flags,
      .run = run_doctor,
  });
}

}  // namespace orrery::apps
