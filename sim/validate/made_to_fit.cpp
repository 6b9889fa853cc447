/// Tries what a row leaves open, cheapest first.
#include "sim/validate/made_to_fit.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/units.h"
#include "cost/estimate/estimate.h"
#include "cost/parameters/habits.h"
#include "sim/search/partial_recompute.h"

namespace orrery::sim {

namespace {

double capacity_of(const Subject& one) {
  return one.pricing->cluster().device().memory.value;
}

/// Bytes that a device must have, whatever the row's figure counts.
double needed(const Subject& one) {
  return cost::Estimator(one.model, *one.pricing)
      .memory_peak(one.plan, {cost::MemoryKind::needed, one.memory.zero_bubble});
}

bool fits(const Subject& one) {
  return needed(one) <= capacity_of(one);
}

/// What a row leaves open about memory.
struct Open {
  bool recompute = false, zero = false;
};
Open open_of(const Setup& setup, const plan::PlanSpec& spec) {
  return {setup.recompute.empty() && spec.recomputation.what == plan::Recompute::none,
          !setup.zero_stage && setup.fsdp_sharding.empty() && spec.mesh.replicas() > 1 && spec.states.zero_stage == 0};
}

/// The subject, which recomputes all layers, with the fewest recomputed that fit; nothing if it needs all.
std::optional<Subject> with_fewest(const Subject& full) {
  cost::Estimator estimator(full.model, *full.pricing);
  auto some = fewest_recomputed(estimator, full.plan, full.model, full.pricing->shared_cluster(), capacity_of(full));
  if (!some) return std::nullopt;
  Subject out = full;
  out.plan = std::move(*some);
  return out;
}

}  // namespace

bool outgrows(const Subject& one) {
  return capacity_of(one) > 0 && !fits(one);
}

std::shared_ptr<const Subject> needing_least(const Setup& setup, const Subject& stated,
                                             const std::function<base::Result<Subject>(const Setup&)>& translate) {
  Open open = open_of(setup, stated.plan.spec());
  // A compiler repeats what does not fit, whatever it was told to keep.
  const bool compiled = cost::number_of(stated.pricing->stack(), "stack.rematerializes", 0) != 0;
  open.recompute = open.recompute || (compiled && stated.plan.spec().recomputation.what != plan::Recompute::full);
  if (!open.recompute && !open.zero) return nullptr;
  Setup other = setup;
  if (open.recompute) other.recompute = "full";
  if (open.zero) other.zero_stage = 1;
  auto one = translate(other);
  if (!one || needed(*one) >= needed(stated)) return nullptr;
  return std::make_shared<const Subject>(std::move(*one));
}

std::shared_ptr<const Subject> made_to_fit(const Setup& setup, const Subject& stated,
                                           const std::function<base::Result<Subject>(const Setup&)>& translate) {
  const auto [recompute_open, zero_open] = open_of(setup, stated.plan.spec());
  if ((!recompute_open && !zero_open) || capacity_of(stated) <= 0) return nullptr;
  const double without = needed(stated);
  if (without <= capacity_of(stated)) return nullptr;
  const auto taken = [&](Subject one, const std::string& what) {
    one.notes.push_back(
        fmt::format("the run ran, but is predicted to need {} of {}: it may have had {}, which the row leaves open",
                    base::human(base::Bytes{without}), base::human(base::Bytes{capacity_of(stated)}), what));
    return std::make_shared<const Subject>(std::move(one));
  };
  if (zero_open) {
    Setup other = setup;
    other.zero_stage = 1;
    if (auto one = translate(other); one && fits(*one)) return taken(std::move(*one), "ZeRO 1");
  }
  if (!recompute_open) return nullptr;
  std::optional<Subject> least;  // what needs least, if nothing is predicted to fit
  for (const bool zero : {false, true}) {
    if (zero && !zero_open) break;
    const std::string also = zero ? " and ZeRO 1" : "";
    Setup other = setup;
    if (zero) other.zero_stage = 1;
    other.recompute = "selective";
    if (auto one = translate(other); one && fits(*one)) return taken(std::move(*one), "selective recomputation" + also);
    other.recompute = "full";
    auto full = translate(other);
    if (!full) continue;
    if (!fits(*full)) {
      if (needed(*full) < (least ? needed(*least) : without)) least = std::move(*full);
      continue;
    }
    auto some = full->pricing->stack().can.recompute_layers ? with_fewest(*full) : std::nullopt;
    if (!some) return taken(std::move(*full), "full recomputation" + also);
    const std::int64_t layers = some->plan.spec().recomputation.layers.value_or(0);
    return taken(std::move(*some), fmt::format("{} of each stage recomputed{}", base::count_of(layers, "layer"), also));
  }
  if (!least) return nullptr;
  return taken(std::move(*least), "full recomputation, which is predicted not to fit either");
}

}  // namespace orrery::sim
