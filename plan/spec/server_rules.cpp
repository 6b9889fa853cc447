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
  if (!spec.has_server()) return found;
  const auto rule = [&](bool holds, RuleCode code, std::string message, std::string help) {
    if (!holds) found.push_back({base::Severity::error, code.text(), {}, std::move(message), std::move(help), {}});
  };
  rule(spec.data > 1, "P80", "a parameter server without workers: data is 1", "data: 2 or more, or no staleness");
  rule(spec.pipeline == 1 && spec.context == 1, "P81",
       "workers of a parameter server compute whole gradients of their own, which pipeline stages and parts of "
       "sequences "
       "do not",
       "pipeline: 1 and context: 1, with data and tensor parallelism");
  rule(spec.zero_stage <= 1, "P82",
       fmt::format(
           "workers hold the whole weights that they compute with, which ZeRO {} partitions; the server's states "
           "are partitioned in any case",
           spec.zero_stage),
       "zero_stage: 1");
  rule(spec.zero_group == 0, "P82", "every sub-group of ZeRO would be a parameter server of its own", "zero_group: 0");
  rule(spec.compression == Compression{}, "P83",
       "gradients are pushed to a parameter server as they are, and its workers' activations kept so",
       "no compression, or no staleness");
  rule(!spec.offload.any(), "P83",
       "versions of weights of a parameter server's workers are on the device, of which none "
       "is offloaded yet",
       "no offload, or no staleness");
  rule(spec.precision != DType::fp16, "P84",
       "fp16 skips an update where some gradient overflows, which all workers would have to agree on in every step",
       "precision: bf16");
  const OptimizerTraits& optimizer = traits_of(spec.optimizer);
  rule(!optimizer.whole_tensors && !optimizer.whole_matrices, "P84",
       fmt::format("{} looks at whole tensors, of which a shard of the server has parts", name_of(spec.optimizer)),
       "the optimizer adamw, adamw-8bit, lion or sgd");
  return found;
}

}  // namespace orrery::plan
