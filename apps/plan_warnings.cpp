// Warnings about plans that are sound, but not what somebody may take them for.
#include "apps/plan_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/model.h"
#include "reports/tables/table.h"

namespace orrery::apps {

namespace {

std::optional<base::Diagnostic> compressed_mathematics(const plan::PlanSpec& spec, const Placing& placed) {
  std::string what;
  if (spec.low_rank())
    what =
        fmt::format("gradients are approximated with rank {}, and the error is corrected later", spec.compression.rank);
  else if (spec.compresses())
    what = fmt::format("gradients are rounded to {}", plan::name_of(spec.compression.gradients));
  if (spec.compression.activations != plan::ActivationEncoding::none &&
      spec.compression.activations != plan::ActivationEncoding::lossless)
    what += fmt::format("{}backward passes read activations rounded to {}", what.empty() ? "" : "; ",
                        plan::name_of(spec.compression.activations));
  if (what.empty()) return std::nullopt;
  return placed("plan.compression", {base::Severity::warning,
                                     "P78",
                                     {},
                                     "compression changes what is computed: " + what,
                                     "compression: {gradients: none, activations: none} computes in full",
                                     {}});
}

}  // namespace

std::optional<base::Diagnostic> changed_mathematics(const plan::PlanSpec& spec, const Placing& placed) {
  if (spec.states.has_server())
    return placed("plan.staleness",
                  {base::Severity::warning,
                   "P36",
                   {},
                   fmt::format("a parameter server changes what is computed: each worker's gradient makes an "
                               "update of its own, and is computed from weights up to {} updates old",
                               (*spec.states.staleness + 1) * spec.mesh.data - 1),
                   "leave `staleness` out to average gradients before one update",
                   {}});
  if (!spec.stages.asynchronous()) return compressed_mathematics(spec, placed);
  return placed("plan.schedule",
                {base::Severity::warning,
                 "P33",
                 {},
                 fmt::format("{} changes what is computed: gradients are computed from weights up to {} old",
                             plan::name_of(spec.stages.order),
                             plan::weight_delay(spec, plan::kFirstStage) == 1
                                 ? std::string("one update")
                                 : fmt::format("{} updates", plan::weight_delay(spec, plan::kFirstStage))),
                 "schedule: 1f1b updates the weights of each step with that step's own gradients",
                 {}});
}

std::optional<base::Diagnostic> beyond_software(const cost::Stacks& stacks, const plan::PlanSpec& spec,
                                                const Placing& placed) {
  const std::vector<cost::Lacking> lacking = cost::beyond(stacks, spec);
  if (lacking.empty()) return std::nullopt;
  std::vector<std::string> words;
  for (const cost::Lacking& one : lacking) words.push_back(one.what);
  return placed(
      fmt::format("plan.{}", lacking.front().key),
      {base::Severity::warning,
       "P146",
       {},
       fmt::format("{} has no {}, but the plan is priced as if it had", stacks.named().name, fmt::join(words, ", no ")),
       "leave it open, so that only what the software does is proposed; or name another `stack`",
       {}});
}

namespace {
constexpr std::int64_t kUsualLength = 8192;  // of pre-training, before a model's context is extended
}

bool takes_longest(const LoadedJob& job) {
  return job.longest && job.job.sequence > kUsualLength;
}

std::optional<base::Diagnostic> long_sequence(const LoadedJob& job) {
  if (!takes_longest(job)) return std::nullopt;
  return job.at("model", {base::Severity::warning,
                          "P172",
                          {},
                          fmt::format("the job says no `sequence`, so each is as long as {} can read: {} tokens",
                                      job.model->name, reports::count_text(job.job.sequence)),
                          fmt::format("most of a training run has shorter ones: `sequence: 4096` or `sequence: {}`",
                                      kUsualLength),
                          {}});
}

}  // namespace orrery::apps
