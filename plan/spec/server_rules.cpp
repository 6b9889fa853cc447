// What a parameter server can be combined with.
#include "plan/spec/server_rules.h"

#include <fmt/core.h>

#include <utility>

#include "plan/spec/optimizers.h"
#include "plan/spec/rules.h"

namespace orrery::plan {

using models::DType;

base::Diagnostics refused_by_server(const PlanSpec& spec) {
  base::Diagnostics found;
  if (!spec.states.has_server()) return found;
  const auto rule = [&](bool holds, RuleCode code, const std::string& message, const std::string& help = {}) {
    if (!holds) found.push_back(code.broken(message, help));
  };
  rule(spec.mesh.data > 1, "P80", "a parameter server without workers: data is 1");
  rule(spec.mesh.pipeline == 1 && spec.mesh.context == 1, "P81",
       "each worker of a parameter server computes whole gradients, which pipeline and context parallelism prevent");
  rule(spec.states.zero_stage <= 1, "P82",
       fmt::format("workers hold the whole weights that they compute with, but ZeRO {} partitions them; the server's "
                   "states are partitioned in any case",
                   spec.states.zero_stage),
       "zero_stage: 1");
  rule(spec.states.zero_group == 0, "P82", "every ZeRO sub-group would be a parameter server of its own",
       "zero_group: 0");
  rule(spec.compression == Compression{}, "P83",
       "workers of a parameter server push gradients and keep activations uncompressed",
       "leave out compression, or staleness");
  rule(!spec.offload.any(), "P83",
       "a parameter server's workers keep versions of the weights on the device, and offloading these is not supported "
       "yet",
       "leave out offload, or staleness");
  rule(spec.numerics.precision != DType::fp16, "P84",
       "fp16 skips an update if any gradient overflows, on which all workers would have to agree in every step",
       "precision: bf16");
  const OptimizerTraits& optimizer = traits_of(spec.states.optimizer);
  rule(!optimizer.whole_parameters(), "P84",
       fmt::format("{} looks at whole tensors, but a shard of the server has only parts",
                   name_of(spec.states.optimizer)),
       "the optimizer adamw, adamw-8bit, adamw-bf16, lion or sgd");
  return found;
}

}  // namespace orrery::plan
