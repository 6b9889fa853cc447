// Tries the job with one bound less, or with something offloaded.
#include "sim/search/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/units.h"
#include "plan/spec/fields.h"
#include "plan/spec/rules.h"
#include "sim/search/loss_chunks.h"
#include "sim/search/space.h"

namespace orrery::sim {

namespace {

/// Whether any point of `job`'s space fits; stops at the first.
bool any_fits(const Model& model, const Cluster& cluster, const plan::Job& job, const cost::Prices& prices,
              double capacity) {
  Estimators estimators(model, prices);
  for (const plan::PlanSpec& spec : space_of(*cluster, *model, job, prices.stacks())) {
    const auto made = plan::make_plan(model, cluster, spec);
    if (!made) continue;
    cost::Estimator& estimator = estimators.of(spec);
    if (estimator.least_memory(*made) > capacity) continue;
    const double memory = estimator.memory_peak(*made);
    const bool fits =
        memory <= capacity || (may_chunk(job, estimators.stack(spec)) &&
                               loss_chunks_that_fit(estimator, *made, model, cluster, memory, capacity) > 1);
    if (fits && estimator.fits_beside(*made)) return true;
  }
  return false;
}

/// The least that must leave the devices for some plan to fit; empty if nothing helps, or if the job itself says what
/// may leave. Only suggested, not searched: a step may take several times as long.
std::string offloading(const Model& model, const Cluster& cluster, const plan::Job& job, const cost::Prices& prices,
                       double capacity) {
  using plan::Space;
  const plan::Bounds& b = job.bounds;
  if (!b.offload.activations.empty() || !b.offload.optimizer.empty() || !b.offload.parameters.empty()) return {};
  const bool gpu = cluster->device().kind != clusters::DeviceKind::cpu;
  if (gpu && cluster->host_memory.capacity.value == 0) return {};
  struct Way {
    Space activations, optimizer, parameters;
  };
  std::vector<Way> ways = {{Space::host, Space::device, Space::device},
                           {Space::device, Space::host, Space::device},
                           {Space::host, Space::host, Space::device},
                           {Space::host, Space::host, Space::host}};
  if (!gpu || cluster->nvme.capacity.value > 0)
    ways.insert(ways.end(), {{Space::host, Space::nvme, Space::device},
                             {Space::host, Space::nvme, Space::host},
                             {Space::host, Space::nvme, Space::nvme}});
  for (const Way& way : ways) {
    plan::Job leaving = job;
    leaving.bounds.offload.activations = {way.activations};
    leaving.bounds.offload.optimizer = {way.optimizer};
    leaving.bounds.offload.parameters = {way.parameters};
    if (!any_fits(model, cluster, leaving, prices, capacity)) continue;
    std::string what;
    const auto name = [&](const char* key, Space space) {
      if (space != Space::device) what += fmt::format("{}{}: {}", what.empty() ? "" : ", ", key, plan::name_of(space));
    };
    name("activations", way.activations);
    name("optimizer", way.optimizer);
    name("parameters", way.parameters);
    return fmt::format("offload would make a plan possible, at the cost of copies: plan.offload: {{{}}}", what);
  }
  return {};
}

/// Pairs of mesh degrees whose bounds, dropped together, let some plan fit: a single degree rarely helps, because the
/// product must fill the cluster.
std::vector<std::string> relaxed_pairs(const Model& model, const Cluster& cluster, const plan::Job& job,
                                       const cost::Prices& prices, double capacity) {
  using Degree = std::vector<int> plan::MeshBounds::*;
  const std::pair<const char*, Degree> degrees[] = {{"data", &plan::MeshBounds::data},
                                                    {"tensor", &plan::MeshBounds::tensor},
                                                    {"pipeline", &plan::MeshBounds::pipeline},
                                                    {"context", &plan::MeshBounds::context}};
  std::vector<std::string> out;
  for (auto a = std::begin(degrees); a != std::end(degrees); ++a)
    for (auto b = std::next(a); b != std::end(degrees); ++b) {
      plan::Job freed = job;
      std::vector<int>&first = freed.bounds.mesh.*(a->second), &second = freed.bounds.mesh.*(b->second);
      if (first.empty() || second.empty()) continue;
      first.clear();
      second.clear();
      if (any_fits(model, cluster, freed, prices, capacity))
        out.push_back(fmt::format("leaving plan.{} and plan.{} free would make a plan possible", a->first, b->first));
    }
  return out;
}

/// Bounds of the job of which each alone, if dropped, lets some plan fit.
std::vector<std::string> relaxations(const Model& model, const Cluster& cluster, const plan::Job& job,
                                     const cost::Prices& prices, double capacity) {
  std::vector<std::string> out;
  plan::for_each_field(plan::kChosenFields, [&](const auto& field) {
    if (*field.group != '\0') return;
    plan::Job freed = job;
    auto& bound = field.of(freed.bounds);
    if (std::exchange(bound, {}) == std::remove_reference_t<decltype(bound)>{}) return;
    if (any_fits(model, cluster, freed, prices, capacity))
      out.push_back(fmt::format("leaving plan.{} free would make a plan possible", field.key));
  });
  if (std::string line = offloading(model, cluster, job, prices, capacity); !line.empty())
    out.push_back(std::move(line));
  return out;
}

/// What the plans nearest to fitting need, and what would hold them.
void say_needs(const Cluster& cluster, double capacity, const cost::Room& asked, const NearMisses& misses,
               std::vector<std::string>& needs, std::vector<std::string>& remedies) {
  const auto text = [](double bytes) { return base::human(base::Bytes{bytes}); };
  if (const NearMiss& device = misses.device; std::isfinite(device.memory)) {
    needs.push_back(fmt::format("the plan that needs the least memory, {}, needs {} of a device's {}",
                                plan::describe(device.spec), text(device.memory), text(capacity)));
    const double surely = device.memory * capacity / asked.of(device.spec);
    const bool more = cluster->inter.bandwidth.value > 0 || cluster->size() < cluster->devices_per_node;
    remedies.push_back(fmt::format("devices with {} each{} would do; a shorter sequence may do too", text(surely),
                                   more ? ", or more devices," : ""));
  }
  const auto beside = [&](const NearMiss& miss, base::Bytes has, const char* what) {
    if (!std::isfinite(miss.memory)) return;
    needs.push_back(fmt::format("{} fits the devices, but offloads {} to a node's {} of {}", plan::describe(miss.spec),
                                text(miss.memory), what, base::human(has)));
    remedies.push_back(fmt::format("{} of {} a node would do", what, text(miss.memory)));
  };
  if (needs.empty() && std::isfinite(misses.both.memory) && !std::isfinite(misses.host.memory))
    needs.push_back(fmt::format("{} needs {} of a device's {}, and more beside them than a node has",
                                plan::describe(misses.both.spec), text(misses.both.memory), text(capacity)));
  beside(misses.host, cluster->host_memory.capacity, "host memory");
  beside(misses.nvme, cluster->nvme.capacity, "drives");
}

}  // namespace

std::optional<std::string> most_frequent(const std::map<std::string, std::int64_t>& rejected) {
  const auto most = std::max_element(rejected.begin(), rejected.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == rejected.end() ? std::nullopt : std::optional(most->first);
}

std::vector<std::string> nearest(const Model& model, const Cluster& cluster, const plan::Job& job,
                                 const cost::Prices& prices, double capacity, const cost::Room& asked,
                                 const NearMisses& misses, const std::map<std::string, std::int64_t>& rejected) {
  std::vector<std::string> out;
  if (model->positions == models::Positions::learned && job.sequence > model->max_sequence) {
    plan::Job shorter = job;
    shorter.sequence = model->max_sequence;
    const bool does = any_fits(model, cluster, shorter, prices, capacity);
    return {
        does ? fmt::format("sequence: {} would make a plan possible; the model has no more positions",
                           model->max_sequence)
             : fmt::format("the model has {} positions: a longer sequence needs another model", model->max_sequence)};
  }
  std::vector<std::string> remedies;
  say_needs(cluster, capacity, asked, misses, out, remedies);
  const std::size_t said = out.size();
  for (std::string& line : relaxations(model, cluster, job, prices, capacity)) out.push_back(std::move(line));
  if (out.size() == said) out.insert(out.end(), remedies.begin(), remedies.end());
  if (out.empty()) out = relaxed_pairs(model, cluster, job, prices, capacity);
  if (!out.empty()) return out;
  const auto most = most_frequent(rejected);
  if (!most) {
    out.push_back(
        fmt::format("no data x tensor x pipeline within plan: makes {} for a batch of {}; change the batch "
                    "or the number of devices",
                    base::count_of(cluster->size(), "rank"), job.batch));
    return out;
  }
  const plan::Rule* rule = plan::find_rule(most->substr(0, most->find(' ')));
  const std::string remedy = rule != nullptr ? plan::help_of(*rule) : std::string();
  const std::string other =
      fmt::format("change the batch ({}), the number of devices ({}), or the model", job.batch, cluster->size());
  out.push_back(
      fmt::format("the most frequent obstacle is {}; {}", *most, remedy.empty() ? other : remedy + "; or " + other));
  return out;
}

}  // namespace orrery::sim
