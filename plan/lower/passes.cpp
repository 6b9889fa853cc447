// The passes of lowering, and what runs them.
#include "plan/lower/passes.h"

#include "base/ensure.h"
#include "plan/lower/beside.h"
#include "plan/lower/encode.h"
#include "plan/lower/gather_next.h"
#include "plan/lower/offload.h"
#include "plan/lower/parameter_server.h"
#include "plan/lower/partition_checkpoints.h"
#include "plan/lower/reduce_early.h"
#include "plan/lower/write_first.h"
#include "plan/outline/outline.h"
#include "plan/schedule/check.h"

namespace orrery::plan {

std::vector<LoweringPass> passes_of(const Plan& plan, const LowerOptions& options, const Groups& groups,
                                    ClassBuilder& build, const std::vector<std::size_t>& pairs) {
  RankClass& c = build.result();
  const PlanSpec& spec = plan.spec();
  const Offload& offload = spec.offload;
  const bool drains = !spec.stages.asynchronous() && !spec.states.has_server();
  // Evaluation keeps persistent buffers where training has them, and saves nothing.
  const bool trains = !options.forward_only;
  return {
      {"gather_next", options.gather_next && drains, [&c] { gather_next(c); }, true, true},
      {"serve", trains && spec.states.has_server(), [&plan, &c] { serve(plan, c); }},
      {"offload_states", offload.states(), [&c, &offload] { offload_states(c, offload); }, true},
      {"partition_checkpoints", trains && spec.recomputation.partition_checkpoints,
       [&c, &spec, &groups] { partition_checkpoints(c, spec.mesh.tensor, groups.tensor); }},
      {"offload_activations", trains && offload.activations == Space::host,
       [&c, &offload] { offload_activations(c, offload.prefetch); }},
      {"encode_activations", trains && spec.compression.activations != ActivationEncoding::none,
       [&c, &spec] { encode_activations(c, spec.compression); }},
      {"write_first", trains && !options.zero_gradients, [&c] { write_first(c); }},
      // Divides the finished steps.
      {"reduce_early", trains && spec.reduces_early(),
       [&build, &groups, &spec] { reduce_early(build, groups, spec, zero_of(spec)); }},
      // Divides the blocks that the passes before have made.
      {"run_beside", !pairs.empty(), [&c, &pairs] { run_beside(c, pairs); }},
      {"fold", true, [&c] { c.program.fold(); }},
  };
}

void run_passes(const std::vector<LoweringPass>& passes, const Schedule& schedule, const RankClass& rank_class,
                bool checks) {
  const auto check_after = [&](const char* name) {
    if (!checks) return;
    const base::Diagnostics faults = check_class(schedule, rank_class);
    ENSURE(faults.empty(), "after {}: {}", name, faults.front().message);
  };
  check_after("the class was written");
  for (const LoweringPass& pass : passes) {
    if (!pass.applies) continue;
    pass.run();
    check_after(pass.name);
  }
}

}  // namespace orrery::plan
