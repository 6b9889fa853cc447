// Loads of experts: of a job, and of a run's log.
#include "plan/spec/expert_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/units.h"
#include "models/layers/expert_slots.h"
#include "models/loads.h"
#include "plan/spec/words.h"

namespace orrery::plan {

namespace {

constexpr const char* kLogCode = "E0128";
constexpr double kMostZipf = 10;          // beyond, one expert has all
constexpr std::size_t kLoggedSteps = 64;  // of a log: its last
constexpr double kMostLoad = 1e18;

using Loads = std::vector<double>;

/// Loads of one layer in one step; empty if there are more experts than a log lists one by one.
Loads loads_of_layer(base::JsonReader& in) {
  Loads loads;
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key != "tokens") {
      in.skip();
      continue;
    }
    in.open_array();
    while (in.item()) loads.push_back(in.number(0, kMostLoad));
  }
  return loads;
}

std::vector<Loads> loads_of_step(base::JsonReader& in) {
  std::vector<Loads> layers;
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key != "expert_load") {
      in.skip();
      continue;
    }
    in.open_object();
    for (std::string layer; in.key(layer);) layers.push_back(loads_of_layer(in));
  }
  in.finish();
  return layers;
}

base::Diagnostic wrong_log(const std::string& name, int line, std::string message) {
  base::Diagnostic wrong;
  wrong.code = kLogCode;
  wrong.where = {name, line, line > 0 ? 1 : 0, 1};
  wrong.message = std::move(message);
  wrong.help = "expert_loads: {from: RUN} takes the folder of a run of this model, which contains metrics.jsonl";
  return wrong;
}

}  // namespace

ExpertLoads read_loads(const base::Cursor& at) {
  ExpertLoads loads;
  if (!at.exists()) return loads;
  if (!at.is_map()) {
    (void)at.choice({"balanced"});
    return loads;
  }
  const base::Cursor zipf = at.optional("zipf"), from = at.optional("from");
  if (zipf.exists() == from.exists()) {
    at.error("E0121", "`expert_loads` is one of: balanced, a law, or the loads measured in a run",
             "expert_loads: {zipf: 0.7}, or expert_loads: {from: RUN}");
    return loads;
  }
  if (zipf.exists()) loads.zipf = zipf.number(0, kMostZipf, 0);
  loads.from = from.text();
  return loads;
}

std::string loads_text(const ExpertLoads& loads) {
  if (loads.zipf) return fmt::format("{{zipf: {}}}", *loads.zipf);
  return loads.from.empty() ? std::string() : fmt::format("{{from: {}}}", base::yaml_text(loads.from));
}

Fullest fullest_of(const ExpertLoads& loads, const models::Experts& experts, int ranks) {
  if (ranks < 2 || !experts.any() || experts.count % ranks != 0) return {};
  if (loads.zipf) {
    const double both =
        models::fullest_over_mean(models::zipf_loads(experts.count, experts.chosen, *loads.zipf), ranks);
    return {both, both};
  }
  if (loads.layers.empty()) return {};
  Fullest fullest{0, 1};
  for (const Loads& layer : loads.layers) {
    const double one = models::fullest_in_order(layer, ranks);
    fullest.mean += one / static_cast<double>(loads.layers.size());
    fullest.most = std::max(fullest.most, one);
  }
  return fullest;
}

void take_loads(PlanSpec& spec, const Job& job, const models::Experts& experts) {
  const Fullest fullest = fullest_of(job.expert_loads, experts, spec.mesh.expert);
  const double imbalance = std::clamp(fullest.mean, 1.0, kMostBound);
  spec.tokens.imbalance = job.bounds.tokens.imbalance.value_or(imbalance);
  const double room = std::max({PlanSpec{}.tokens.bound, spec.tokens.imbalance, std::min(fullest.most, kMostBound)});
  spec.tokens.bound = job.bounds.tokens.bound.value_or(room);
}

namespace {

models::ExpertSlot slot_of(const PlanSpec& spec, const models::Experts& experts) {
  // Ranks that split an expert have one another's rows.
  const std::int64_t rows =
      spec.shape.micro_batch * spec.tokens_per_rank() * spec.mesh.expert_ways() / spec.mesh.tensor;
  return models::expert_slot(experts, {rows, spec.shape.micro_batch, spec.shape.sequence, spec.mesh.expert});
}

}  // namespace

