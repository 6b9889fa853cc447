#pragma once
/// Turns what the user named into values: models, clusters, jobs, plans, calibrations. Names are catalogue names or
/// paths; paths inside a job file are relative to its folder.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog.h"
#include "base/result.h"
#include "base/yaml.h"
#include "clusters/cluster.h"
#include "clusters/import/known.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/habits.h"
#include "cost/parameters/intervals.h"
#include "cost/parameters/stack.h"
#include "cost/prices/pricing.h"
#include "cost/prices/stacks.h"
#include "models/model.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"
#include "plan/spec/plan_file.h"

namespace orrery::apps {

/// `from` is where the name was written (for messages), `folder` what paths are relative to. Warnings of its file go to
/// `warnings` if given.
[[nodiscard]] base::Result<models::Model> load_model(const Catalog& catalog, const std::string& name,
                                                     const base::Location& from, const std::filesystem::path& folder,
                                                     base::Diagnostics* warnings = nullptr);
/// A catalogue's cluster without its graph, for lists of many.
[[nodiscard]] base::Result<clusters::Cluster> describe_cluster(const Catalog& catalog, const std::string& name);
[[nodiscard]] base::Result<clusters::Cluster> load_cluster(const Catalog& catalog, const std::string& name,
                                                           const base::Location& from,
                                                           const std::filesystem::path& folder);
/// GPUs, CPUs and links in the catalogue, by the names that drivers and dumps give them.
[[nodiscard]] base::Result<clusters::Known> load_known(const Catalog& catalog);
[[nodiscard]] base::Result<cost::Stack> load_stack(const Catalog& catalog, const std::string& name,
                                                   const base::Location& from,
                                                   const std::filesystem::path& folder = ".");
/// The place of a key ("stack", "software.compiled") in the document that a name or a word comes from.
using PlaceOf = std::function<base::Location(const std::string& key)>;
/// The stack, and those of the catalogue that replace it under some plans, all of them as `software` sets them up.
/// P147: a word that the stack does not know. `from`: where the stack is named.
[[nodiscard]] base::Result<cost::Stacks> load_stacks(const Catalog& catalog, const std::string& name,
                                                     const base::Location& from, const plan::Software& software,
                                                     const PlaceOf& place);

/// A job and what it names. Paths of training data and weights are made absolute, so that a plan made from it works
/// from any folder; missing sequence and precision are filled in, the latter with what the devices train in.
struct LoadedJob {
  plan::Job job;
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const clusters::Cluster> cluster;
  cost::Stacks stacks;
  std::string file, text;             ///< as it was named and read
  std::vector<std::string> settings;  ///< `--set`
  bool longest = false;               ///< no sequence was given: it is the model's longest
  /// A finding, placed at the line of a key ("plan.tensor") or of its nearest parent in the file.
  [[nodiscard]] base::Diagnostic at(const std::string& key, base::Diagnostic found) const;
};
/// `settings` ("plan.tensor=4") override the file.
[[nodiscard]] base::Result<LoadedJob> load_job(const Catalog& catalog, const std::string& path,
                                               base::Diagnostics& warnings,
                                               const std::vector<std::string>& settings = {});

/// A plan file, checked by make_plan.
struct LoadedPlan {
  plan::PlanFile file;
  plan::Plan plan;
  cost::Stack stack;  ///< the one of `stacks` that prices this plan
  cost::Stacks stacks;
  std::optional<base::Diagnostic> warning = {};  ///< if its software cannot do what the plan needs
  std::string name = {}, text = {};              ///< as it was named and read; no text: it stands within another file
  /// A finding, placed at the line of a key ("plan.tensor") or of its nearest parent in the file.
  [[nodiscard]] base::Diagnostic at(const std::string& key, base::Diagnostic found) const;
};
[[nodiscard]] base::Result<LoadedPlan> load_plan(const Catalog& catalog, const std::string& path);
/// The same for an argument that may be `-`, standard input.
[[nodiscard]] base::Result<LoadedPlan> load_plan_argument(const Catalog& catalog, const std::string& argument);

/// A plan that stands within another file (`simulate --json` prints one).
[[nodiscard]] base::Result<LoadedPlan> load_plan_in(const Catalog& catalog, const base::Document& document,
                                                    const base::Cursor& at);

/// A plan that was made from a job, as its file would be read; `name` stands for the file in messages.
[[nodiscard]] base::Result<LoadedPlan> load_made_plan(const Catalog& catalog, const plan::PlanFile& file,
                                                      const std::string& name);
/// The job that a plan carries, with the plan's own batch, sequence and precision.
[[nodiscard]] LoadedJob job_of(const LoadedPlan& loaded);

/// The catalogue's calibrations, then those of the given files: later ones win.
[[nodiscard]] base::Result<std::vector<cost::Calibration>> load_calibrations(const Catalog& catalog,
                                                                             const std::vector<std::string>& files);

/// The catalogue's cost/intervals.yaml; empty without it.
[[nodiscard]] base::Result<cost::Intervals> load_intervals(const Catalog& catalog);

}  // namespace orrery::apps
