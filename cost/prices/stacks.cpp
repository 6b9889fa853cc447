/// Stacks that replace others.
#include "cost/prices/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cost/parameters/as_run.h"

namespace orrery::cost {

namespace {

bool has(const std::vector<int>& stages, int stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

}  // namespace

Stacks::Stacks(Stack alone) {
  all_.push_back(std::move(alone));
}

Stacks::Stacks(Stack named, const Find& find, const plan::Software& software) : Stacks(std::move(named)) {
  const auto found = [&](const std::string& name) { return name.empty() ? nullptr : find(name); };
  for (std::size_t zero = 0; zero < kStages; ++zero) {
    const Stack* other = found(all_.front().by_zero.at(zero));
    const std::size_t place = other != nullptr ? add(*other) : 0;
    const Stack* within = found(all_[place].within_node);
    places_[1][zero] = place;
    places_[0][zero] = within != nullptr ? add(*within) : place;
  }
  for (Stack& stack : all_) stack = as_run(stack, software, find);
}

std::size_t Stacks::add(const Stack& stack) {
  const auto same = std::find_if(all_.begin(), all_.end(), [&](const Stack& one) { return one.name == stack.name; });
  if (same != all_.end()) return static_cast<std::size_t>(same - all_.begin());
  all_.push_back(stack);
  return all_.size() - 1;
}

std::size_t Stacks::place_of(int zero_stage, bool several_nodes) const {
  return places_[several_nodes ? 1 : 0][std::min(static_cast<std::size_t>(std::max(0, zero_stage)), kStages - 1)];
}

const Stack& Stacks::of(int zero_stage, const clusters::Cluster& cluster) const {
  return all_[place_of(zero_stage, cluster.size() > cluster.devices_per_node)];
}

Prices::Prices(const std::shared_ptr<const clusters::Cluster>& cluster, Stacks stacks,
               const std::vector<Calibration>& calibrations, Intervals intervals)
    : stacks_(std::move(stacks)), intervals_(std::move(intervals)) {
  all_.reserve(stacks_.all().size());
  for (const Stack& stack : stacks_.all()) all_.emplace_back(cluster, stack, calibrations);
}

Prices::Prices(const Pricing& alone) : stacks_(alone.stack()), all_{alone} {}

std::size_t Prices::place_of(const plan::PlanSpec& spec) const {
  const clusters::Cluster& cluster = named().cluster();
  return stacks_.place_of(spec.states.zero_stage, cluster.size() > cluster.devices_per_node);
}

std::string usual_stack(const clusters::Cluster& cluster, const models::Model& model,
                        const std::vector<plan::Order>& orders) {
  using clusters::Architecture;
  constexpr int kMostOnABoard = 8;  // more share one NVLink domain only in a rack
  const clusters::Device& device = cluster.device();
  if (device.kind == clusters::DeviceKind::cpu) return "orrery-cpu";
  if (model.recommender) return kGenericRecommender;
  if (device.architecture == Architecture::generic) return kGenericEager;
  const auto is_dualpipe = [](plan::Order o) { return o == plan::Order::dualpipe || o == plan::Order::dualpipe_v; };
  if (model.experts.any() && !orders.empty() && std::all_of(orders.begin(), orders.end(), is_dualpipe))
    return "deepseek-2024";
  if (model.experts.any() && device.architecture == Architecture::blackwell && cluster.devices_per_node > kMostOnABoard)
    return "megatron-bridge";
  return device.architecture == Architecture::volta ? "megatron-2021" : "megatron-core";
}

bool has_replicas_beside(const plan::Mesh& mesh) {
  return mesh.replicas() > 1 && mesh.ranks() > mesh.data;
}

std::vector<Lacking> beyond(const Stacks& stacks, const plan::PlanSpec& spec) {
  const Stack& named = stacks.named();
  const Capabilities& can = named.can;
  std::vector<Lacking> out;
  const auto stage = static_cast<std::size_t>(std::max(0, spec.states.zero_stage));
  const bool stood_for = stage < named.by_zero.size() && !named.by_zero.at(stage).empty();
  const bool alone = has(can.zero_stages, spec.states.zero_stage);
  const bool piped = has(can.pipelined_zero_stages, spec.states.zero_stage);
  const bool in_pipeline = spec.mesh.pipeline > 1;
  if (!stood_for && !alone && !(in_pipeline && piped))
    out.push_back({fmt::format("ZeRO {}", spec.states.zero_stage), "zero_stage"});
  else if (in_pipeline && alone && !piped)
    out.push_back({fmt::format("ZeRO {} in a pipeline", spec.states.zero_stage), "zero_stage"});
  const auto add = [&](bool lacks, const char* what, const char* key) {
    if (lacks) out.push_back({what, key});
  };
  add(spec.mesh.tensor > 1 && !can.tensor, "tensor parallelism", "tensor");
  add(spec.mesh.pipeline > 1 && !can.pipeline, "pipelines", "pipeline");
  add(spec.stages.virtual_stages > 1 && !can.virtual_stages, "interleaved stages", "virtual_stages");
  add(spec.mesh.context > 1 && !can.context, "context parallelism", "context");
  add(spec.mesh.expert > 1 && !can.expert, "expert parallelism", "expert");
  add(spec.mesh.sequence_parallel && !can.sequence_parallel, "sequence parallelism", "sequence_parallel");
  add(spec.mesh.tensor > 1 && !spec.mesh.sequence_parallel && !can.whole_rows,
      "tensor parallelism without sequence parallelism", "sequence_parallel");
  add(spec.states.zero_stage == 0 && has_replicas_beside(spec.mesh) && !can.replicas_beside,
      "replicas without ZeRO beside other parallelism", "zero_stage");
  add(spec.recomputation.partition_checkpoints && !can.partition_checkpoints, "partitioned checkpoints",
      "partition_checkpoints");
  add(spec.recomputation.layers.has_value() && !can.recompute_layers, "recomputation of some blocks",
      "recompute_layers");
  return out;
}

}  // namespace orrery::cost
