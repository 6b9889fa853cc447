#pragma once
/// `report --scaling`: turns jobs and lists of what to sweep into a study, and a study into files.
#include <optional>
#include <string>
#include <vector>

#include "apps/verbs/report/report_data.h"
#include "apps/verbs/report/report_options.h"
#include "base/result.h"
#include "cost/scaling.h"

namespace orrery::apps {

/// Mistakes in the options of --scaling; none if there are none.
[[nodiscard]] std::optional<Outcome> refused_scaling(const ReportOptions& options, const Context& context);

/// Moves runs, plans and predictions among the jobs of --scaling to the inputs, since the option takes all words that
/// follow it; if no job is left there, those among the inputs are meant.
[[nodiscard]] ReportOptions with_jobs_apart(ReportOptions options);

/// The study that the options ask for, with measurements beside its points. `warnings`: of the jobs.
[[nodiscard]] base::Result<cost::ScalingStudy> scaling_study_of(const ReportOptions& options, const Context& context,
                                                                const Beliefs& beliefs,
                                                                const std::vector<Group>& groups,
                                                                base::Diagnostics& warnings);

/// "gpt3-175b on selene-1024", or the number of each where several are swept.
[[nodiscard]] std::string title_of(const cost::ScalingStudy& study);

/// Error P90: no point has a plan.
[[nodiscard]] base::Diagnostic nothing_scales(const cost::ScalingStudy& study, const std::string& job);

/// The study in the format of `--format`, other than a page.
[[nodiscard]] std::string scaling_file(const cost::ScalingStudy& study, const std::string& format);

}  // namespace orrery::apps
