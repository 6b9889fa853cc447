// How experts are divided among ranks, and what they can be combined with.
#include "plan/spec/expert_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "base/units.h"
#include "plan/spec/plan_rules.h"
#include "plan/spec/rules.h"

namespace orrery::plan {

namespace {

class ExpertRules {
 public:
  ExpertRules(const models::Model& model, const PlanSpec& spec) : model_(model), spec_(spec) {}

  base::Diagnostics broken() {
    experts();
    return broken_.take();
  }

 private:
  void experts() {
    const models::Experts& e = model_.experts;
    broken_.rule(!spec_.tokens.encoded() || e.any(), "P142",
                 "rows of tokens travel to experts, but the model has none");
    broken_.rule(spec_.mesh.expert == 1 || e.any(), "P21",
                 [&] { return fmt::format("expert {} divides experts, but the model has none", spec_.mesh.expert); });
    if (!e.any()) return;
    broken_.rule(e.count % spec_.mesh.expert == 0, "P121",
                 [&] { return fmt::format("expert {} does not divide {} experts", spec_.mesh.expert, e.count); });
    const Mesh& mesh = spec_.mesh;
    const bool own_rows = mesh.routes_own_rows();
    const int ways = mesh.expert_ways(), all = mesh.ranks_per_stage();
    broken_.rule(
        all % ways == 0, "P119",
        [&] {
          return fmt::format("expert_tensor {} does not divide the {} of data {} x context {} x tensor {}", ways,
                             base::count_of(all, "rank"), mesh.data, mesh.context, mesh.tensor);
        },
        "a divisor of data x context x tensor");
    broken_.rule(
        all % ways != 0 || mesh.expert_places() % mesh.expert == 0, "P122",
        [&] {
          return fmt::format("expert {} must divide {}, which are {}", mesh.expert,
                             own_rows ? fmt::format("the ranks of data {} x context {} x tensor {} / expert_tensor {}",
                                                    mesh.data, mesh.context, mesh.tensor, ways)
                                      : fmt::format("the ranks of data {} x context {}", mesh.data, mesh.context),
                             mesh.expert_places());
        },
        own_rows ? "use a divisor of data x context x tensor / expert_tensor" : "a divisor of data x context");
    broken_.rule(
        !own_rows || mesh.tensor == 1 || mesh.shards_rows(), "P120",
        "experts that are split over other ranks than the tensor group take each rank's own rows, but without sequence "
        "parallelism all tensor ranks have the same rows");
    broken_.rule(e.hidden % ways == 0 && e.shared % mesh.tensor == 0, "P123", [&]() -> std::string {
      return e.hidden % ways != 0
                 ? fmt::format("{} {} does not divide an expert's width of {}", own_rows ? "expert_tensor" : "tensor",
                               ways, e.hidden)
                 : fmt::format("tensor {} does not divide the shared experts' width of {}", mesh.tensor, e.shared);
    });
    broken_.rule(e.capacity_factor <= 0 || (mesh.context == 1 && !own_rows), "P125",
                 "which tokens of a sequence an expert takes depends on earlier tokens, which are on other ranks");
    broken_.rule(!spec_.states.has_server() && !spec_.stages.asynchronous(), "P128",
                 "a mixture of experts counts what its experts do in a step, so all passes must use one version of the "
                 "weights");
    reached();
    if (!mesh.folds_experts()) return;
    const Holders holders = spec_.holders(true);
    const auto nests = [&](int consecutive, const char* key, const char* what) {
      const int ranks = consecutive * spec_.mesh.tensor;
      broken_.rule(
          ranks % holders.stride == 0 || holders.stride % ranks == 0, "P126",
          [&] {
            return fmt::format(
                "{} {}: the {} of {} and the {} among which a layer's experts are divided do not divide one "
                "another",
                key, consecutive, base::count_of(ranks, "rank"), what, holders.stride);
          },
          [&] { return fmt::format("{} that {} divides", key, holders.stride); });
    };
    if (spec_.states.zero_stage > 0 && spec_.states.zero_group > 0) nests(spec_.shards(), "zero_group", "a sub-group");
    if (spec_.exchanges_by_node()) nests(spec_.compression.group, "compression.group", "a group");
  }

  // Whether tokens can reach all experts. Ranks that divide sequences or their rows have the others' tokens beside
  // them, so a micro-batch counts whole.
  void reached() {
    const models::Experts& e = model_.experts;
    const std::int64_t one = spec_.shape.micro_batch * spec_.shape.sequence;
    const std::int64_t together = std::int64_t{spec_.mesh.expert_ways()} * spec_.mesh.expert;
    const std::int64_t tokens = std::max(one, one * together / (spec_.mesh.context * spec_.mesh.tensor));
    const std::int64_t times = (e.count + tokens - 1) / tokens;
    broken_.rule(
        e.count <= tokens, "P129",
        [&] {
          return fmt::format("{} experts, but a micro-batch has {} for them", e.count, base::count_of(tokens, "token"));
        },
        [&] {
          return fmt::format("micro_batch: {}, a sequence of {}, or fewer experts", spec_.shape.micro_batch * times,
                             spec_.shape.sequence * times);
        });
    const double room = e.capacity_factor * static_cast<double>(e.chosen) * static_cast<double>(spec_.shape.sequence) /
                        static_cast<double>(e.count);
    broken_.rule(
        e.capacity_factor <= 0 || room >= 1, "P118",
        [&] {
          return fmt::format("capacity_factor {} gives an expert room for {:.2g} tokens of a sequence of {}",
                             e.capacity_factor, room, spec_.shape.sequence);
        },
        [&] {
          return fmt::format(
              "a sequence of {:.0f} or more, or a model with capacity_factor: {} or more, or 0, which drops no "
              "token",
              std::ceil(static_cast<double>(spec_.shape.sequence) / room - 1e-6),
              std::ceil(100 * e.capacity_factor / room - 1e-6) / 100);
        });
  }

  const models::Model& model_;
  const PlanSpec& spec_;
  BrokenRules broken_;
};

}  // namespace

base::Diagnostics refused_experts(const models::Model& model, const PlanSpec& spec) {
  return ExpertRules(model, spec).broken();
}

bool has_balancing_loss(const models::Model& model) {
  return model.experts.any() && model.experts.aux_coefficient > 0;
}

bool balances_by_micro_batch(const models::Model& model, const PlanSpec& spec) {
  const bool forward_first = spec.stages.order == Order::gpipe && spec.stages.virtual_stages == 1;
  return has_balancing_loss(model) && spec.micro_batches() > 1 && !forward_first;
}

bool balances_by_step(const models::Model& model, const PlanSpec& spec) {
  return has_balancing_loss(model) && !balances_by_micro_batch(model, spec);
}

base::Diagnostics refused_balancing(const models::Model& model, const PlanSpec& spec) {
  if (!balances_by_micro_batch(model, spec)) return {};
  return {RuleCode("P124").broken(
      "the balancing loss covers all tokens of a step, so its gradient is known only after the last forward pass")};
}

}  // namespace orrery::plan
