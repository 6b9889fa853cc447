// Rules of mixtures of experts.
#include "plan/spec/expert_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plan/spec/rules.h"

namespace orrery::plan {

// A micro-batch counts whole, also where ranks divide its sequences or rows.
base::Diagnostics refused_reach(const models::Model& model, const PlanSpec& spec) {
  const models::Experts& e = model.experts;
  base::Diagnostics found;
  const std::int64_t sequence = spec.shape.sequence, one = spec.shape.micro_batch * sequence;
  const std::int64_t apart = spec.mesh.context * (spec.mesh.whole_experts() ? spec.mesh.tensor : 1);
  const std::int64_t tokens = std::max(one, one * spec.mesh.expert / apart);
  const std::int64_t times = (e.count + tokens - 1) / tokens;
  if (e.count > tokens)
    found.push_back(RuleCode("P129").broken(
        fmt::format("{} experts, but a micro-batch has {} for them", e.count, base::count_of(tokens, "token")),
        fmt::format("micro_batch: {}, a sequence of {}, or fewer experts", spec.shape.micro_batch * times,
                    sequence * times)));
  const double room =
      e.capacity_factor * static_cast<double>(e.chosen) * static_cast<double>(sequence) / static_cast<double>(e.count);
  if (e.capacity_factor > 0 && room < 1)
    found.push_back(RuleCode("P118").broken(
        fmt::format("capacity_factor {} gives an expert room for {:.2g} tokens of a sequence of {}", e.capacity_factor,
                    room, sequence),
        fmt::format("a sequence of {:.0f} or more, or a model with capacity_factor: {} or more, or 0, which drops no "
                    "token",
                    std::ceil(static_cast<double>(sequence) / room - 1e-6),
                    std::ceil(100 * e.capacity_factor / room - 1e-6) / 100)));
  return found;
}

bool balances_by_micro_batch(const models::Model& model, const PlanSpec& spec) {
  const std::int64_t passes = spec.shape.batch / std::max<std::int64_t>(1, spec.mesh.data * spec.shape.micro_batch);
  const bool forward_first = spec.stages.order == Order::gpipe && spec.stages.virtual_stages == 1;
  return model.experts.any() && model.experts.aux_coefficient > 0 && passes > 1 && !forward_first;
}

base::Diagnostics refused_balancing(const models::Model& model, const PlanSpec& spec) {
  if (!balances_by_micro_batch(model, spec)) return {};
  return {RuleCode("P124").broken(
      "the balancing loss covers all tokens of a step, so its gradient is known only after the last forward pass")};
}

}  // namespace orrery::plan
