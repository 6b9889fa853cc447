/// A message of each lane.
#include "cost/estimate/stage_streams.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cost/estimate/lanes.h"
#include "cost/estimate/step_end.h"
#include "plan/outline/reduction.h"

namespace orrery::cost {

namespace {

using plan::Stream;

/// The largest message of each lane.
using ByLane = std::map<Lane, StreamMessage>;

void add(ByLane& out, Lane lane, StreamMessage message) {
  if (message.members.size() < 2) return;
  const auto [known, fresh] = out.try_emplace(lane, message);
  if (!fresh && message.bytes.value > known->second.bytes.value) known->second = std::move(message);
}

/// What a layer's gradients and, under ZeRO 3, its parameters send.
void add_of_data(ByLane& out, const LayerCosts& c, const plan::PlanSpec& spec, const StageGroups& groups) {
  const auto add_of = [&](const plan::Outline& outline) {
    for (const plan::Item& item : outline.items) {
      if (!item.is_message()) continue;
      const base::Bytes bytes{static_cast<double>(outline.message_bytes(item))};
      add(out, lane_of(item.over, item.experts),
          {Stream::data, item.kind, bytes, groups.of(item.experts).over(item.over)});
    }
  };
  const plan::Reduces when = plan::zero_of(spec) >= 2 ? plan::Reduces::in_every_pass : reduces(spec);
  for (const BucketSize& bucket : buckets_of({{&c, 1}}, spec)) {
    add_of(plan::gathered_in_pass(bucket, spec));
    add_of(plan::reduction_of(bucket, spec, when));
  }
  for (const BucketSize& bucket : frozen_buckets_of({{&c, 1}}, spec)) add_of(plan::gathered_in_pass(bucket, spec));
}

void add_of_layer(ByLane& out, const LayerCosts& c, Segment::Kind kind, bool experts, const std::vector<int>& members) {
  for (const Segment& s : c.forward.segments)
    if (const LayerMessage& m = s.message; s.kind == kind && m.of_experts == experts)
      add(out, experts ? kExpertTensorLane : lane_of(m.stream), {m.stream, m.kind, base::Bytes{m.bytes}, members});
}

}  // namespace

std::shared_ptr<const StreamRates::Lanes> stream_lanes(const plan::PlanSpec& spec, const StageGroups& groups,
                                                       const std::vector<LayerRun>& layers) {
  const Lockstep& lockstep = groups.lockstep;
  // The tokens of experts fill links on which parameters or gradients alone would leave room. Gradients that are
  // reduced in the last pass alone matter only where it is one of a few: clocks that share links cost a search much
  // time.
  constexpr std::int64_t kFewPasses = 8;
  const bool in_passes = plan::zero_of(spec) >= 2 || (spec.reduces_early() && spec.micro_batches() <= kFewPasses);
  const bool beside_tokens = spec.mesh.folds_experts() && in_passes;
  const bool beside_layers = (spec.mesh.context > 1 || spec.mesh.tensor > 1) && plan::zero_of(spec) == 3;
  const bool shares = spec.offload.any() || beside_tokens || beside_layers;
  if (lockstep.links == nullptr || layers.empty() || !shares) return nullptr;
  const int first = groups.tensor.front();
  ByLane messages;
  for (const LayerRun& run : layers) {
    const LayerCosts& c = *run.costs;
    if (c.kind != models::LayerKind::block) continue;
    add_of_data(messages, c, spec, groups);
    add_of_layer(messages, c, Segment::Kind::tensor, false, groups.tensor);
    add_of_layer(messages, c, Segment::Kind::tensor, true, groups.of(true).tensor);
    add_of_layer(messages, c, Segment::Kind::shift, false, strided(first, spec.mesh.tensor, spec.mesh.context));
    add_of_layer(messages, c, Segment::Kind::exchange, false, groups.experts);
  }
  if (spec.offload.any()) {
    const auto elements = [](const LayerRun& run) { return run.costs->in(LayerBucket::own).elements; };
    const LayerCosts& c = *std::ranges::max_element(layers, {}, elements)->costs;
    const base::Bytes copied{arena_bytes(c.in(LayerBucket::own).elements, models::DType::bf16)};
    const auto copy = [&](Stream stream, bool adds = false) {
      messages.emplace(adds ? kAddingLane : lane_of(stream),
                       StreamMessage{stream, std::nullopt, copied, {first}, adds});
    };
    for (const Stream stream : {Stream::to_host, Stream::from_host}) copy(stream);
    if (spec.offload.optimizer != plan::Space::device) copy(Stream::to_host, true);
    if (spec.offload.parameters == plan::Space::nvme || spec.offload.optimizer == plan::Space::nvme)
      for (const Stream stream : {Stream::to_nvme, Stream::from_nvme}) copy(stream);
  }
  auto out = std::make_shared<StreamRates::Lanes>();
  for (const auto& [lane, message] : messages) (*out)[lane] = lockstep.placed().crossings(message, lockstep.ranks);
  return out;
}

std::shared_ptr<StreamRates> RatesMemo::of(std::vector<StreamRates::Lanes> ranks) {
  constexpr std::size_t kMost = 32, kMostSets = 2000;  // about 1 MB each for eight ranks
  const auto known = std::ranges::find_if(known_, [&](const auto& rates) { return rates->ranks() == ranks; });
  if (known != known_.end() && (*known)->sets() <= kMostSets) return *known;
  if (known != known_.end()) known_.erase(known);
  if (known_.size() == kMost) known_.pop_front();
  return known_.emplace_back(std::make_shared<StreamRates>(std::move(ranks)));
}

std::shared_ptr<StreamRates> stream_rates(const std::shared_ptr<const StreamRates::Lanes>& lanes, RatesMemo& memo) {
  if (!lanes) return nullptr;
  auto rates = memo.of({*lanes});
  return rates->any() ? rates : nullptr;
}

std::vector<PipelineTimes::Neighbours> neighbours_of(const plan::Plan& plan, const std::vector<StageProgram>& stages,
                                                     int devices_per_node, RatesMemo& memo) {
  std::vector<PipelineTimes::Neighbours> out;
  if (plan.spec().mesh.ranks_per_stage() >= devices_per_node) return out;
  const auto node_of = [&](std::size_t s) {
    return plan.rank(plan::StageId(static_cast<int>(s)), 0, 0) / devices_per_node;
  };
  for (std::size_t first = 0, end = 0; first < stages.size(); first = end) {
    std::vector<StreamRates::Lanes> lanes;
    for (end = first; end < stages.size() && stages[end].lanes && node_of(end) == node_of(first); ++end)
      lanes.push_back(*stages[end].lanes);
    end = std::max(end, first + 1);
    if (lanes.size() < 2) continue;
    auto rates = memo.of(std::move(lanes));
    if (rates->across()) out.push_back({first, end - first, std::move(rates)});
  }
  return out;
}

}  // namespace orrery::cost
