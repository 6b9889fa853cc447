// Variations of a plan, each made by make_plan and replayed.
#include "sim/explain/what_if.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "clusters/read.h"
#include "sim/search/search.h"
#include "sim/simulate.h"

namespace orrery::sim {
namespace {

using cost::Variation;
using ClusterPointer = std::shared_ptr<const clusters::Cluster>;
constexpr double kMoreMemory = 10e9;  // bytes

ClusterPointer pointer_to(const clusters::Cluster& cluster) {
  return std::make_shared<const clusters::Cluster>(cluster);
}

Variation variation_on(const Question& q, std::string change, plan::PlanSpec spec, const ClusterPointer& cluster) {
  Variation out{std::move(change), {}, {}, {}};
  const auto made = plan::make_plan(q.model, cluster, std::move(spec));
  if (!made) {
    out.refusal = made.error().front().message;
    out.code = made.error().front().code;
    return out;
  }
  const cost::Pricing pricing(cluster, q.stacks.of(made->spec().states.zero_stage, *cluster), q.calibrations);
  out.prediction = simulate(*made, pricing, {.spans = false}).prediction;
  const bool several_nodes = cluster->size() > cluster->devices_per_node;
  const auto spread =
      cost::spread_of(q.intervals, pricing.stack(), several_nodes, cost::setting_of(*cluster, *q.model));
  if (spread && cluster->device().kind != clusters::DeviceKind::cpu)
    out.fits_probability = cost::fits_probability(out.prediction->memory_peak_bytes,
                                                  out.prediction->memory_capacity_bytes, spread->memory);
  out.least_probability = q.job.fits_probability;
  return out;
}

/// The best plan that the job's search finds on another machine, replayed.
Variation searched(const Question& q, std::string change, const ClusterPointer& cluster) {
  SearchOptions options;
  options.top = 1;
  options.replay = 4;
  options.stop = q.stop;
  options.threads = q.threads;
  plan::Job job = q.job;
  job.sequence = q.spec.shape.sequence;
  const cost::SearchResult found =
      search(q.model, cluster, job, cost::Prices(cluster, q.stacks, q.calibrations, q.intervals), options);
  Variation out{std::move(change), {}, {}, {}};
  if (!found.plans.empty())
    out.prediction = found.plans.front();
  else
    out.refusal = found.nearest.empty() ? "no plan within the job's bounds" : found.nearest.front();
  return out;
}

/// Changes a split's degrees; stages and other fields that depend on them return to the planner's defaults.
plan::PlanSpec with_mesh(plan::PlanSpec spec, int data, int tensor, int pipeline) {
  if (pipeline != spec.mesh.pipeline) {
    spec.stages.layers_per_stage.clear();
    spec.stages.virtual_stages = pipeline == 1 ? 1 : spec.stages.virtual_stages;
  }
  if (tensor == 1) spec.mesh.sequence_parallel = false;
  if (tensor > 1 && spec.mesh.tensor == 1) spec.mesh.sequence_parallel = true;
  if (data == 1) spec.states.zero_stage = 0;
  spec.mesh.data = data, spec.mesh.tensor = tensor, spec.mesh.pipeline = pipeline;
  return spec;
}

struct Neighbour {
  std::string change;
  plan::PlanSpec spec;
};

/// Steps through the mesh that keep the number of ranks: one degree doubled, another halved.
void add_meshes(std::vector<Neighbour>& steps, const plan::PlanSpec& s) {
  const auto add = [&](int data, int tensor, int pipeline) {
    steps.push_back({fmt::format("DP {} TP {} PP {}", data, tensor, pipeline), with_mesh(s, data, tensor, pipeline)});
  };
  const plan::Mesh& m = s.mesh;
  if (m.data % 2 == 0) add(m.data / 2, m.tensor * 2, m.pipeline), add(m.data / 2, m.tensor, m.pipeline * 2);
  if (m.tensor % 2 == 0) add(m.data * 2, m.tensor / 2, m.pipeline), add(m.data, m.tensor / 2, m.pipeline * 2);
  if (m.pipeline % 2 == 0) add(m.data * 2, m.tensor, m.pipeline / 2), add(m.data, m.tensor * 2, m.pipeline / 2);
}

void add_recomputation(std::vector<Neighbour>& steps, const plan::PlanSpec& s) {
  using plan::Recompute;
  const auto add = [&](Recompute kind, std::optional<std::int64_t> layers, const std::string& change) {
    plan::PlanSpec other = s;
    other.recomputation.what = kind, other.recomputation.layers = layers, other.recomputation.modules = {};
    steps.push_back({change, other});
  };
  const std::int64_t most = s.stages.layers_per_stage.empty() ? 0 : s.stages.layers_per_stage.front();
  if (s.recomputation.what == Recompute::full && most > 1) {
    const std::int64_t now = s.recomputation.layers.value_or(most);
    if (now > 1) add(Recompute::full, now - 1, fmt::format("recompute {} of {} layers", now - 1, most));
  }
  if (s.recomputation.what == Recompute::full) add(Recompute::selective, std::nullopt, "recompute only attention");
  if (s.recomputation.what != Recompute::none) add(Recompute::none, std::nullopt, "recompute nothing");
  if (s.recomputation.what == Recompute::none) add(Recompute::selective, std::nullopt, "recompute attention");
  if (s.recomputation.what != Recompute::full) add(Recompute::full, std::nullopt, "recompute every layer");
}

std::vector<Neighbour> steps_from(const plan::PlanSpec& s) {
  std::vector<Neighbour> steps;
  add_recomputation(steps, s);
  const auto add = [&](const std::string& change, const auto& edit) {
    plan::PlanSpec other = s;
    edit(other);
    steps.push_back({change, other});
  };
  const std::int64_t per_replica = s.shape.batch / std::max(1, s.mesh.data);
  if (s.shape.micro_batch * 2 <= per_replica)
    add(fmt::format("micro-batch {}", s.shape.micro_batch * 2), [](auto& o) { o.shape.micro_batch *= 2; });
  if (s.shape.micro_batch % 2 == 0)
    add(fmt::format("micro-batch {}", s.shape.micro_batch / 2), [](auto& o) { o.shape.micro_batch /= 2; });
  if (s.mesh.data * s.mesh.context > 1) {
    if (s.states.zero_stage < 3)
      add(fmt::format("ZeRO {}", s.states.zero_stage + 1), [](auto& o) { ++o.states.zero_stage; });
    if (s.states.zero_stage > 0)
      add(fmt::format("ZeRO {}", s.states.zero_stage - 1), [](auto& o) { --o.states.zero_stage; });
  }
  if (s.mesh.pipeline > 1) {
    const auto chunks = [&](int n) {
      add(fmt::format("VP {}", n), [n](auto& o) { o.stages.virtual_stages = n, o.stages.layers_per_stage.clear(); });
    };
    chunks(s.stages.virtual_stages * 2);
    if (s.stages.virtual_stages % 2 == 0) chunks(s.stages.virtual_stages / 2);
  }
  if (s.tokens.imbalance > 1) add("experts loaded evenly", [](auto& o) { o.tokens.imbalance = 1; });
  add_meshes(steps, s);
  return steps;
}

/// Whether so many replicas of the plan share its batch equally, in whole micro-batches and, where stages have several
/// chunks, in whole rounds of them (rule P18).
bool share_batch(const plan::PlanSpec& spec, std::int64_t replicas) {
  const std::int64_t round = spec.stages.virtual_stages > 1 ? spec.mesh.pipeline : 1;
  return spec.shape.batch % (replicas * spec.shape.micro_batch * round) == 0;
}

/// The smallest number of devices above the cluster's, in whole nodes, on which more replicas of the plan share its
/// batch equally; 0: there is none.
std::int64_t next_useful(const plan::PlanSpec& spec, const clusters::Cluster& cluster) {
  const std::int64_t replica = spec.mesh.ranks() / std::max(1, spec.mesh.data);
  for (std::int64_t data = spec.mesh.data + 1; data <= spec.shape.batch; ++data)
    if (share_batch(spec, data) && data * replica > cluster.size() && data * replica % cluster.devices_per_node == 0)
      return data * replica;
  return 0;
}

/// Why more devices are of no use to the plan's split; empty if they make whole replicas that share the batch equally.
std::string left_idle(const plan::PlanSpec& spec, const clusters::Cluster& cluster, int devices) {
  const int replica = spec.mesh.ranks() / std::max(1, spec.mesh.data);
  const bool whole = devices % replica == 0;
  if (whole && share_batch(spec, devices / replica)) return "";
  const std::int64_t next = next_useful(spec, cluster);
  return (whole ? fmt::format("{} replicas do not share a batch of {} equally", devices / replica, spec.shape.batch)
                : fmt::format("{} devices are no whole number of replicas of {}", devices, replica)) +
         (next > 0 ? fmt::format("; next useful size {}", next) : "");
}

}  // namespace

std::optional<clusters::Cluster> machine_with(const clusters::Cluster& cluster,
                                              const std::vector<base::Override>& overrides) {
  if (!cluster.shape) return std::nullopt;
  const base::Document document = base::Document::parse(clusters::write_cluster(cluster), "cluster", overrides);
  clusters::Cluster out =
      clusters::read_cluster(document.root(), [](const std::string&) { return std::optional<std::string>(); });
  (void)document.close();
  if (document.findings().failed()) return std::nullopt;
  return out;
}

std::vector<Variation> with_other_machines(const Question& q, const GoOn& go_on) {
  const clusters::Cluster& cluster = *q.cluster;
  std::vector<Variation> out;
  const auto nodes = clusters::resized(cluster, cluster.size() + cluster.devices_per_node);
  if (nodes) {
    if (!go_on("one more node")) return out;
    out.push_back(searched(q, "one more node", pointer_to(*nodes)));
    if (out.back().prediction)
      out.back().refusal = left_idle(q.spec, cluster, nodes->size());
    else if (const auto twice = clusters::resized(cluster, 2 * cluster.size()); twice && go_on("twice the nodes"))
      out.push_back(searched(q, "twice the nodes", pointer_to(*twice)));
  }
  if (!go_on("10 GB more memory")) return out;
  using base::UnitKind;
  const double memory = cluster.device().memory.value + kMoreMemory;
  if (const auto larger = machine_with(cluster, {{"device.memory", base::quantity_text(memory, UnitKind::bytes)}}))
    out.push_back(searched(q, "10 GB more memory", pointer_to(*larger)));
  if (cluster.nodes > 1 && cluster.shape && cluster.shape->node.nics > 0 && go_on("twice the NIC bandwidth")) {
    const double nic = 2 * cluster.shape->node.nic_bandwidth.value;
    if (const auto faster =
            machine_with(cluster, {{"node.nics.bandwidth", base::quantity_text(nic, UnitKind::bytes_per_second)}}))
      out.push_back(variation_on(q, "twice the NIC bandwidth", q.spec, pointer_to(*faster)));
  }
  return out;
}

std::vector<Variation> neighbours(const Question& q, const GoOn& go_on) {
  std::vector<Variation> out;
  if (q.model->recommender) return out;
  for (const Neighbour& one : steps_from(q.spec)) {
    if (!go_on(one.change)) break;
    out.push_back(variation_on(q, one.change, one.spec, q.cluster));
  }
  return out;
}

}  // namespace orrery::sim