std::int64_t most_passes_held(const PlanSpec& spec) {
  const std::int64_t m = spec.micro_batches(), p = spec.mesh.pipeline, v = spec.stages.virtual_stages;
  switch (spec.stages.order) {
    case Order::gpipe:
    case Order::custom: return m * v;
    case Order::one_f_one_b: return v == 1 ? std::min(m, p) : std::min(m * v, (v - 1) * p + 2 * (p - 1) + 1);
    case Order::pipedream:
    case Order::pipedream_vertical:
    case Order::pipedream_2bw:
    case Order::zb_h1: return std::min(m, p);
    case Order::zb_h2: return std::min(m, 2 * p - 1);
    case Order::zb_v:
    case Order::dualpipe_v: return std::min(m * v, v * p + 1);
    case Order::dualpipe: return std::min(m, p + 1);
  }
  return m * v;
}

double slot_bytes_that_hold(const PlanSpec& spec, const models::Model& model) {
  const models::Experts& e = model.experts;
  const std::int64_t rows = slot_of(spec, e).most * spec.mesh.expert;
  // Rows as sent, as arrived, as made and as come back; before and after the activation.
  const std::int64_t inner = models::traits_of(model.activation).gated ? 3 : 2;
  const std::int64_t columns = 4 * e.columns(model.hidden) + inner * (e.hidden / spec.mesh.expert_ways());
  const std::int64_t layers = (model.expert_layers(model.blocks()) + spec.places() - 1) / spec.places();  // of a chunk
  const bool again = spec.recomputation.what == Recompute::full && !spec.recomputation.layers;
  const std::int64_t kept = again ? 1 : layers * most_passes_held(spec);
  const models::DType type = spec.numerics.precision;
  const std::int64_t bytes = type == models::DType::fp32 || type == models::DType::tf32 ? 4 : 2;
  return static_cast<double>((kept + 1) * rows * columns * bytes);
}

void take_room(PlanSpec& spec, const Job& job, const models::Model& model, const clusters::Device& device) {
  if (spec.mesh.expert < 2 || !model.experts.any() || job.bounds.tokens.bound) return;
  const double holds = slot_of(spec, model.experts).bound_that_holds();
  if (holds <= spec.tokens.bound || slot_bytes_that_hold(spec, model) > kSlotShare * device.memory.value) return;
  spec.tokens.bound = std::min(holds, kMostBound);
}

base::Result<std::vector<std::vector<double>>> loads_of_log(std::string_view text, std::string name,
                                                            const models::Experts& experts,
                                                            std::int64_t expert_layers) {
  std::deque<std::vector<Loads>> steps;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    base::JsonReader in(line, name);
    std::vector<Loads> step = loads_of_step(in);
    if (in.failed()) {
      base::Diagnostic wrong = in.errors().front();
      wrong.code = kLogCode;
      wrong.where.line = number;
      return base::fail({std::move(wrong)});
    }
    if (step.empty()) continue;
    const auto wanted = static_cast<std::size_t>(expert_layers);
    if (step.size() != wanted)
      return base::fail({wrong_log(name, number,
                                   fmt::format("loads of {}, but {} of the model's layers have experts",
                                               base::count_of(std::ssize(step), "layer"), wanted))});
    for (const Loads& layer : step)
      if (layer.size() != static_cast<std::size_t>(experts.count))
        return base::fail(
            {wrong_log(name, number,
                       layer.empty() ? "loads that are not per expert: the run has too many experts to list"
                                     : fmt::format("loads of {}, but the model has {}",
                                                   base::count_of(std::ssize(layer), "expert"), experts.count))});
    steps.push_back(std::move(step));
    if (steps.size() > kLoggedSteps) steps.pop_front();
  }
  if (steps.empty()) return base::fail({wrong_log(name, 0, "none of its steps records the loads of its experts")});
  std::vector<Loads> all;
  for (std::vector<Loads>& step : steps) std::move(step.begin(), step.end(), std::back_inserter(all));
  return all;
}

}  // namespace orrery::plan
