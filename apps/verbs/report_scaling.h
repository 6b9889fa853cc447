#pragma once
/// `report --scaling`: from jobs and lists of what to sweep to a study, and to the files it is written as.
#include <optional>
#include <string>
#include <vector>

#include "apps/verbs/report_data.h"
#include "apps/verbs/verbs.h"
#include "base/result.h"
#include "cost/scaling.h"

namespace orrery::apps {

/// Mistakes in the options that belong to --scaling; nothing where there are none.
[[nodiscard]] std::optional<Outcome> refused_scaling(const ReportOptions& options, const Context& context);

/// Folders among the jobs are runs to be shown beside them: a list takes all that follows it.
[[nodiscard]] ReportOptions with_runs_apart(ReportOptions options);

/// The study of what the options sweep, with what was measured of it beside its points. `warnings`: of the jobs.
[[nodiscard]] base::Result<cost::ScalingStudy> scaling_study_of(const ReportOptions& options, const Context& context,
                                                                const Beliefs& beliefs,
                                                                const std::vector<Group>& groups,
                                                                base::Diagnostics& warnings);

/// "gpt3-175b on selene-1024", or how many there are of what is swept.
[[nodiscard]] std::string title_of(const cost::ScalingStudy& study);

/// Error P90: no point has a plan.
[[nodiscard]] base::Diagnostic nothing_scales(const cost::ScalingStudy& study, const std::string& job);

/// The study as `--format` says, where that is not a page.
[[nodiscard]] std::string scaling_file(const cost::ScalingStudy& study, const std::string& format);

}  // namespace orrery::apps
