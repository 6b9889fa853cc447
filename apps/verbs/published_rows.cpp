// Loads rows and what they name from files and the catalogue.
#include "apps/verbs/published_rows.h"

#include "apps/files.h"
#include "apps/input_kinds.h"
#include "apps/inputs.h"

namespace orrery::apps {

namespace {
constexpr const char* kCarried = "tests/validation/published";
}

base::Result<sim::Library> load_library(const Catalog& catalog, const std::vector<std::string>& calibrations,
                                        const std::string& stack, const std::string& cluster) {
  sim::Library library;
  base::Diagnostics found;
  const auto take = [&](auto&& result, const auto& put) {
    if (result)
      put(std::move(*result));
    else
      found.insert(found.end(), result.error().begin(), result.error().end());
  };
  const auto keep = [&](clusters::Cluster&& one) { library.clusters.push_back(std::move(one)); };
  for (const std::string& name : catalog.names(kClusters)) take(load_cluster(catalog, name, {}, {}), keep);
  for (const std::string& name : catalog.names(kStacks))
    take(load_stack(catalog, name, {}), [&](cost::Stack&& one) { library.stacks.push_back(std::move(one)); });
  for (const std::string& name : catalog.names(kModels))
    take(load_model(catalog, name, {}, {}), [&](models::Model&& one) { library.models.push_back(std::move(one)); });
  take(load_calibrations(catalog, calibrations),
       [&](std::vector<cost::Calibration>&& known) { library.calibrations = std::move(known); });
  if (!stack.empty())
    take(load_stack(catalog, stack, {}), [&](cost::Stack&& one) { library.stand_in = std::move(one); });
  if (!cluster.empty())
    take(load_cluster(catalog, cluster, {}, {}), [&](clusters::Cluster&& one) { library.machine = std::move(one); });
  if (!found.empty()) return base::fail(std::move(found));
  return library;
}

base::Result<std::vector<sim::Row>> load_rows(const Catalog& catalog, const std::vector<std::string>& files,
                                              sim::Origin origin, base::Diagnostics* warnings) {
  std::vector<sim::Row> rows;
  base::Diagnostics found;
  const auto add = [&](const std::string& text, const std::string& name) {
    auto parsed = sim::parse_rows(text, name, origin, warnings);
    base::Diagnostics other = parsed ? base::Diagnostics() : wrong_kind(text, name, InputKind::rows);
    if (!other.empty())
      found.insert(found.end(), other.begin(), other.end());
    else if (!parsed)
      found.insert(found.end(), parsed.error().begin(), parsed.error().end());
    else
      rows.insert(rows.end(), parsed->begin(), parsed->end());
  };
  for (const std::string& file : files) {
    const auto text = read_argument(file);
    if (text)
      add(*text, file);
    else
      found.insert(found.end(), text.error().begin(), text.error().end());
  }
  if (files.empty())
    for (const std::string& name : catalog.names(kCarried))
      if (const auto entry = catalog.find(kCarried, name)) add(entry->text, entry->path.string());
  if (!found.empty()) return base::fail(std::move(found));
  return rows;
}

}  // namespace orrery::apps
